"""What patch(model, example) measures, and what it keeps by that."""
import math
import time
import types

import pytest

torch = pytest.importorskip("torch")

import faltung.torch as ft  # noqa: E402
from residual import ALWAYS, DEVICES, block, plans_made  # noqa: E402


@torch.no_grad()
def test_layers_are_timed_as_in_the_model(monkeypatch):
    """As many bytes as all parameters have pass through the CPU's caches between two runs; blocks are timed without them."""
    from faltung.torch import _time
    (model, x), asked, passed = block(), [], []

    def time_in_turn(functions, device, min_ms, between):
        asked.append(between)
        return _time.time_in_turn(functions, device, min_ms, between)
    monkeypatch.setattr(ft._patch, "time_in_turn", time_in_turn)
    monkeypatch.setattr(_time.torch, "ones", lambda count: passed.append(count) or torch.zeros(count))
    ft.patch(model, x, **ALWAYS)
    assert asked == [sum(4 * p.numel() for p in model.parameters())] * 3 and passed == [asked[0] // 4] * 3
    slow, quick = _time.time_in_turn([lambda: time.sleep(0.01), lambda: None], x.device, 1.0, 1 << 20)
    assert slow > 9 > quick


def test_long_passes_are_timed_a_few_times(monkeypatch):
    """On CUDA, whose events a clock stands in for here: without a graph, in the least rounds; what is short in all of them, in one."""
    from faltung.torch import _time
    clock, calls, in_graphs = [0.0], [], []

    class Event:
        def __init__(self, enable_timing):
            pass

        def record(self):
            self.at = clock[0]

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return 1e3 * (end.at - self.at)

    def function(seconds):
        def run():
            calls.append(seconds)
            clock[0] += seconds
        return run
    long, short = function(0.02), function(1e-5)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(_time, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(_time, "captured", lambda f: in_graphs.append(f) or (f, 1))
    times = _time.time_in_turn([long, short], torch.device("cuda"), 1.0)
    assert times == pytest.approx([20.0, 0.01]) and in_graphs == [short]
    assert calls.count(0.02) <= 4 + _time.LEAST_ROUNDS < _time.ROUNDS
    calls.clear()
    _time.time_in_turn([short, short], torch.device("cuda"), 1.0)
    assert len(calls) > 2 * _time.ROUNDS * 10


@pytest.mark.parametrize("searches", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_timed_where_autograd_computes_them(device, searches, monkeypatch):
    """Where cuDNN searches there."""
    from faltung.torch._passes import FORWARD, PASSES, Passes
    from faltung._geometry import Family
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", searches)
    passes, tasks = Passes(Family(2, False), ((1, 1), (1, 1), (1, 1), 1)), {}
    x, w = torch.randn(1, 3, 6, 6, device=device), torch.randn(4, 3, 3, 3, device=device)
    gradients, forward = passes.gradients, passes.forward

    def noted(which, function):
        def call(*arguments):
            tasks.setdefault(which, set()).add(torch._C._current_graph_task_id())  # -1: of no backward pass
            return function(*arguments)
        return call
    with torch.no_grad():
        for which in PASSES:
            monkeypatch.setattr(passes, "gradients", noted(which, gradients))
            monkeypatch.setattr(passes, "forward", noted(FORWARD, forward))
            assert all(0 < ms < 1e4 for ms in passes.time(which, x, w, 0.1))
    assert tasks[FORWARD] == {-1}
    assert all((-1 not in tasks[which]) == (searches or device == "cpu") for which in PASSES if which != FORWARD)
    with torch.no_grad(), pytest.raises(ZeroDivisionError):
        ft._time.in_backward(lambda: 1 / 0, x.device)


def test_what_patching_took():
    model, x = block()
    with torch.no_grad():
        patched = ft.patch(model, x, **ALWAYS)
    assert len(patched.took) == 3 and all(seconds > 0 for seconds in patched.took.values())
    assert patched.report().splitlines()[-1].startswith(f"Patching took {sum(patched.took.values()):.1f} s: ")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_plans_are_made_ahead(training, autocast, monkeypatch):
    """All of them at once, before the first is timed."""
    model, x = block()[0], torch.randn(2, 3, 11, 13)  # which no other test has run
    ahead, later = plans_made(monkeypatch)
    with torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ft.patch(model.train(training), x, **ALWAYS)
    assert later == [] and len(ahead) >= (9 if training else 3)


def test_which_passes_are_ours():
    from faltung.torch._patch import faster_passes
    fwd, bwd_d, bwd_w = range(3)
    assert faster_passes({fwd: (1.0, 2.0), bwd_d: (1.0, 0.97), bwd_w: (2.0, 1.0)}, 1.0, True) == ({fwd, bwd_d}, "")
    assert faster_passes({fwd: (1.0, 0.97), bwd_w: (2.0, 1.0)}, 1.0, True) == (frozenset(), "PyTorch is faster in every pass")
    little = {fwd: (0.010, 0.011), bwd_w: (0.02, 0.01)}
    assert faster_passes(little, 1.0, False) == ({fwd}, "")
    chosen, why = faster_passes(little, 1.0, True)
    assert not chosen and "less than 50 us" in why
    assert faster_passes({fwd: (0.010, 0.011), bwd_w: (0.01, 0.011)}, 1.0, True) == ({fwd, bwd_w}, "")
    # Of one library, where that saves nearly as much; of both, where it does not, or takes longer than PyTorch.
    assert faster_passes({fwd: (0.10, 0.13), bwd_w: (0.02, 0.01)}, 1.0, True) == ({fwd, bwd_w}, "")
    assert faster_passes({fwd: (0.1, 0.2), bwd_w: (0.1, 0.04)}, 1.0, True) == ({fwd}, "")
    assert faster_passes({fwd: (0.1, 0.16), bwd_w: (0.1, 0.03)}, 1.0, True) == ({fwd}, "")
    assert faster_passes({fwd: (0.1, 0.2), bwd_w: (math.inf, 0.04)}, 1.0, True) == ({fwd}, "")
