#!/usr/bin/env python3
"""Whether `faltung bench` repeats itself: every row's slowest run over its median, and those beyond --most.

    bench/repeats.py [--runs 10] [--most 1.5] [--keep FOLDER] ARGUMENTS OF faltung bench...
    bench/repeats.py --suite resnet50 --batch 4 --layout nchw
    bench/repeats.py --suite efficientnet_b2 --batch 8 --layout nchw

Each run is a process of its own. Beside a peer (--vs) that row's slowest run says, too, what the peer's runs between its own took, over their
median: where both went up, it was the machine. With --keep runs' tables stay in a folder, and those that are there count: ten can be made
in pieces. The exit code is 1 where a row is beyond.
"""
import argparse
import csv
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--most", type=float, default=1.5)
    parser.add_argument("--faltung", default=os.environ.get("FALTUNG", str(ROOT / "build/tools/faltung")))
    parser.add_argument("--keep", metavar="FOLDER")
    options, arguments = parser.parse_known_args()
    if options.keep:
        pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
        return repeat(options, arguments, pathlib.Path(options.keep))
    with tempfile.TemporaryDirectory() as folder:
        return repeat(options, arguments, pathlib.Path(folder))


def repeat(options, arguments, keep):
    there = len(list(keep.glob("*.csv")))
    for run in range(there, there + options.runs):
        done = subprocess.run([options.faltung, "bench", *arguments, "--no-check", "--csv", "-"], stdout=subprocess.PIPE, text=True,
                              check=True)
        (keep / f"{run:03}.csv").write_text(done.stdout)
        print(f"run {run + 1} of {there + options.runs}", file=sys.stderr, flush=True)
    times = {}
    for table in sorted(keep.glob("*.csv")):
        for row in csv.DictReader(table.read_text().splitlines()):
            if row["ms"]:
                peer = float(row["peer_ms"]) if row.get("peer_ms") else None
                times.setdefault((row["suite"], row["name"] or row["problem"], row["kernel"]), []).append((float(row["ms"]), peer))
    beyond = 0
    print("| row | median, ms | slowest over it | the peer then | fastest over it | runs | kernel |\n|" + "---|" * 7)
    for (_, name, kernel), runs in times.items():
        ms, peers = zip(*runs)
        middle, slowest = statistics.median(ms), max(range(len(ms)), key=lambda i: ms[i])
        beyond += ms[slowest] > options.most * middle
        then = f"{peers[slowest] / statistics.median(peers):.2f}" if None not in peers else ""
        print(f"| {name} | {middle:.4g} | {ms[slowest] / middle:.2f} | {then} | {min(ms) / middle:.2f} | {len(ms)} | `{kernel}` |")
    print(f"{beyond} of {len(times)} rows beyond {options.most} times their median")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
