#!/usr/bin/env python3
"""ncnn as a peer for whole networks, on the CPU in f32, of one image; docs/networks.md has the protocol.

The python3 in PATH must have the packages ncnn and pnnx: the latter's program makes ncnn's files of the ONNX file, for the sizes given.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # where Python is told not to look (PYTHONSAFEPATH), too
from network_peer import NetworkPeer, end_without

try:
    import ncnn
    import numpy
    import pnnx
except ImportError as error:
    end_without("ncnn", "ncnn and pnnx", error)


class Peer(NetworkPeer):
    def prepare(self, request, sizes):
        if any(not shape or shape[0] != 1 for shape in sizes.values()):
            raise ValueError("ncnn runs one image at a time: it has no batch")
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "net.onnx"
            shutil.copy(request.model, model)
            shapes = ",".join("[" + ",".join(map(str, shape)) + "]" for shape in sizes.values())
            done = subprocess.run([pnnx.EXEC_PATH, model, f"inputshape={shapes}", "fp16=0"], cwd=folder, capture_output=True, text=True)
            files = [str(model.with_name(f"net.ncnn.{kind}")) for kind in ("param", "bin")]
            if done.returncode != 0 or not all(map(os.path.exists, files)):
                raise ValueError("pnnx: " + ((done.stderr + done.stdout).strip().splitlines() or ["it failed"])[-1])
            self.net = ncnn.Net()
            self.net.opt.num_threads = request.threads
            self.net.opt.use_fp16_packed = self.net.opt.use_fp16_storage = self.net.opt.use_fp16_arithmetic = False
            self.net.opt.use_bf16_storage = False
            if self.net.load_param(files[0]) or self.net.load_model(files[1]):
                raise ValueError("what pnnx made of it has layers that ncnn does not know")
        random = numpy.random.default_rng(1)
        self.inputs = [random.standard_normal(shape, dtype=numpy.float32) for shape in sizes.values()]
        return f"f32, {request.threads} threads"

    def results(self, inputs):
        extractor = self.net.create_extractor()
        for name, x in zip(self.net.input_names(), inputs):
            extractor.input(name, ncnn.Mat(x[0]))
        results = []
        for name in self.net.output_names():
            failed, result = extractor.extract(name)
            if failed:
                raise ValueError(f"ncnn cannot compute its output {name}")
            results.append(result)
        return results

    def run(self):
        self.results(self.inputs)

    def compute(self, inputs):
        given = [numpy.ascontiguousarray(x) for x in inputs.values()]
        return [numpy.array(y)[None] for y in self.results(given)]


if __name__ == "__main__":
    Peer("ncnn").serve(f"ncnn {ncnn.__version__}")
