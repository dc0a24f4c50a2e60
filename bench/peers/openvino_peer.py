#!/usr/bin/env python3
"""OpenVINO as a peer for whole networks, on the CPU in f32, one stream; docs/networks.md has the protocol.

The python3 in PATH must have the package openvino.
"""
import statistics
import sys
import time

import numpy
import openvino


class Peer:
    def prepare(self, words):
        """network threads=N model=FILE NAME=1x3x224x224 ..."""
        options = [word.rsplit("=", 1) for word in words]
        named = dict(options[:2])
        core = openvino.Core()
        model = core.read_model(named["model"])
        shapes = {name: [int(size) for size in sizes.split("x")] if sizes else [] for name, sizes in options[2:]}
        if shapes:
            model.reshape(shapes)  # known to it beforehand, as to us
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": int(named["threads"]), "NUM_STREAMS": 1,
                    "PERFORMANCE_HINT": "LATENCY"}
        self.request = core.compile_model(model, "CPU", settings).create_infer_request()
        random = numpy.random.default_rng(1)
        for port in self.request.model_inputs:
            if port.element_type != openvino.Type.f32:
                raise ValueError(f"its input {port.any_name} is of {port.element_type}, and this adapter makes floats alone")
            self.request.set_tensor(port, openvino.Tensor(random.standard_normal(tuple(port.shape), dtype=numpy.float32)))
        self.once()
        return f"OpenVINO, {named['threads']} threads, f32"

    def once(self):
        begin = time.perf_counter()
        self.request.infer()
        return 1000 * (time.perf_counter() - begin)

    def time(self, seconds):
        times, end = [], time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            times.append(self.once())
        return f"ms {statistics.median(times)} {min(times)} {max(times)} {len(times)}"


def main():
    print(f"peer 1 OpenVINO {openvino.__version__.partition('-')[0]}", flush=True)
    peer = Peer()
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "network":
                answer = "ready " + peer.prepare(words[1:])
            elif words[0] == "run":
                answer = peer.time(float(words[1]))
            elif words[0] == "prepare":
                answer = "declined it runs whole networks alone: faltung network bench --vs openvino"
            else:
                answer = f"failed: unknown request '{words[0]}'"
        except Exception as error:  # whatever it throws is one network's failure, not the bench's
            answer = "declined " + " ".join(str(error).split())[:300]
        print(answer, flush=True)


if __name__ == "__main__":
    main()
