"""The torch.compile backend, and patched models compiled."""
import copy
import importlib.metadata
import os

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import faltung.torch as ft  # noqa: E402
from residual import ALWAYS, DEVICES, before_of, block, close, plans_made  # noqa: E402


def test_a_patched_model_is_compiled_whole():
    model, x = block()
    with torch.no_grad():
        before = model(x)
        ft.patch(model, x, **ALWAYS)
        close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), before)


@pytest.mark.parametrize("device", DEVICES)
def test_the_backend_fuses_and_keeps_gradients(device):
    """Without inductor's C++ compiler: the graph that it would get, run as it is."""
    graphs = []

    def look(graph, example_inputs):
        graphs.append(ft._backend.replace(graph, torch.is_grad_enabled()))
        return graph.forward
    model, x = block(device)
    with torch.no_grad():
        before = model(x)
        close(torch.compile(model, backend=look, fullgraph=True)(x), before)
    assert graphs == [(3, 3)]
    torch._dynamo.reset()
    plain = copy.deepcopy(model)
    torch.compile(model, backend=look, fullgraph=True)(x).square().sum().backward()
    plain(x).square().sum().backward()
    assert graphs[-1] == (3, 0)
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


def test_the_backend_leaves_what_it_does_not_know():
    def function(x, w, other):
        y = F.conv2d(x, w)
        other += y  # changes what came in
        z = F.conv2d(x, w)
        return torch.relu(z), z, F.conv2d(x.double(), w.double())

    counted = []

    def look(graph, example_inputs):
        counted.append(ft._backend.replace(graph, False))
        return graph.forward
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    first, second = torch.zeros(1, 3, 3, 3), torch.zeros(1, 3, 3, 3)
    with torch.no_grad():
        for a, b in zip(torch.compile(function, backend=look)(x, w, first), function(x, w, second)):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)
    assert counted == [(2, 0)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("padding", [[2, 1], [2, 2, 1, 1], [2, 1, 1, 1]], ids=str)
def test_passes_of_a_compiled_graph(padding, device, monkeypatch):
    """By PyTorch where that is faster, which is said of all here, to the same numbers; what PyTorch does not have stays."""
    from faltung.torch import _choice
    from torch.fx.experimental.proxy_tensor import make_fx
    ops, geometry = torch.ops.faltung, ([2, 1], padding, [1, 1], 2)
    generator = torch.Generator().manual_seed(8)
    x, w = (torch.randint(-2, 3, shape, generator=generator).float().to(device) for shape in ((2, 4, 9, 8), (6, 2, 3, 3)))
    dy = torch.ones_like(ops.conv2d(x, w, None, *geometry))

    def function(x, w, dy):
        return (ops.conv2d.default(x, w, None, *geometry), ops.conv2d_input_grad.default(dy, w, [2, 4, 9, 8], *geometry),
                ops.conv2d_weight_grad.default(dy, x, [6, 2, 3, 3], *geometry))
    graph = make_fx(function, tracing_mode="fake")(x, w, dy)
    monkeypatch.setattr(_choice, "_remembered", lambda key, measure, like: False)
    _choice.choose_passes(graph)
    is_torchs = padding != [2, 1, 1, 1]
    assert is_torchs != any("faltung" in str(node.target) for node in graph.graph.nodes)
    for a, right in zip(graph(x, w, dy), function(x, w, dy)):
        assert torch.equal(a, right)


@torch.no_grad()
def test_what_is_faster_is_measured(monkeypatch):
    from faltung.torch import _choice
    from faltung._geometry import Family
    _choice._known.clear()
    x, w = torch.empty(1, 8, 20, 21), torch.empty(8, 8, 3, 3)
    question = Family(2, False), x, w, True, [[1, 1], [1, 1, 1, 1], [1, 1], 1], True, "relu", True
    ahead, later = plans_made(monkeypatch)
    _choice.plan_ahead_fused([question])
    answer = _choice.is_faster_fused(*question)
    assert answer in (True, False) and list(_choice._known.values()) == [answer]
    assert (len(ahead), later) == (1, [])


def backend():
    """By name where the package is installed, not only on the path."""
    installed = importlib.metadata.entry_points(group="torch_dynamo_backends", name="faltung")
    return "faltung" if installed else ft.compile_graph


@pytest.mark.skipif(not os.environ.get("FALTUNG_TEST_INDUCTOR"), reason="FALTUNG_TEST_INDUCTOR=1 compiles by inductor: a minute")
@pytest.mark.parametrize("device", DEVICES)
def test_inductor(device, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model, x = block(device)
    with torch.no_grad():
        before = model(x)
        compiled = torch.compile(model, fullgraph=True, backend=backend(), options={"triton.cudagraphs": True})
        for _ in range(3):
            close(compiled(x), before)
        model.first.weight.mul_(2)
        close(compiled(x), model(x))  # a graph that is replayed would not see that
    torch._dynamo.reset()
    plain = copy.deepcopy(model)
    torch.compile(model, fullgraph=True, backend=backend())(x).square().sum().backward()
    plain(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(not os.environ.get("FALTUNG_TEST_INDUCTOR"), reason="FALTUNG_TEST_INDUCTOR=1 compiles by inductor: a minute")
@pytest.mark.parametrize("device", DEVICES)
def test_a_patched_model_by_inductor(device):
    """Weights that change are read again there, too."""
    model, x = block(device)
    with torch.no_grad():
        patched = ft.patch(model, x, **ALWAYS)
        assert all(row.kept for row in patched.rows)
        compiled = torch.compile(model, fullgraph=True)
        close(compiled(x), before_of(model, None, x))
        model.first.weight.mul_(2)
        close(compiled(x), before_of(model, None, x))
