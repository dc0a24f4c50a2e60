#!/usr/bin/env python3
"""A GPU's ceilings as `faltung devices` measures them beside PyTorch's own matrix products and copy, in one run, as a table.

    bench/ceilings.py [--device cuda:0] [--build build]

The products are cuBLAS's of square matrices of random numbers, the best of some sizes; the copy is of 1 GiB, bytes read and written.
"""
import argparse
import csv
import pathlib
import subprocess

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = 4096, 8192, 12288
TYPES = {"f32": (torch.float32, False), "tf32": (torch.float32, True), "f16": (torch.half, False), "bf16": (torch.bfloat16, False)}


def seconds(function, repeat=5, runs=10):
    """Of one run, the median of blocks."""
    for _ in range(3):
        function()
    blocks = []
    for _ in range(repeat):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(runs):
            function()
        end.record()
        end.synchronize()
        blocks.append(begin.elapsed_time(end) / 1e3 / runs)
    return sorted(blocks)[repeat // 2]


def product_tflops(dtype, tf32, size, device):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / seconds(lambda: torch.matmul(a, b, out=out)) / 1e12


def copy_gbps(device, elements=1 << 28):
    a, b = (torch.zeros(elements, device=device) for _ in range(2))
    return 2 * a.nbytes / seconds(lambda: b.copy_(a)) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--build", default="build")
    options = parser.parse_args()
    command = [f"{options.build}/tools/faltung", "devices", "--csv", "-"]
    devices = csv.DictReader(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
    ours = next(line for line in devices if line["device"] == options.device)
    print(f"{ours['description'].strip()}, {ours['driver']}, PyTorch {torch.__version__}\n\n| ceiling | ours | PyTorch's | ours over it |\n|---|---|---|---|")

    def row(what, unit, own, other):
        print(f"| {what}, {unit} | {own:.4g} | {other:.4g} | {own / other:.2f} |", flush=True)
    for name, (dtype, tf32) in TYPES.items():
        best = max(product_tflops(dtype, tf32, size, options.device) for size in SIZES)
        row(name, "TFLOP/s", float(ours[f"{name}_gflops"]) / 1e3, best)
    row("copy", "GB/s", float(ours["copy_gbps"]), copy_gbps(options.device))


if __name__ == "__main__":
    main()
