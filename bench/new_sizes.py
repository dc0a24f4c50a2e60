#!/usr/bin/env python3
"""What a network's first run with inputs of another size takes beyond its runs: planning, and packing what other kernels read otherwise.

    PYTHONPATH=build/python python3 bench/new_sizes.py MODEL.onnx 1x3x640x640 1x3x512x736 [--threads 2]
"""
import argparse
import statistics
import time

import numpy

import faltung


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("first", help="sizes of its input, NxCxHxW")
    parser.add_argument("then", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    network = faltung.Network(args.model, threads=args.threads)

    def run(sizes):
        x = numpy.full([int(size) for size in sizes.split("x")], 0.1, numpy.float32)
        begin = time.perf_counter()
        network(x)
        return (time.perf_counter() - begin) * 1e3
    run(args.first)
    for sizes in args.then:
        new, again = run(sizes), statistics.median(run(sizes) for _ in range(7))
        print(f"{args.model} {sizes}: first {new:.1f} ms, again {again:.1f}, beyond {new - again:.1f}")


if __name__ == "__main__":
    main()
