"""PyTorch on whole networks: what torch_peer.py hands over to where it is asked for one; docs/networks.md has the protocol.

The file becomes a module (onnx_module.py), in channels_last and the type asked for. It runs as it is (eager), captured in a CUDA graph, or
compiled (torch.compile, max-autotune). On CUDA times are the device's, of runs that follow each other.
"""
import contextlib
import io

import numpy
import torch

from network_peer import NetworkPeer, floats_alone

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
TOGETHER = 5  # runs between two events of the device's


class TorchNetwork(NetworkPeer):
    devices = ("cpu", "cuda")

    def __init__(self, mode):
        super().__init__("torch")
        self.mode = mode

    def prepare(self, request, sizes):
        try:
            import onnx_module
        except ImportError as error:
            raise ValueError(f"{error}; beside PyTorch it needs the package onnx to read the file") from error
        self.device, self.dtype = torch.device(request.device), DTYPES[request.dtype]
        if self.mode in ("cudnn_relu", "packed") or (self.mode == "graph" and self.device.type != "cuda"):
            raise ValueError("graphs are of CUDA devices; take --vs torch" if self.mode == "graph" else
                             f"{self.mode} is for single convolutions; take --vs torch or torch-compiled")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device.index or 0)
        torch.set_num_threads(request.threads)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = request.math == "tf32"
        module = onnx_module.network(request.model, sizes, self.dtype)
        for name, kind in module.input_types.items():
            if kind != torch.float32:
                raise floats_alone(name, kind)
        module = module.to(self.device).to(memory_format=torch.channels_last)
        module = torch.compile(module, mode="max-autotune") if self.mode == "compiled" else module
        self.inputs = [self.laid(torch.randn(shape)) for shape in sizes.values()]
        self.call, on_cuda = lambda: module(*self.inputs), self.device.type == "cuda"
        with torch.no_grad():
            with contextlib.redirect_stderr(io.StringIO()):  # tables of all that a compiler tries
                for _ in range(3):  # what is compiled records its graph on the way
                    self.call()
            if self.mode == "graph":
                self.call = self.captured()
        self.begin = self.end = None
        if on_cuda:
            torch.cuda.synchronize()
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        ways = {"eager": "as it is (eager)", "graph": "captured in a CUDA graph", "compiled": "torch.compile, max-autotune"}
        where = "times of the device" if on_cuda else f"{request.threads} threads"
        return f"{ways[self.mode]}, channels_last, {request.dtype}, {where}"

    def laid(self, x):
        x = x.to(self.device, self.dtype)
        return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x

    def captured(self):
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.call()
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                results = self.call()

        def replay():
            graph.replay()
            return results
        return replay

    def run(self):
        with torch.no_grad():
            self.call()

    def once(self):
        if self.begin is None:
            return super().once()
        self.begin.record()
        for _ in range(TOGETHER):
            self.run()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / TOGETHER

    def compute(self, inputs):
        for ours, given in zip(self.inputs, inputs.values()):
            ours.copy_(torch.from_numpy(numpy.ascontiguousarray(given)))
        with torch.no_grad():
            return [y.float().contiguous().cpu().numpy() for y in self.call()]
