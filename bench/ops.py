#!/usr/bin/env python3
"""The table of operators of networks beside a copy (docs/performance/networks.md): one command a device.

    bench/ops.py [--device cpu] [--dtypes f32,f16] [--build build] [OPTION...]        (after ./dev build)

Times workloads/ops.txt by `faltung bench --ops`, once for each type, with what is left of the command line; rows that miss the
goal (80 % of a copy on a CPU, 85 % on a GPU) are bold. What no kernel computes is left out.
"""
import argparse
import csv
import io
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows(build, device, dtype, more):
    words = [build / "tools" / "faltung", "bench", "--ops", ROOT / "workloads" / "ops.txt", "--device", device, "--dtype", dtype,
             "--csv", "-", *more]
    result = subprocess.run([str(w) for w in words], text=True, stdout=subprocess.PIPE)
    if result.returncode == 2:
        sys.exit(2)
    return [row for row in csv.DictReader(io.StringIO(result.stdout)) if row["verdict"] != "declined"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default="f32", help="f32, f16, bf16, with commas between them")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    args, more = parser.parse_known_args()
    goal = 80 if args.device == "cpu" else 85
    found = {row["op"]: row for dtype in args.dtypes.split(",") for row in rows(args.build, args.device, dtype, more)}
    print("| operator | kernels | ms | a copy's ms | GB/s | of a copy, % | error over bound |\n|---|---|---|---|---|---|---|")
    for op, row in found.items():
        share = float(row["copy_pct"])
        bold = "**" if share < goal else ""
        wrong = "" if row["verdict"] == "pass" else f" {row['verdict'].upper()}"
        print(f"| {bold}`{op}`{bold} | {row['kernel']} | {float(row['ms']):.4g} | {float(row['copy_ms']):.4g} "
              f"| {float(row['gbps']):.1f} | {bold}{share:.0f}{bold} "
              f"| {float(row['error_over_bound']):.2g}{wrong} |")
    shares = [float(row["copy_pct"]) for row in found.values()]
    print(f"\n{len(shares)} rows, {sum(share >= goal for share in shares)} of them at {goal} % of a copy or more; geometric mean "
          f"{math.exp(sum(map(math.log, shares)) / len(shares)):.0f} %. A large copy: "
          f"{float(next(iter(found.values()))['large_copy_gbps']):.0f} GB/s.")
    return any(row["verdict"] == "wrong" for row in found.values())


if __name__ == "__main__":
    sys.exit(main())
