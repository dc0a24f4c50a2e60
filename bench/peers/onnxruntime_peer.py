#!/usr/bin/env python3
"""ONNX Runtime as a peer for whole networks, on the CPU; docs/networks.md has the protocol.

The python3 in PATH must have the package onnxruntime. FALTUNG_ONNXRUNTIME=basic or off turns its optimizations down.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # where Python is told not to look (PYTHONSAFEPATH), too
from network_peer import NetworkPeer, end_without, floats_alone

try:
    import numpy
    import onnxruntime
except ImportError as error:
    end_without("onnxruntime", "ONNX Runtime", error)

LEVELS = {"all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
          "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
          "off": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL}
LEVEL = os.environ.get("FALTUNG_ONNXRUNTIME", "all")


class Peer(NetworkPeer):
    def prepare(self, request, sizes):
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = request.threads
        settings.graph_optimization_level = LEVELS[LEVEL]
        self.session = onnxruntime.InferenceSession(request.model, settings, providers=["CPUExecutionProvider"])
        types = {i.name: i.type for i in self.session.get_inputs()}
        random = numpy.random.default_rng(1)
        self.inputs = {}
        for name, shape in sizes.items():
            if types[name] != "tensor(float)":
                raise floats_alone(name, types[name])
            self.inputs[name] = random.standard_normal(shape, dtype=numpy.float32)
        return f"f32, {request.threads} threads"

    def run(self):
        self.session.run(None, self.inputs)

    def compute(self, inputs):
        return self.session.run(None, inputs)


if __name__ == "__main__":
    if LEVEL not in LEVELS:
        sys.exit(f"FALTUNG_ONNXRUNTIME: '{LEVEL}' is none of {', '.join(LEVELS)}")
    Peer("onnxruntime").serve(f"ONNX Runtime {onnxruntime.__version__} (optimizations {LEVEL})")
