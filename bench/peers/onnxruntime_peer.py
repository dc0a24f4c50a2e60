#!/usr/bin/env python3
"""ONNX Runtime as a peer for whole networks, on the CPU; docs/networks.md has the protocol.

The python3 in PATH must have the package onnxruntime. FALTUNG_ONNXRUNTIME=basic or off turns its optimizations down.
"""
import os
import statistics
import sys
import time

try:
    import numpy
    import onnxruntime
except ImportError as error:
    sys.exit(f"faltung-peer-onnxruntime: {sys.executable}: {error}; it needs ONNX Runtime (the python3 of an environment that has it, first in PATH)")

LEVELS = {"all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
          "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
          "off": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL}
LEVEL = os.environ.get("FALTUNG_ONNXRUNTIME", "all")


class Peer:
    def prepare(self, words):
        """network threads=N model=FILE NAME=1x3x224x224 ..."""
        options = [word.rsplit("=", 1) for word in words]
        named = dict(options[:2])
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = int(named["threads"])
        settings.graph_optimization_level = LEVELS[LEVEL]
        self.session = onnxruntime.InferenceSession(named["model"], settings, providers=["CPUExecutionProvider"])
        types = {i.name: i.type for i in self.session.get_inputs()}
        random = numpy.random.default_rng(1)
        self.inputs = {}
        for name, sizes in options[2:]:
            shape = [int(size) for size in sizes.split("x")] if sizes else []
            if types[name] != "tensor(float)":
                raise ValueError(f"its input {name} is of {types[name]}, and this adapter makes floats alone")
            self.inputs[name] = random.standard_normal(shape, dtype=numpy.float32)
        self.once()
        return f"ONNX Runtime, {named['threads']} threads, optimizations {LEVEL}"

    def once(self):
        begin = time.perf_counter()
        self.session.run(None, self.inputs)
        return 1000 * (time.perf_counter() - begin)

    def time(self, seconds):
        times, end = [], time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(self.once())
        return f"ms {statistics.median(times)} {min(times)} {max(times)} {len(times)}"


def main():
    if LEVEL not in LEVELS:
        sys.exit(f"FALTUNG_ONNXRUNTIME: '{LEVEL}' is none of {', '.join(LEVELS)}")
    print(f"peer 1 ONNX Runtime {onnxruntime.__version__} (optimizations {LEVEL})", flush=True)
    peer = Peer()
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "network":
                answer = "ready " + peer.prepare(words[1:])
            elif words[0] == "run":
                answer = peer.time(float(words[1]))
            elif words[0] == "prepare":
                answer = "declined it runs whole networks alone: faltung network bench --vs onnxruntime"
            else:
                answer = f"failed: unknown request '{words[0]}'"
        except Exception as error:  # whatever it throws is one network's failure, not the bench's
            answer = "declined " + " ".join(str(error).split())[:300]
        print(answer, flush=True)


if __name__ == "__main__":
    main()
