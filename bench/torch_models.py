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
import pathlib
import shlex
import sys
import time

import torch
from torch import nn

import beside

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))


class Double(nn.Sequential):
    def __init__(self, c, k):
        super().__init__(nn.Conv2d(c, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True),
                         nn.Conv2d(k, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Ronneberger and others', padded, with batch norm."""

    def __init__(self, base=64, depth=4):
        super().__init__()
        c = [base * 2 ** i for i in range(depth + 1)]
        self.down = nn.ModuleList([Double(3, c[0])] + [Double(c[i], c[i + 1]) for i in range(depth)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(c[i + 1], c[i], 2, 2) for i in reversed(range(depth))])
        self.merge = nn.ModuleList([Double(2 * c[i], c[i]) for i in reversed(range(depth))])
        self.last = nn.Conv2d(base, 2, 1)

    def forward(self, x):
        kept = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


def vae_decoder():
    from vae_decoder import Decoder
    return Decoder()


def torchvision_model(name):
    import torchvision
    return getattr(torchvision.models, name)()


def efficientnet():
    from efficientnet import EfficientNet
    return EfficientNet("b2")


MODELS = {"resnet50": (lambda: torchvision_model("resnet50"), 32, 224), "efficientnet_b2": (efficientnet, 32, 260),
          "convnext_tiny": (lambda: torchvision_model("convnext_tiny"), 32, 224), "unet": (UNet, 8, 256),
          "vae_decoder": (vae_decoder, 1, 128), "mobilenet_v3": (lambda: torchvision_model("mobilenet_v3_large"), 32, 224)}
CHANNELS = {"vae_decoder": 4}  # of the input, else 3
FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


def stage(what, begin=time.perf_counter()):
    print(f"{time.perf_counter() - begin:6.1f} s: {what}", file=sys.stderr, flush=True)


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed(function, device, repeat=7):
    """Milliseconds a call, the median of blocks; what is queued is waited for at the end of each."""
    for _ in range(3):
        function()
    synchronize(device)
    begin = time.perf_counter()
    function()
    synchronize(device)
    runs, blocks = max(3, int(0.06 / (time.perf_counter() - begin))), []
    for _ in range(repeat):
        begin = time.perf_counter()
        for _ in range(runs):
            function()
        synchronize(device)
        blocks.append((time.perf_counter() - begin) * 1e3 / runs)
    return sorted(blocks)[repeat // 2]


def timed_in_a_graph(function, device):
    """The same of a captured CUDA graph; 0 on the CPU."""
    if not device.startswith("cuda"):
        return 0.0
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = function()
    ms = timed(graph.replay, device)
    del kept
    return ms


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

    import faltung
    import faltung.torch as ft
    gc.disable()
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
        say("convolution without gradients", faltung=lambda: ops.conv2d(x, w, None, *plain),
            by_the_dispatcher=lambda: ops.conv2d.default(x, w, None, *plain), torch=lambda: F.conv2d(x, w, None, *plain))
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


def made(options):
    """The model in eval mode, in f32, and an input."""
    torch.manual_seed(1)
    make, batch, size = MODELS[options.model]
    size = options.size or size
    model, shape = make().to(options.device), (options.batch or batch, CHANNELS.get(options.model, 3), size, size)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(torch.randn(min(8, shape[0]), *shape[1:], device=options.device))
    for norm in norms:
        norm.momentum = 0.1
    return model.eval(), torch.randn(shape, device=options.device)


def in_f16(options):
    """On the GPU: model and input in f16, and a function of the results' error against f32."""
    model, x = made(options)
    with torch.no_grad():
        exact = model(x[:4]).double()
    dtype = torch.half if options.device.startswith("cuda") else torch.float32
    model, x = (t.to(dtype).to(memory_format=FORMATS[options.layout]) for t in (model, x))
    return model, x, lambda y: ((y[:4].double() - exact).norm() / exact.norm()).item()


def patch(options):
    import faltung.torch as ft
    model, x, error = in_f16(options)
    to = f" to {options.to}" if options.to else ""

    def run():
        return model(x)
    with torch.no_grad():
        before, graph_before, error_before = timed(run, options.device), timed_in_a_graph(run, options.device), error(run())
        stage(f"{options.model} {options.layout} in PyTorch: {before:.3f} ms, in a graph {graph_before:.3f} ms")
        begin = time.perf_counter()
        patched = ft.patch(model, x, min_time=6.0, memory_format=FORMATS[options.to] if options.to else torch.preserve_format)
        took = time.perf_counter() - begin
        if options.rows:
            print(patched.report())
        after, graph_after = timed(run, options.device), timed_in_a_graph(run, options.device)
        print(f"patch {options.model} {options.layout}{to}: {before:.3f} -> {after:.3f} ms, {before / after:.2f} times as fast; in a graph "
              f"{graph_before:.3f} -> {graph_after:.3f} ms, {graph_before / max(graph_after, 1e-9):.2f} times; error {error_before:.1e} -> "
              f"{error(run()):.1e}; {sum(row.kept for row in patched.rows)} of {len(patched.rows)} convolutions, patched in {took:.1f} s")


def compiled_by(options, model):
    import faltung.torch
    backend = faltung.torch.compile_graph if options.backend == "faltung" else options.backend
    return torch.compile(model, backend=backend, mode=options.mode)


def compile_model(options):
    model, x, error = in_f16(options)
    with torch.no_grad():
        before = timed(lambda: model(x), options.device)
        begin = time.perf_counter()
        compiled = compiled_by(options, model)
        for _ in range(3):  # the second call captures a CUDA graph
            compiled(x)
        synchronize(options.device)
        took = time.perf_counter() - begin
        after = timed(lambda: compiled(x), options.device)
        print(f"compile {options.model} {options.layout} by {options.backend} {options.mode}: {before:.3f} -> {after:.3f} ms, "
              f"{before / after:.2f} times as fast; error {error(compiled(x)):.1e}; ready after {took:.1f} s")


def compile_beside(options):
    """One of the processes that compare_compiled starts."""
    import faltung.torch  # noqa: F401
    beside.measure_alone()
    model, x, error = in_f16(options)

    def ready(**how):
        begin = time.perf_counter()
        compiled = compiled_by(argparse.Namespace(**how), copy.deepcopy(model))
        for _ in range(3):  # the second call captures a CUDA graph
            compiled(x)
        synchronize(options.device)
        return lambda: compiled(x), time.perf_counter() - begin
    with torch.no_grad():
        ours, our_s = ready(backend="faltung", mode=options.mode)
        stage(f"{options.model} by faltung is ready after {our_s:.1f} s")
        theirs, their_s = ready(backend="inductor", mode=options.vs)
        errors = error(model(x)), error(ours()), error(theirs())
        with beside.turn():
            before, graph = timed(lambda: model(x), options.device), timed_in_a_graph(lambda: model(x), options.device)
            turns = [(timed(ours, options.device, 3), timed(theirs, options.device, 3)) for _ in range(5)]
            after, compiled = (sorted(times)[len(times) // 2] for times in zip(*turns))
            print(f"compile {options.model} {options.layout} b{len(x)}: PyTorch {before:.3f} ms, in a graph {graph:.3f}, error {errors[0]:.1e}; "
                  f"faltung {after:.3f}, error {errors[1]:.1e}, ready after {our_s:.1f} s; inductor {options.vs} {compiled:.3f}, error "
                  f"{errors[2]:.1e}, ready after {their_s:.1f} s; ratio {compiled / after:.3f}", flush=True)
            if options.rows:
                print_kernels(ours, f"{options.model} by faltung")
                print_kernels(theirs, f"{options.model} by inductor {options.vs}")


def compare_compiled(options):
    """All models at once, until each is compiled; then timed one after the other."""
    words = [sys.executable, __file__, "--vs", options.vs, "--layout", options.layout, "--device", options.device]
    for name in ("mode", "batch", "size"):
        words += [f"--{name}", str(getattr(options, name))] if getattr(options, name) else []
    words += ["--rows"] * options.rows
    jobs = [shlex.join([*words, "compile", model]) for model in options.models]
    beside.run(jobs, options.prepare, options.limit, options.cache)


def train(options):
    import faltung.torch as ft
    model, x = made(options)
    model, x = (t.to(memory_format=FORMATS[options.layout]) for t in (model.train(), x))
    kind, to = options.device.split(":")[0], f" to {options.to}" if options.to else ""

    def forward():
        with torch.autocast(kind, torch.bfloat16):
            return result_of(x).float().square().mean()

    def step():
        forward().backward()
        for parameter in parameters:
            parameter.grad = None

    def parts():
        """Milliseconds that the host takes for a forward and a backward pass, the least of 20, and of a step in a CUDA graph."""
        times = []
        for _ in range(20):
            synchronize(options.device)
            begin = time.perf_counter()
            loss = forward()
            middle = time.perf_counter()
            loss.backward()
            times.append((middle - begin, time.perf_counter() - middle))
            del loss  # or its graph's nodes, which belong to this stream, are those of the captured step
        for parameter in parameters:
            parameter.grad = None
        host = [1e3 * min(column) for column in zip(*times)]
        return f"host {host[0]:.2f} + {host[1]:.2f}, in a graph {timed_in_a_graph(step, options.device):.2f}"
    result_of, parameters = model, list(model.parameters())
    begin = time.perf_counter()
    step()
    synchronize(options.device)
    stage(f"the first step took {time.perf_counter() - begin:.1f} s")
    before, begin = timed(step, options.device, 5), time.perf_counter()
    stage(f"{options.model} {options.layout}, batch {len(x)} in PyTorch: {before:.2f} ms")
    if options.parts:
        stage(parts())
        begin = time.perf_counter()
    if options.compiled:
        result_of = compiled_by(options, model)
        step()
        synchronize(options.device)
        took, after = time.perf_counter() - begin, timed(step, options.device, 5)
        print(f"train {options.model} {options.layout}, batch {len(x)}, by {options.backend}: {before:.2f} -> {after:.2f} ms, "
              f"{before / after:.3f} times as fast; ready after {took:.1f} s")
        return
    with torch.autocast(kind, torch.bfloat16):
        patched = ft.patch(model, x, min_time=6.0, memory_format=FORMATS[options.to] if options.to else torch.preserve_format)
    stage(f"patched in {time.perf_counter() - begin:.1f} s ({', '.join(f'{seconds:.1f} {what}' for what, seconds in patched.took.items())}): "
          + ", ".join(f"{ms:.2f} ms {how}" for how, ms in patched.whole.items()))
    if options.rows:
        print(patched.report(), flush=True)
    after = timed(step, options.device, 5)
    print(f"train {options.model} {options.layout}{to}, batch {len(x)}: {before:.2f} -> {after:.2f} ms, {before / after:.3f} times as fast; "
          f"{sum(row.kept for row in patched.rows)} of {len(patched.rows)} convolutions", flush=True)
    if options.parts:
        stage(parts())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("host", "patch", "compile", "train"))
    parser.add_argument("models", nargs="*", default=["resnet50"], help=", ".join(MODELS))
    parser.add_argument("--layout", choices=FORMATS, default="nhwc")
    parser.add_argument("--to", choices=("nhwc",), help="patch and train: puts the model into this order as well")
    parser.add_argument("--compiled", action="store_true", help="train: compiled by --backend, not patched")
    parser.add_argument("--backend", default="faltung", help="of torch.compile; inductor with --mode reduce-overhead runs as a CUDA graph, too")
    parser.add_argument("--mode", help="of torch.compile: reduce-overhead, max-autotune, ...")
    parser.add_argument("--vs", metavar="MODE", help="compile: beside inductor in a mode, such as max-autotune; the models' compilers run at once")
    beside.add_options(parser)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--size", type=int, help="of the image")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", action="store_true", help="train: also what the host takes, and the step in a CUDA graph")
    parser.add_argument("--rows", action="store_true", help="print every layer, or with --vs every kernel, too")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    if options.what == "compile" and options.vs and beside.LOCK not in os.environ:
        return compare_compiled(options)
    functions = {"host": host, "patch": patch, "compile": compile_beside if options.vs else compile_model, "train": train}
    for options.model in options.models:
        functions[options.what](options)


if __name__ == "__main__":
    main()
