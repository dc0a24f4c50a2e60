"""Of the layers that are faster one by one, patch keeps those with which the whole model is fastest."""
import types

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import faltung.torch as ft  # noqa: E402
from faltung.torch import _patch, _whole  # noqa: E402


def model_of(training):
    torch.manual_seed(1)
    layers = [part for c, k in ((3, 4), (4, 6), (6, 5)) for part in (nn.Conv2d(c, k, 3, bias=False), nn.BatchNorm2d(k), nn.ReLU())]
    return nn.Sequential(*layers).train(training), torch.randn(2, 3, 12, 12)


def replaced(model):
    return [name for name, module in model.named_modules() if "forward" in module.__dict__]


@pytest.fixture
def saving(monkeypatch):
    """Layers by name that seem to save so many milliseconds of 10."""
    saved = {"0": 1.0, "3": 7.0, "6": 2.0}

    def measure(layer, call, name, min_ms, at_least, between):
        return _patch.Row(name, problem="", kernel="it", ms=10 - saved[name], torch_ms=10.0)
    monkeypatch.setattr(_patch, "measure", measure)
    return saved


def test_leading():
    saved = {"a": 1.0, "b": 7.0, "c": 2.0}
    assert [_whole.leading(saved, share) for share in (1.0, 0.9, 0.6, 0.0)] == [{"a", "b", "c"}, {"b", "c"}, {"b"}, set()]
    assert _whole.leading(saved | {"d": -1.0}, 1.0) == {"a", "b", "c", "d"}
    assert _whole.leading({"a": 0.0}, 0.9) == set()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("times,left", [([5, 2, 3, 4], ["3"]), ([3, 6, 5, 4], []), ([3, 6, 5, 1], ["0", "3", "6"]), (None, ["0", "3", "6"])])
def test_the_fastest_is_kept(training, times, left, saving, monkeypatch):
    """times: in PyTorch alone, then with one, two and three layers; in training one more, of batch norm alone."""
    if training and times:
        times = times[:1] + [9] + times[1:]
    seen = []

    def time_whole(model, example, candidates, device, min_ms):
        for put in candidates:
            put()
            seen.append([name for name in saving if "forward" in model.get_submodule(name).__dict__])
        return times
    monkeypatch.setattr(_patch, "time_whole", time_whole)
    model, x = model_of(training)
    with torch.set_grad_enabled(training):
        patched = ft.patch(model, x)
        assert seen == [[]] * (1 + training) + [["3"], ["3", "6"], ["0", "3", "6"]]
        assert [row.name for row in patched.rows if row.kept] == left
        assert [name for name in replaced(model) if name in saving] == left
        assert list(patched.whole.values()) == (times or []) and ("whole model" in patched.report()) == (times is not None)
        assert bool(replaced(model)) == bool(left)
        after = model(x)
    patched.undo()
    assert replaced(model) == []
    if not training:
        with torch.no_grad():
            torch.testing.assert_close(model(x), after, rtol=1e-4, atol=1e-5)


def test_batch_norm_alone(saving, monkeypatch):
    """Where no layer is kept, batch norm is still called directly: the same bits, state among them."""
    monkeypatch.setattr(_patch, "time_whole", lambda *arguments: [2.0, 1.0, 3.0, 3.0, 3.0])
    model, x = model_of(True)
    other, _ = model_of(True)
    patched = ft.patch(model, x)
    assert replaced(model) == ["1", "4", "7"] and not any(row.kept for row in patched.rows)
    for _ in range(2):
        assert torch.equal(model(x), other(x))
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))
    assert torch.equal(model.eval()(x), other.eval()(x))


@pytest.mark.parametrize("training", [False, True])
def test_nothing_is_left_of_the_timing(training, saving):
    """State, gradients, hooks that wait for gradients, and random numbers are as they were."""
    model, x = model_of(training)
    before, waiting = {name: value.clone() for name, value in model.state_dict().items()}, []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(waiting.append)
    torch.manual_seed(3)
    next_number = torch.rand(1)
    torch.manual_seed(3)
    with torch.set_grad_enabled(training):
        patched = ft.patch(model, x, min_time=0.1)
    assert torch.equal(torch.rand(1), next_number)
    assert len(patched.whole) == 4 + training and all(ms > 0 for ms in patched.whole.values())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert waiting == [] and all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_timed():
    model, x = model_of(True)

    def refuses(gradient):
        raise RuntimeError("no second backward pass")
    model[0].weight.register_hook(refuses)
    put = [lambda: None]
    assert _whole.time_whole(model, x, put, x.device, 0.1) is None
    model[0].weight._backward_hooks.clear()
    assert len(_whole.time_whole(model, x, put, x.device, 0.1)) == 1
    assert _whole.time_whole(nn.Sequential(nn.Conv2d(3, 4, 3).requires_grad_(False)), x, put, x.device, 0.1) is None
    with torch.no_grad():
        assert len(_whole.time_whole(nn.Identity(), x, put, x.device, 0.1)) == 1


def test_candidates_are_timed_in_turn(monkeypatch):
    """By a clock that the model moves, of which some runs are disturbed."""
    clock, runs = {"now": 0.0, "takes": 0.0}, []

    class Moves(nn.Module):
        def forward(self, x):
            runs.append(clock["takes"])
            clock["now"] += clock["takes"] * (10 if len(runs) % 5 == 0 else 1)
            return x
    monkeypatch.setattr(_whole, "time", types.SimpleNamespace(perf_counter=lambda: clock["now"]))
    for scale, rounds in (1 / 64, _whole.ROUNDS), (1.0, _whole.LEAST_ROUNDS):  # seconds that a run takes; those that take long are fewer
        long, short = 0.25 * scale, 0.125 * scale
        put = [lambda: clock.update(takes=long), lambda: clock.update(takes=short)]
        runs.clear()
        with torch.no_grad():
            assert _whole.time_whole(Moves(), torch.ones(1), put, torch.device("cpu"), 1.0) == [1e3 * long, 1e3 * short]
        assert runs == [long, long, short, short] * rounds


def test_all_that_is_computed_is_kept_where_it_need_not_be_faster(saving, monkeypatch):
    monkeypatch.setattr(_patch, "time_whole", lambda *arguments: pytest.fail("timed"))
    model, x = model_of(True)
    assert all(row.kept for row in ft.patch(model, x, at_least=0.0).rows)
