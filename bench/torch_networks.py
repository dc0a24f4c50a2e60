#!/usr/bin/env python3
"""Whole networks on a GPU: faltung beside PyTorch, in 16 bits, one table.

Each model, of torchvision or of network_modules.py, is exported to ONNX with random weights, normalized by a few batches so that no activation
grows without bound. faltung runs the file; PyTorch runs the module in channels_last, as it is (eager), captured (a CUDA
graph) and compiled. Errors are those of the output against PyTorch in f32, relative to its largest element. Ready is what faltung takes, from a
store that is empty, to load, choose and run the first time: kernels are the shipped ones, or compiled and tried.

    bench/torch_networks.py --faltung build/tools/faltung                the rows of docs/performance/networks.md: a quarter of an hour
    bench/torch_networks.py --rows resnet50:1,unet:8 --compile none     these alone, and no compiler

All rows' compilers run at once, then each is timed alone. ocr_det is read from a file that --ocr names.
"""
import argparse
import concurrent.futures
import copy
import glob
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torchvision

import beside
from network_modules import Decoder, Diffusion, SuperResolution, UNet

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


# MODEL:BATCH, or MODEL:BATCH:SIZE.
ROWS = ("resnet50:32", "resnet50:1", "resnet50:128", "efficientnet_b2:32", "efficientnet_b2:1", "ocr_det:8", "unet:8", "realesrgan:1",
        "vae_decoder:1:128", "sd_unet:1")
OCR = "build/venv-ocr/lib/python3*/site-packages/rapidocr/models/PP-OCRv6_det_small.onnx"  # where ./dev demo and ./dev test put it
OWN = {"unet": UNet, "realesrgan": SuperResolution, "vae_decoder": Decoder, "sd_unet": Diffusion}
# Height and width, and channels.
SIZES = {"efficientnet_b2": (288, 3), "unet": (256, 3), "realesrgan": (256, 3), "vae_decoder": (64, 4), "sd_unet": (64, 4),
         "ocr_det": (640, 3)}
# Inputs beside the image x.
OTHERS = {"sd_unet": {"time": (320,), "context": (77, 768)}}


class FromFile(torch.nn.Module):
    """An ONNX file of one output."""

    def __init__(self, file, sizes):
        super().__init__()
        sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))
        import onnx_module
        self.network = onnx_module.network(file, sizes)
        self.output, = self.network.outputs

    def forward(self, *inputs):
        return self.network(*inputs)[0]


def make(name, size=None, ocr=None):
    torch.manual_seed(1)
    usual, channels = SIZES.get(name, (224, 3))
    size = size or usual
    if name == "ocr_det":
        model = FromFile(ocr, {"x": [1, channels, size, size]})  # whose nodes know no batch
    else:
        model = OWN[name]() if name in OWN else getattr(torchvision.models, name)(weights=None)
    model.train().cuda()
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules()):
        with torch.no_grad():
            for _ in range(4):
                model(torch.randn(16, channels, size, size, device="cuda"))
    return model.eval(), {"x": (channels, size, size), **OTHERS.get(name, {})}


def draw(shapes, batch):
    return tuple(torch.randn(batch, *shape, device="cuda") for shape in shapes.values())


def export(model, shapes, file):
    """One file, and where its weights are beyond 2 GB others beside it."""
    inputs, names = draw(shapes, 2), {"input_names": list(shapes), "output_names": ["y"]}
    try:
        torch.onnx.export(model, inputs, file, opset_version=17, dynamo=False,
                          dynamic_axes={name: {0: "n"} for name in [*shapes, "y"]}, **names)
    except (RuntimeError, TypeError, ImportError):  # a PyTorch without that exporter
        torch.onnx.export(model, inputs, file, dynamo=True, external_data=False,
                          dynamic_shapes=({0: torch.export.Dim("n")},) * len(shapes), **names)


def median_ms(once, seconds=0.6):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    once()
    torch.cuda.synchronize()
    times, stop = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < stop:
        begin.record()
        for _ in range(5):
            once()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 5)
    return float(numpy.median(times))


def captured(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def torch_functions(model, inputs, dtype, mode):
    """{how: a function that runs it so}, its result in that dtype, and the seconds that compiling took."""
    m, took = model.to(dtype).to(memory_format=torch.channels_last), 0.0
    half_inputs = [x.to(dtype).contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.to(dtype) for x in inputs]
    ways = {"eager": lambda: m(*half_inputs)}
    with beside.alone():  # PyTorch searches for its convolutions' algorithms
        half = m(*half_inputs).float()
        torch.cuda.synchronize()
    if mode != "none":
        began, compiled = time.perf_counter() - beside.stood_still(), torch.compile(m, mode=mode)
        for _ in range(3):
            compiled(*half_inputs)
        torch.cuda.synchronize()
        took, ways["compiled"] = time.perf_counter() - beside.stood_still() - began, lambda: compiled(*half_inputs)
    return ways, half, took


def run(words, log, store=None):
    begin = time.perf_counter()
    env = dict(os.environ, FALTUNG_STORE=store) if store else None
    result = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=env)
    text = f"$ {' '.join(map(str, words[1:]))}   ({time.perf_counter() - begin:.1f} s)\n{result.stdout}{result.stderr}\n"
    with open(log, "a") as file:
        file.write(text)
    return result.stdout + result.stderr


def first_ms(text, pattern):
    found = re.search(pattern + r" ([0-9.]+) ms", text)
    return float(found.group(1)) if found else float("nan")


def difference(y, exact):
    return ((y - exact).abs().max() / exact.abs().max()).item()


def row(args, name, batch, size=None):
    """Prints it: everything is compiled and has run before the times are taken; of several processes (beside.run) then one goes on at a
    time."""
    folder = args.folder / "_".join(map(str, (name, batch, size or "")))
    folder.mkdir(parents=True, exist_ok=True)
    where = ["--device", args.device, "--dtype", args.dtype] + (["--find", args.find] if args.find else [])
    model, shapes = make(name, size, args.ocr)
    file, log, output = folder / f"{name}.onnx", folder / "log.txt", "y"
    if name == "ocr_det":
        file, output = args.ocr, model.output
    else:
        export(model, shapes, file)

    def faltung(what, batch, *more, store=None):
        sizes = [word for key, shape in shapes.items() for word in ("--size", f"{key}=" + "x".join(map(str, (batch, *shape))))]
        return run([args.faltung, "network", what, file, *sizes, *where, *more], log, store)
    if args.verify:
        print("verify:", faltung("verify", 1).strip().splitlines()[-1], flush=True)
    inputs, given = draw(shapes, batch), []
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
        y = model(*inputs)
    for key, x in zip(shapes, inputs):
        numpy.save(folder / f"{key}.npy", x.cpu().numpy())
        given += ["--input", f"{key}={folder / key}.npy"]
    with concurrent.futures.ThreadPoolExecutor(1) as beside_torch:
        running = beside_torch.submit(faltung, "run", batch, *given, "--output", f"{output}={folder / 'y.npy'}")
        ways, half, took = torch_functions(copy.deepcopy(model), inputs, DTYPES[args.dtype], args.compile)
        text = running.result()
    try:
        error = difference(torch.from_numpy(numpy.load(folder / "y.npy")).cuda(), y)
        (folder / "y.npy").unlink()
    except OSError:
        print(text.strip().splitlines()[-1], flush=True)
        error = float("nan")
    theirs = difference(half, y)
    with beside.turn(), tempfile.TemporaryDirectory() as empty:
        first = faltung("run", batch, *given, store=empty)
        bench = faltung("bench", batch, "--no-check")
        if args.explain:
            faltung("explain", batch)
        ways["graph"] = captured(ways["eager"])
        times = {how: median_ms(function) for how, function in ways.items()}
    ready = sum(first_ms(first, pattern) for pattern in ("loaded in", "planned in", "first run")) / 1e3
    values = [first_ms(bench, r"faltung \S+:"), first_ms(bench, "in a graph of its own:"), first_ms(bench, "launched step by step:"),
              times["eager"], times["graph"], times.get("compiled", float("nan"))]
    print(f"{name + ' b' + str(batch) + (f' {size}²' if size else ''):24} " + " ".join(f"{v:8.4f}" for v in values) +
          f" {error:9.2e} {theirs:9.2e}  ready in {ready:.2f} s, compiled in {took:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="MODEL:BATCH or MODEL:BATCH:SIZE,... in place of " + ",".join(ROWS))
    beside.add_options(parser)
    parser.add_argument("--dtype", default="f16", choices=DTYPES)
    parser.add_argument("--device", default="cuda:0", help="faltung's")
    parser.add_argument("--faltung", default="faltung")
    parser.add_argument("--folder", default="build/networks", type=pathlib.Path)
    parser.add_argument("--compile", default="max-autotune",
                        help="torch.compile's mode: reduce-overhead, max-autotune (minutes a model) or none")
    parser.add_argument("--find", default="", help="how long faltung may measure each convolution first, e.g. 500ms")
    parser.add_argument("--explain", action="store_true", help="each step's time into the log, too")
    parser.add_argument("--verify", action="store_true", help="every tensor of one image, in doubles on the CPU")
    parser.add_argument("--ocr", default=next(iter(glob.glob(OCR)), None), help="the OCR detection's file")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    is_one = beside.LOCK in os.environ
    if not is_one:
        print(f"{'network':24} {'ours':>8} {'graph':>8} {'steps':>8} {'eager':>8} {'graph':>8} {'compiled':>8} {'error':>9} "
              f"{'PyTorch':>9}", flush=True)
    rows = args.rows.split(",") if args.rows else list(ROWS)
    if not args.ocr and any(one.startswith("ocr_det") for one in rows):
        print(f"left out: ocr_det; no {OCR}, and --ocr names none", flush=True)
        rows = [one for one in rows if not one.startswith("ocr_det")]
    if not is_one:
        return beside.run([shlex.join([sys.executable, *sys.argv, "--rows", one]) for one in rows], args.limit, args.cache)
    beside.measure_alone()
    (name, *sizes), = (one.split(":") for one in rows)
    with torch.no_grad():
        row(args, name, *map(int, sizes))


if __name__ == "__main__":
    sys.exit(main())
