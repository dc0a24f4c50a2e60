#!/usr/bin/env python3
"""PyTorch as a peer, on a CUDA device (cuDNN, autotuned) or on the CPU; docs/bench.md has the protocol.

FALTUNG_TORCH, or else the name it is called by (faltung-peer-torch-compiled), chooses what runs: eager (the default),
cudnn_relu (torch.cudnn_convolution_relu, for bias:relu alone), compiled (torch.compile, max-autotune-no-cudagraphs) or, on the CPU,
packed (the oneDNN within PyTorch, filters in its own layout, and of nchw the images as well, brought there beforehand).
On CUDA a run is one of many in a replayed graph. Whole networks, for which there is graph, too, are torch_network.py's.
"""
import itertools
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # where Python is told not to look (PYTHONSAFEPATH), too
try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"faltung-peer-torch: {sys.executable}: {error}; it needs PyTorch (the python3 of an environment that has it, first in PATH)")

MODE = os.environ.get("FALTUNG_TORCH") or (re.findall(r"-torch-(\w+)$", sys.argv[0]) or ["eager"])[0]
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
GRAPH_MS = 4.0


class Declined(Exception):
    """PyTorch cannot do this, and why."""


def parse(text):
    """The canonical problem string as a dictionary: lists have a value a spatial dimension, pads the ends of each."""
    fields = text.split(":")
    p = {"direction": fields[0], "stride": "1", "dilation": "1", "pad": "0", "output_pad": "0", "transposed": False,
         "g": 1, "dtype": "f32", "layout": "nchw", "math": None, "epilogue": []}
    sizes = {k: int(v) for k, v in re.findall(r"([ncdhwktrs])(\d+)", fields[1])}
    p.update(n=sizes["n"], c=sizes["c"], k=sizes["k"])
    p["image"] = [sizes[letter] for letter in "dhw" if letter in sizes]
    p["filter"] = [sizes[letter] for letter in "trs" if letter in sizes]
    for field in fields[2:]:
        if match := re.fullmatch(r"(st|dil|pad|outpad)(\d[\d.x]*)", field):
            p[{"st": "stride", "dil": "dilation", "pad": "pad", "outpad": "output_pad"}[match[1]]] = match[2]
        elif re.fullmatch(r"g\d+", field):
            p["g"] = int(field[1:])
        elif field == "transposed":
            p["transposed"] = True
        elif field in DTYPES:
            p["dtype"] = field
        elif field in ("nchw", "nhwc"):
            p["layout"] = field
        elif field.startswith("math="):
            p["math"] = field[5:]
        else:
            p["epilogue"].append(field)
    dimensions = len(p["image"])
    for key in ("stride", "dilation", "output_pad"):
        values = [int(v) for v in p[key].split("x")]
        p[key] = values * dimensions if len(values) == 1 else values
    if "." in p["pad"]:
        p["pad"] = [int(v) for v in p["pad"].split(".")]
    else:
        values = [int(v) for v in p["pad"].split("x")]
        p["pad"] = [v for v in (values * dimensions if len(values) == 1 else values) for _ in range(2)]
    return p


def output_of(p):
    """The convolution's spatial sizes, before pooling."""
    sizes = zip(p["image"], p["filter"], p["stride"], p["dilation"], p["pad"][::2], p["pad"][1::2], p["output_pad"])
    if p["transposed"]:
        return [(n - 1) * st + dil * (f - 1) + 1 - before - after + more
                for n, f, st, dil, before, after, more in sizes]
    return [(n + before + after - dil * (f - 1) - 1) // st + 1 for n, f, st, dil, before, after, _ in sizes]


def epilogue_step(name, dimensions):
    activations = {"relu": F.relu, "relu6": F.relu6, "sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu,
                   "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "hardswish": F.hardswish}
    if name in activations:
        return activations[name]
    if match := re.fullmatch(r"leaky_relu\((.*)\)", name):
        return lambda x: F.leaky_relu(x, float(match[1]))
    if match := re.fullmatch(r"clip\((.*),(.*)\)", name):
        return lambda x: torch.clamp(x, float(match[1]), float(match[2]))
    if match := re.fullmatch(r"(max|avg)pool(\d)(?:s(\d))?(?:p(\d))?", name):
        size, stride, pad = int(match[2]), int(match[3] or match[2]), int(match[4] or 0)
        if match[1] == "max":
            return lambda x: getattr(F, f"max_pool{dimensions}d")(x, size, stride, pad)
        return lambda x: getattr(F, f"avg_pool{dimensions}d")(x, size, stride, pad, count_include_pad=False)
    raise Declined(f"no step for '{name}'")


class Peer:
    def prepare(self, options, problem):
        if MODE == "graph":
            raise Declined("a convolution is in a graph in any case: take --vs torch")
        self.p = p = parse(problem)
        self.written = {"fwd": "y", "bwd_d": "x", "bwd_w": "w"}[p["direction"]]  # of which there are no data
        if p["direction"] != "fwd" and MODE != "eager":
            raise Declined("gradients in eager mode only")
        self.cuda = options.get("device", "cpu").startswith("cuda")
        self.device = options["device"] if self.cuda else "cpu"
        if not self.cuda:
            torch.set_num_threads(int(options.get("threads", 1)))
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = p["math"] == "tf32"
        sets, data = int(options.get("sets", 2)), options.get("data")
        dimensions, out = len(p["image"]), output_of(p)
        self.xs = [self.tensor(data, "x", p["n"], p["c"], *p["image"]) for _ in range(sets)]
        outer, inner = (p["c"], p["k"]) if p["transposed"] else (p["k"], p["c"])
        w = self.tensor(data, "w", outer, inner // p["g"], *p["filter"])
        bias = self.tensor(data, "bias", p["k"]) if "bias" in p["epilogue"] else None
        self.residuals = [None] * sets
        if "residual" in p["epilogue"]:
            if p["epilogue"].index("residual") > p["epilogue"].count("bias"):
                raise Declined("a residual after the activation")
            self.residuals = [self.tensor(data, "residual", p["n"], p["k"], *out) for _ in range(sets)]
        steps = [epilogue_step(e, dimensions) for e in p["epilogue"] if e not in ("bias", "residual")]
        before, after = p["pad"][::2], p["pad"][1::2]
        unequal = before != after
        if unequal and p["transposed"]:
            raise Declined("a transposed convolution with unequal padding")
        pad = [0] * dimensions if unequal else before
        # As F.pad takes it: the last dimension's ends first.
        ends = [v for i in reversed(range(dimensions)) for v in (before[i], after[i])]
        convolve = getattr(F, f"conv_transpose{dimensions}d" if p["transposed"] else f"conv{dimensions}d")

        def run(x, residual):
            x = F.pad(x, ends) if unequal else x
            if p["transposed"]:
                y = convolve(x, w, bias, p["stride"], pad, p["output_pad"], p["g"], p["dilation"])
            else:
                y = convolve(x, w, bias, p["stride"], pad, p["dilation"], p["g"])
            y = y if residual is None else y + residual
            for step in steps:
                y = step(y)
            return y

        if MODE == "cudnn_relu":
            if p["epilogue"] != ["bias", "relu"] or unequal or not self.cuda or p["transposed"]:
                raise Declined("cudnn_convolution_relu is bias and ReLU, on CUDA, with equal padding")
            self.run = lambda x, _: torch.cudnn_convolution_relu(x, w, bias, p["stride"], pad, p["dilation"], p["g"])
        elif MODE == "packed":
            self.pack(w, bias, pad, unequal)
        elif p["direction"] != "fwd":
            ys = [self.tensor(data, "y", p["n"], p["k"], *out) for _ in range(sets)]
            gradient_of_x = p["direction"] == "bwd_d"

            def gradient(x, y):
                padded = F.pad(x, ends) if unequal else x
                d_x, d_w, _ = torch.ops.aten.convolution_backward(
                    y, padded, w, None, p["stride"], pad, p["dilation"], p["transposed"], p["output_pad"], p["g"],
                    [gradient_of_x, not gradient_of_x, False])
                if not gradient_of_x:
                    return d_w
                inside = tuple(slice(first, first + size) for first, size in zip(before, p["image"]))
                return d_x[(slice(None), slice(None), *inside)] if unequal else d_x

            self.run, self.residuals = gradient, ys
        else:
            self.run = torch.compile(run, mode="max-autotune-no-cudagraphs") if MODE == "compiled" else run
        self.turn, self.graph = 0, None
        with torch.no_grad():
            for _ in range(2):
                self.step()
            if self.cuda:
                self.capture()
        return f"{MODE}_{'cudnn' if self.cuda else 'cpu'}"

    def pack(self, w, bias, pad, unequal):
        p, steps = self.p, [e for e in self.p["epilogue"] if e != "bias"]
        if self.cuda or len(p["image"]) != 2 or p["transposed"] or unequal or steps not in ([], ["relu"]):
            raise Declined("packed is forward on the CPU, in two dimensions with equal padding, bias and ReLU")
        terms = (p["stride"], p["dilation"], p["g"])
        packed = torch.ops.mkldnn._reorder_convolution_weight(w.contiguous(), pad, *terms, list(self.xs[0].shape))
        if p["layout"] == "nhwc":
            last = steps[0] if steps else "none"
            self.run = lambda x, _: torch.ops.mkldnn._convolution_pointwise(x, packed, bias, pad, *terms, last, [], "")
            return
        self.xs = [x.to_mkldnn() for x in self.xs]

        def run(x, _):
            y = torch.ops.aten.mkldnn_convolution(x, packed, bias, pad, *terms)
            return torch.relu_(y) if steps else y

        self.run = run

    def tensor(self, data, name, *shape):
        """In the problem's layout in memory, seen as channels before pixels."""
        dtype = DTYPES[self.p["dtype"]]
        pixels_first = len(shape) > 1 and self.p["layout"] == "nhwc"
        memory = [shape[0], *shape[2:], shape[1]] if pixels_first else shape
        if data and name != self.written:
            with open(f"{data}/{name}.bin", "rb") as file:
                t = torch.frombuffer(bytearray(file.read()), dtype=dtype).reshape(memory).to(self.device)
        else:
            t = (torch.rand(memory, device=self.device) * 2 - 1).to(dtype)
        return t.movedim(-1, 1) if pixels_first else t

    def step(self):
        self.turn = (self.turn + 1) % len(self.xs)
        return self.run(self.xs[self.turn], self.residuals[self.turn])

    def capture(self):
        """A graph of as many runs as take about GRAPH_MS; outputs rotate as the inputs do."""
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self.step()
            self.begin.record()
            for _ in range(4):
                self.step()
            self.end.record()
            stream.synchronize()
            self.launches = max(1, min(1000, int(GRAPH_MS / (self.begin.elapsed_time(self.end) / 4))))
            self.graph, self.outputs = torch.cuda.CUDAGraph(), []
            with torch.cuda.graph(self.graph, stream=stream):
                for _ in range(self.launches):
                    self.outputs = self.outputs[-len(self.xs) + 1:] + [self.step()]

    def once(self):
        if self.graph is None:
            begin = time.perf_counter()
            self.step()
            return (time.perf_counter() - begin) * 1000
        self.begin.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / self.launches

    def time(self, seconds):
        self.once()
        ms, end = [], time.perf_counter() + seconds
        while not ms or time.perf_counter() < end:
            ms.append(self.once())
        ms.sort()
        return f"ms {ms[len(ms) // 2]:.6f} {ms[0]:.6f} {ms[-1]:.6f} {len(ms)}"

    def result(self, path):
        y = self.step()
        y = y.to_dense() if y.is_mkldnn else y
        y = y.movedim(1, -1) if self.p["layout"] == "nhwc" else y
        with open(path, "wb") as file:
            file.write(bytes(y.contiguous().cpu().flatten().view(torch.uint8).numpy()))
        return "done"


def main():
    if MODE not in ("eager", "cudnn_relu", "compiled", "graph", "packed"):
        sys.exit(f"FALTUNG_TORCH: '{MODE}' is none of eager, cudnn_relu, compiled, graph, packed")
    cudnn = torch.backends.cudnn.version()
    print(f"peer 1 PyTorch {torch.__version__}{f' cuDNN {cudnn}' if cudnn else ''} {MODE}", flush=True)
    peer = Peer()
    for line in sys.stdin:
        words = line.split()
        if words[0] == "network":
            from torch_network import TorchNetwork
            return TorchNetwork(MODE).answer(itertools.chain([line], sys.stdin))
        try:
            with torch.no_grad():
                if words[0] == "prepare":
                    options = dict(word.split("=", 1) for word in words[1:-1])
                    answer = "ready " + peer.prepare(options, words[-1])
                elif words[0] == "run":
                    answer = peer.time(float(words[1]))
                elif words[0] == "result":
                    answer = peer.result(words[1])
                else:
                    answer = f"failed: unknown request '{words[0]}'"
        except Declined as why:
            answer = f"declined {why}"
        except Exception as error:  # whatever PyTorch throws is one row's failure, not the bench's
            answer = "failed: " + " ".join(str(error).split())[:300]
        print(answer, flush=True)


if __name__ == "__main__":
    main()
