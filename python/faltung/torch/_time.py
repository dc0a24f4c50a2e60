"""How long functions take, in turn."""
import statistics
import time

import torch

ROUNDS = 9
RUNS_A_GRAPH = 4


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


def time_in_turn(functions, device, min_ms):
    """The median milliseconds of each, in blocks, in turn; on CUDA of the device alone."""
    cuda = device.type == "cuda"

    def block(function, runs):
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(runs):
                function()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / runs
        begin = time.perf_counter()
        for _ in range(runs):
            function()
        return (time.perf_counter() - begin) * 1e3 / runs

    for function in functions:
        function()
    functions, inside = zip(*(captured(f) if cuda else (f, 1) for f in functions))
    runs, times = [max(1, int(min_ms / ROUNDS / max(block(f, 2), 1e-3))) for f in functions], [[] for _ in functions]
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            times[i].append(block(function, runs[i]) / inside[i])
    return [statistics.median(t) for t in times]
