#!/usr/bin/env python3
"""What a network's first run with inputs of another size takes beyond its runs: planning, and packing what other kernels read otherwise.
Medians of some processes, each with an engine of its own.

    PYTHONPATH=build/python python3 bench/new_sizes.py MODEL.onnx 1x3x640x640 1x3x512x736 [--threads 2] [--repeat 7]
"""
import argparse
import multiprocessing
import statistics
import time

import numpy

import faltung


def measure(args):
    """Of each of the sizes: milliseconds of the first run, of those after it, and the difference."""
    network = faltung.Network(args.model, threads=args.threads)

    def run(sizes):
        x = numpy.full([int(size) for size in sizes.split("x")], 0.1, numpy.float32)
        begin = time.perf_counter()
        network(x)
        return (time.perf_counter() - begin) * 1e3
    run(args.first)
    times = []
    for sizes in args.then:
        new, again = run(sizes), statistics.median(run(sizes) for _ in range(7))
        times.append((new, again, new - again))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("first", help="sizes of its input, NxCxHxW")
    parser.add_argument("then", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        runs = processes.map(measure, [args] * args.repeat, chunksize=1)
    for sizes, times in zip(args.then, zip(*runs)):
        first, again, beyond = (statistics.median(column) for column in zip(*times))
        least, most = min(row[2] for row in times), max(row[2] for row in times)
        print(f"{args.model} {sizes}: first {first:.1f} ms, again {again:.1f}, beyond {beyond:.1f} ({least:.1f} to {most:.1f})")


if __name__ == "__main__":
    main()
