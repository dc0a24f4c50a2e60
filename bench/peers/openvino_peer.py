#!/usr/bin/env python3
"""OpenVINO as a peer for whole networks, on the CPU in f32, one stream; docs/networks.md has the protocol.

The python3 in PATH must have the package openvino.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # where Python is told not to look (PYTHONSAFEPATH), too
from network_peer import NetworkPeer, end_without, floats_alone

# It reports its use from a process that it forks, which may wait for ever for a lock of its parent's, and whoever waits for that with it.
sys.modules["openvino_telemetry"] = None
try:
    import numpy
    import openvino
except ImportError as error:
    end_without("openvino", "OpenVINO", error)


class Peer(NetworkPeer):
    def prepare(self, request, sizes):
        core = openvino.Core()
        model = core.read_model(request.model)
        if sizes:
            model.reshape(sizes)  # known to it beforehand, as to us
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": request.threads, "NUM_STREAMS": 1,
                    "PERFORMANCE_HINT": "LATENCY"}
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()
        random = numpy.random.default_rng(1)
        for port in self.request.model_inputs:
            if port.element_type != openvino.Type.f32:
                raise floats_alone(port.any_name, port.element_type)
            self.request.set_tensor(port, openvino.Tensor(random.standard_normal(tuple(port.shape), dtype=numpy.float32)))
        return f"f32, {request.threads} threads"

    def run(self):
        self.request.infer()

    def compute(self, inputs):
        results = self.request.infer(inputs)
        return [results[port] for port in self.request.model_outputs]


if __name__ == "__main__":
    Peer("openvino").serve(f"OpenVINO {openvino.__version__.partition('-')[0]}")
