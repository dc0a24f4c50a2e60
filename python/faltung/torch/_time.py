"""How long functions take, in turn."""
import statistics
import time

import torch

ROUNDS, LEAST_ROUNDS = 9, 3
RUNS_A_GRAPH = 4
LONG_MS = 1.0  # on CUDA, of what is timed without a graph: the host is ahead of it then
MOST_OF_MIN = 4  # so many times min_ms on CUDA, after the least rounds, no other round begins
MOST_RUNS = 1000  # in a block
MOST_BETWEEN = 1 << 28


def captured(function):
    """A CUDA graph's replay of the function, which shows the device's time without the host's; the function itself, if it cannot be
    captured."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(stream):
            function()
            torch.cuda.synchronize()
            graph.capture_begin()
            try:
                for _ in range(RUNS_A_GRAPH):
                    function()
            finally:
                graph.capture_end()
    except RuntimeError:
        torch.cuda.synchronize()
        return function, 1
    return graph.replay, RUNS_A_GRAPH


def time_in_turn(functions, device, min_ms, between=0):
    """The median milliseconds of each, in blocks, in turn; on CUDA of the device alone. between: bytes that pass through the CPU's
    caches before every run, as the rest of a model does between two runs of a layer, whose weights are then read from memory."""
    cuda = device.type == "cuda"
    others = torch.ones(0 if cuda else min(between, MOST_BETWEEN) // 4)  # zeros would all be one page

    def alone(function):
        others.sum()
        begin = time.perf_counter()
        function()
        return time.perf_counter() - begin

    def block(function, runs):
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(runs):
                function()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / runs
        return sum(alone(function) for _ in range(runs)) * 1e3 / runs

    for function in functions:
        function()
    functions, inside = zip(*(captured(f) if cuda and min(block(f, 1), block(f, 1)) < LONG_MS else (f, 1) for f in functions))
    most, begin = MOST_RUNS if len(others) == 0 else 1, time.perf_counter()
    runs, times = [min(most, max(1, int(min_ms / ROUNDS / max(block(f, 1 + (not cuda)), 1e-3)))) for f in functions], [[] for _ in functions]
    for done in range(ROUNDS):
        if cuda and done >= LEAST_ROUNDS and 1e3 * (time.perf_counter() - begin) > MOST_OF_MIN * len(functions) * min_ms:
            break
        for i, function in enumerate(functions):
            times[i].append(block(function, runs[i]) / inside[i])
    return [statistics.median(t) for t in times]


class Phases(dict):
    """Seconds by phase."""

    def __init__(self):
        self._since = time.perf_counter()

    def end(self, name):
        now = time.perf_counter()
        self[name], self._since = now - self._since, now


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, function, results):
        ctx.function, ctx.results = function, results
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.results.append(ctx.function())
        return gradient, None, None


def in_backward(function, device):
    """The function's result, by the thread that computes gradients: what cuDNN's own search finds there PyTorch keeps by thread, so that
    elsewhere the search would be one more, of seconds in all."""
    results = []
    with torch.inference_mode(False), torch.enable_grad():
        tensor = torch.zeros((), device=device, requires_grad=True)
        torch.autograd.grad(_Backward.apply(tensor, function, results), tensor)
    return results[0]
