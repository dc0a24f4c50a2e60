#!/usr/bin/env python3
"""Whole models by faltung.torch beside PyTorch alone, in one process; docs/performance/python.md has what it printed.

    bench/torch_models.py host                          what a call costs the host
    bench/torch_models.py patch resnet50 --layout nhwc  faltung.torch.patch, as it runs and in CUDA graphs
    bench/torch_models.py compile resnet50 --backend faltung
    bench/torch_models.py compile resnet50 unet --vs max-autotune  beside PyTorch's own compiler in that mode
    bench/torch_models.py train resnet50 --layout nhwc  forward and backward pass, bf16 by autocast

Weights are random, batch norm's statistics those of one batch. ResNet-50, ConvNeXt and MobileNetV3 are torchvision's. Several models
may be named, to be run one after the other.
"""
import argparse
import copy
import os
import shlex
import sys
import time

import torch
from torch import nn

import beside
from torch_zoo import FORMATS, MODELS, in_f16, made


def stage(what, begin=time.perf_counter()):
    print(f"{time.perf_counter() - begin:6.1f} s: {what}", file=sys.stderr, flush=True)


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed(functions, device, repeat=7):
    """Milliseconds a call of each, the medians of blocks, in turn; what is queued is waited for at the end of each."""
    def block(function, runs):
        begin = time.perf_counter()
        for _ in range(runs):
            function()
        synchronize(device)
        return (time.perf_counter() - begin) * 1e3 / runs
    for function in functions:
        for _ in range(3):
            function()
    synchronize(device)
    runs = [max(3, int(60 / block(function, 1))) for function in functions]
    blocks = [[block(*pair) for pair in zip(functions, runs)] for _ in range(repeat)]
    return [sorted(column)[repeat // 2] for column in zip(*blocks)]


def timed_in_graphs(functions, device, repeat=7):
    """The same of captured CUDA graphs; zeros on the CPU."""
    if not device.startswith("cuda"):
        return [0.0] * len(functions)
    graphs, kept = [], []
    for function in functions:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            kept.append(function())
    return timed([graph.replay for graph in graphs], device, repeat)


def print_kernels(function, what, runs=5, most=40):
    """Those of one run that take longest, by PyTorch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(runs):
            function()
        torch.cuda.synchronize()
    events = sorted((e for e in seen.key_averages() if e.device_time_total > 0), key=lambda e: -e.device_time_total)
    print(f"{what}: {sum(e.count for e in events) / runs:.0f} kernels, {sum(e.device_time_total for e in events) / runs:.0f} us")
    for event in events[:most]:
        print(f"{event.device_time_total / runs:10.1f} us {event.count / runs:5.0f} {event.key[:150]}")
    sys.stdout.flush()


def host_us(function, device, runs=200, repeat=30):
    """Microseconds that a call keeps the host, the least of blocks that the device's queue holds."""
    for _ in range(5):
        function()
    least = float("inf")
    for _ in range(repeat):
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(runs):
            function()
        least = min(least, (time.perf_counter() - begin) / runs)
    synchronize(device)
    return 1e6 * least


def host(options):
    import gc

    import faltung.torch  # noqa: F401
    torch.ones((), device=options.device)
    gc.disable()
    with beside.turn():
        time_calls(options)


def time_calls(options):
    import faltung
    import faltung.torch as ft
    device, ops, F = options.device, torch.ops.faltung, torch.nn.functional
    cuda = device.startswith("cuda")
    dtype, c, size = (torch.half, 64, 14) if cuda else (torch.float32, 8, 4)
    library = torch.library.Library("empty_probe", "DEF")
    library.define("like(Tensor x) -> Tensor")
    library.impl("like", lambda x: torch.empty_like(x), "CUDA" if cuda else "CPU")
    x, w = (torch.randn(s, device=device, dtype=dtype).to(memory_format=torch.channels_last)
            for s in ((8, c, size, size), (c, c, 3, 3)))
    plain = ([1, 1], [1, 1], [1, 1], 1)

    def say(what, **functions):
        times = ", ".join(f"{name.replace('_', ' ')} {host_us(f, device):.2f}" for name, f in functions.items())
        print(f"{what:52} {times} us", flush=True)
    with torch.no_grad():
        y = ops.conv2d(x, w, None, *plain)
        plan = faltung.plan(f"fwd:n8c{c}h{size}w{size}k{c}r3s3:pad1:{'f16' if cuda else 'f32'}:nhwc", device=device)
        stream = torch._C._cuda_getCurrentRawStream(0) if cuda else None
        addresses = x.data_ptr(), w.data_ptr(), y.data_ptr(), None, None, None, stream
        print(f"{torch.__version__} on {device}, kernel {plan.kernel}")
        say("an operator in Python that calls empty_like", it=lambda: torch.ops.empty_probe.like(x))
        say("Plan.run, by addresses", faltung=lambda: plan.run(*addresses))
        packed = plan.pack(w)
        say("a plan called with tensors", faltung=lambda: plan(x, w, out=y), packed=lambda: plan(x, packed, out=y))
        through = torch._ops.OpOverloadPacket.__call__  # what calls by keywords, and all in modes, go through
        say("convolution without gradients", faltung=lambda: ops.conv2d(x, w, None, *plain), default=lambda: ops.conv2d.default(x, w, None, *plain),
            by_the_dispatcher=lambda: through(ops.conv2d, x, w, None, *plain), torch=lambda: F.conv2d(x, w, None, *plain))
        model = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU()).eval()
        model = model.to(device, dtype).to(memory_format=torch.channels_last)
        before = host_us(lambda: model(x), device)
        ft.patch(model, x, at_least=0, min_time=2)
        say("Sequential of convolution, batch norm, ReLU", patched=lambda: model(x))
        print(f"{'':52} torch {before:.2f} us")
    a, b = (t.clone(memory_format=torch.preserve_format).requires_grad_() for t in (x, w))
    dy = torch.ones_like(y)
    say("forward with gradients", faltung=lambda: ops.conv2d(a, b, None, *plain), torch=lambda: F.conv2d(a, b, None, *plain))
    with torch.autocast(device.split(":")[0], torch.bfloat16):
        leaf = b.detach().float().requires_grad_()
        conv = nn.Conv2d(c, c, 3, padding=1, bias=False).to(device).to(memory_format=torch.channels_last)
        low = a.detach().bfloat16()

        def once(function):
            """As in a step, in which no weight was converted before."""
            torch.clear_autocast_cache()
            return function()
        theirs = host_us(lambda: once(lambda: conv(low)), device)
        ft.patch(conv, low, at_least=0, min_time=2)
        say("a layer that autocast converts the weight of", faltung=lambda: once(lambda: ops.conv2d(low, leaf, None, *plain)),
            patched=lambda: once(lambda: conv(low)))
        print(f"{'':52} torch {theirs:.2f} us")
    say("forward and backward", faltung=lambda: torch.autograd.grad(ops.conv2d(a, b, None, *plain), (a, b), dy),
        torch=lambda: torch.autograd.grad(F.conv2d(a, b, None, *plain), (a, b), dy))


def patch(options):
    import faltung.torch as ft
    beside.measure_alone()
    model, x, error = in_f16(options)
    plain, to = copy.deepcopy(model), f" to {options.to}" if options.to else ""
    both = [lambda: plain(x), lambda: model(x)]
    with torch.no_grad():
        begin = time.perf_counter()
        patched = ft.patch(model, x, min_time=6.0, memory_format=FORMATS[options.to] if options.to else torch.preserve_format)
        took = time.perf_counter() - begin
        errors = [error(run()) for run in both]
        stage(f"{options.model} {options.layout}{to} patched in {took:.1f} s")
        with beside.turn():
            if options.rows:
                print(patched.report())
            (before, after), graphs = timed(both, options.device), timed_in_graphs(both, options.device)
            print(f"patch {options.model} {options.layout}{to}: {before:.3f} -> {after:.3f} ms, {before / after:.2f} times as fast; in a graph "
                  f"{graphs[0]:.3f} -> {graphs[1]:.3f} ms, {graphs[0] / max(graphs[1], 1e-9):.2f} times; error {errors[0]:.1e} -> {errors[1]:.1e}; "
                  f"{sum(row.kept for row in patched.rows)} of {len(patched.rows)} convolutions, patched in {took:.1f} s", flush=True)


def compiled_by(options, model):
    import faltung.torch
    backend = faltung.torch.compile_graph if options.backend == "faltung" else options.backend
    return torch.compile(model, backend=backend, mode=options.mode)


def ready(options, model, x, run=None, **how):
    """The model compiled, a function that runs it, and the seconds until it has done so. how: backend and mode."""
    def now():
        return time.perf_counter() - beside.stood_still()
    begin = now()
    compiled = compiled_by(argparse.Namespace(**how), model)
    function = (lambda: compiled(x)) if run is None else run(compiled)
    for _ in range(3):  # the second call captures a CUDA graph
        function()
    synchronize(options.device)
    return function, now() - begin


def compile_model(options):
    import faltung.torch  # noqa: F401
    beside.measure_alone()
    model, x, error = in_f16(options)
    with torch.no_grad():
        compiled, took = ready(options, copy.deepcopy(model), x, backend=options.backend, mode=options.mode)
        stage(f"{options.model} by {options.backend} is ready after {took:.1f} s")
        with beside.turn():
            before, after = timed([lambda: model(x), compiled], options.device)
            print(f"compile {options.model} {options.layout} by {options.backend} {options.mode}: {before:.3f} -> {after:.3f} ms, "
                  f"{before / after:.2f} times as fast; error {error(compiled()):.1e}; ready after {took:.1f} s", flush=True)
            if options.rows:
                print_kernels(compiled, f"{options.model} by {options.backend}")
                print(torch._dynamo.utils.compile_times(repr="str", aggregate=True))


def compile_beside(options):
    """One of the processes that compare_compiled starts."""
    import faltung.torch  # noqa: F401
    beside.measure_alone()
    with beside.alone():
        model, x, error = in_f16(options)
    with torch.no_grad():
        ours, our_s = ready(options, copy.deepcopy(model), x, backend="faltung", mode=options.mode)
        stage(f"{options.model} by faltung is ready after {our_s:.1f} s")
        theirs, their_s = ready(options, copy.deepcopy(model), x, backend="inductor", mode=options.vs)
        errors = error(model(x)), error(ours()), error(theirs())
        with beside.turn():
            graph = timed_in_graphs([lambda: model(x)], options.device)[0]
            before, after, compiled = timed([lambda: model(x), ours, theirs], options.device)
            print(f"compile {options.model} {options.layout} b{len(x)}: PyTorch {before:.3f} ms, in a graph {graph:.3f}, error {errors[0]:.1e}; "
                  f"faltung {after:.3f}, error {errors[1]:.1e}, ready after {our_s:.1f} s; inductor {options.vs} {compiled:.3f}, error "
                  f"{errors[2]:.1e}, ready after {their_s:.1f} s; ratio {compiled / after:.3f}", flush=True)
            if options.rows:
                print_kernels(ours, f"{options.model} by faltung")
                print_kernels(theirs, f"{options.model} by inductor {options.vs}")


def compare_compiled(options):
    """All models' compilers at once, the first named first; each model is timed alone."""
    words = [sys.executable, __file__, "--vs", options.vs, "--layout", options.layout, "--device", options.device]
    for name in ("mode", "batch", "size"):
        words += [f"--{name}", str(getattr(options, name))] if getattr(options, name) else []
    words += ["--rows"] * options.rows
    jobs = [shlex.join([*words, "compile", model]) for model in options.models]
    beside.run(jobs, options.limit, options.cache)


class Step:
    """A forward and a backward pass in training, without an optimizer's part."""

    caches = True  # what autocast converts, which PyTorch's own capturing does not allow

    def __init__(self, model, x, device):
        self.run, self.parameters, self.x, self.device = model, list(model.parameters()), x, device

    def autocast(self):
        return torch.autocast(self.device.split(":")[0], torch.bfloat16, cache_enabled=self.caches)

    def forward(self):
        with self.autocast():
            return self.run(self.x).float().square().mean()

    def capture(self):
        """From now on the model's passes are two CUDA graphs, as PyTorch makes them of any model."""
        self.caches = False
        with self.autocast():
            self.run = torch.cuda.make_graphed_callables(self.run, (self.x,))

    def forget(self):
        for parameter in self.parameters:
            parameter.grad = None

    def __call__(self):
        self.forward().backward()
        self.forget()

    def host_ms(self):
        """What the host takes for a forward and a backward pass, the least of 20."""
        times = []
        for _ in range(20):
            synchronize(self.device)
            begin = time.perf_counter()
            loss = self.forward()
            middle = time.perf_counter()
            loss.backward()
            times.append((middle - begin, time.perf_counter() - middle))
            del loss  # or its graph's nodes, which belong to this stream, are those of a captured step
        self.forget()
        return [1e3 * min(column) for column in zip(*times)]


def train(options):
    import faltung.torch as ft
    beside.measure_alone()
    model, x = made(options)
    model, x = (t.to(memory_format=FORMATS[options.layout]) for t in (model.train(), x))
    plain, to = Step(copy.deepcopy(model), x, options.device), f" to {options.to}" if options.to else ""
    name, begin = f"train {options.model} {options.layout}{to}, batch {len(x)}", time.perf_counter()
    with beside.alone():  # PyTorch searches for its convolutions' algorithms
        plain()
        synchronize(options.device)
    stage(f"the first step took {time.perf_counter() - begin:.1f} s")
    if options.compiled:
        return train_compiled(options, name, plain, model, x)
    begin = time.perf_counter()
    with torch.autocast(options.device.split(":")[0], torch.bfloat16):
        patched = ft.patch(model, x, min_time=6.0, memory_format=FORMATS[options.to] if options.to else torch.preserve_format)
    stage(f"patched in {time.perf_counter() - begin:.1f} s ({', '.join(f'{seconds:.1f} {what}' for what, seconds in patched.took.items())}): "
          + ", ".join(f"{ms:.2f} ms {how}" for how, ms in patched.whole.items()))
    both = [plain, Step(model, x, options.device)]
    with beside.turn():
        if options.rows:
            print(patched.report(), flush=True)
        before, after = timed(both, options.device, 5)
        print(f"{name}: {before:.2f} -> {after:.2f} ms, {before / after:.3f} times as fast; "
              f"{sum(row.kept for row in patched.rows)} of {len(patched.rows)} convolutions", flush=True)
        if options.parts:
            (a, b), (c, d) = (step.host_ms() for step in both)
            print(f"{name}: host {a:.2f} + {b:.2f} -> {c:.2f} + {d:.2f} ms", flush=True)
        if options.graphs:
            before, after = timed_in_graphs(both, options.device, 5)
            print(f"{name}: in a graph {before:.2f} -> {after:.2f} ms, {before / max(after, 1e-9):.3f} times", flush=True)
            for step in both:
                step.capture()
            before, after = timed(both, options.device, 5)
            print(f"{name}: by make_graphed_callables {before:.2f} -> {after:.2f} ms, {before / after:.3f} times", flush=True)


def train_compiled(options, name, plain, model, x):
    """By faltung's backend and by inductor, in the same mode."""
    ours, our_s = ready(options, copy.deepcopy(model), x, lambda m: Step(m, x, options.device), backend="faltung", mode=options.mode)
    stage(f"{options.model} by faltung is ready after {our_s:.1f} s")
    theirs, their_s = ready(options, model, x, lambda m: Step(m, x, options.device), backend="inductor", mode=options.mode)
    with beside.turn():
        before, after, compiled = timed([plain, ours, theirs], options.device, 5)
        print(f"{name}, compiled {options.mode or ''}: PyTorch {before:.2f} ms; faltung {after:.2f}, ready after {our_s:.1f} s; inductor "
              f"{compiled:.2f}, ready after {their_s:.1f} s; ratio {compiled / after:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("host", "patch", "compile", "train"))
    parser.add_argument("models", nargs="*", default=["resnet50"], help=", ".join(MODELS))
    parser.add_argument("--layout", choices=FORMATS, default="nhwc")
    parser.add_argument("--to", choices=("nhwc",), help="patch and train: puts the model into this order as well")
    parser.add_argument("--compiled", action="store_true", help="train: compiled by faltung's backend and by inductor, not patched")
    parser.add_argument("--backend", default="faltung", help="of torch.compile; inductor with --mode reduce-overhead runs as a CUDA graph, too")
    parser.add_argument("--mode", help="of torch.compile: reduce-overhead, max-autotune, ...")
    parser.add_argument("--vs", metavar="MODE", help="compile: beside inductor in a mode, such as max-autotune; the models' compilers run at once")
    beside.add_options(parser)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--size", type=int, help="of the image")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", action="store_true", help="train: also what the host takes")
    parser.add_argument("--graphs", action="store_true", help="train: also the step in a CUDA graph, and by torch.cuda.make_graphed_callables")
    parser.add_argument("--rows", action="store_true", help="print every layer too; of compile every kernel, and without --vs what the compiler's stages took")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    if options.what == "compile" and options.vs and beside.LOCK not in os.environ:
        return compare_compiled(options)
    functions = {"host": host, "patch": patch, "compile": compile_beside if options.vs else compile_model, "train": train}
    for options.model in options.models:
        functions[options.what](options)


if __name__ == "__main__":
    main()
