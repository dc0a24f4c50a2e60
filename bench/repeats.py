#!/usr/bin/env python3
"""Whether `faltung bench` repeats itself: every row's slowest run over its median, and those beyond --most.

    bench/repeats.py [--runs 10] [--most 1.5] ARGUMENTS OF faltung bench...
    bench/repeats.py --suite resnet50 --batch 4 --layout nchw
    bench/repeats.py --suite efficientnet_b2 --batch 8 --layout nchw

Each run is a process of its own. The exit code is 1 where a row is beyond.
"""
import argparse
import csv
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--most", type=float, default=1.5)
    parser.add_argument("--faltung", default=os.environ.get("FALTUNG", str(ROOT / "build/tools/faltung")))
    options, arguments = parser.parse_known_args()
    times = {}
    for run in range(options.runs):
        done = subprocess.run([options.faltung, "bench", *arguments, "--no-check", "--csv", "-"], stdout=subprocess.PIPE, text=True,
                              check=True)
        for row in csv.DictReader(done.stdout.splitlines()):
            if row["ms"]:
                times.setdefault((row["name"] or row["problem"], row["kernel"]), []).append(float(row["ms"]))
        print(f"run {run + 1} of {options.runs}", file=sys.stderr, flush=True)
    beyond = 0
    print("| row | median, ms | slowest over it | fastest over it | runs | kernel |\n|" + "---|" * 6)
    for (name, kernel), ms in times.items():
        middle = statistics.median(ms)
        beyond += max(ms) > options.most * middle
        print(f"| {name} | {middle:.4g} | {max(ms) / middle:.2f} | {min(ms) / middle:.2f} | {len(ms)} | `{kernel}` |")
    print(f"{beyond} of {len(times)} rows beyond {options.most} times their median")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
