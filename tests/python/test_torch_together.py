"""A convolution in training with its batch norm and activation as one of autograd's nodes, batch norm's kernels by a stand-in."""
import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from faltung.torch import _norm_kernels  # noqa: E402
from faltung.torch._layer import Layer  # noqa: E402
from faltung.torch._passes import FORWARD, INPUT_GRAD, WEIGHT_GRAD  # noqa: E402
from test_torch_norm import StandIn, fused  # noqa: E402


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 8, 1, bias=False), nn.BatchNorm2d(8))


def nodes(y):
    """The names of all nodes behind a result."""
    found, waiting = [], [y.grad_fn]
    while waiting:
        node = waiting.pop()
        found.append(node.name())
        waiting += [inner for inner, _ in node.next_functions if inner is not None]
    return found


def loss(y):
    """Whose gradient batch norm does not take to 0."""
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(5))
    return (y.float().pow(2) * weights).sum()


def pair(monkeypatch, autocast=False):
    """PyTorch's, ours, and an input."""
    x = torch.randn(4, 8, 9, 9)
    plain, model = net(), net()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        fused(monkeypatch, model, x, True)
    return plain, model, x


def alike(plain, model, autocast):
    far = 5e-2 if autocast else 1e-4
    for (name, a), b in zip(plain.named_parameters(), model.parameters()):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            assert b.grad.dtype is a.grad.dtype
            torch.testing.assert_close(b.grad, a.grad, rtol=far, atol=far * a.grad.abs().max().item(), msg=name)
    for a, b in zip(plain.buffers(), model.buffers()):
        torch.testing.assert_close(b, a, rtol=far, atol=far)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("ours", [{FORWARD, INPUT_GRAD, WEIGHT_GRAD}, {FORWARD}, {INPUT_GRAD}, {WEIGHT_GRAD}, set()], ids=str)
def test_one_node_a_layer(monkeypatch, ours, autocast):
    plain, model, x = pair(monkeypatch, autocast)
    for layer in (module.__dict__["forward"] for module in model if isinstance(module.__dict__.get("forward"), Layer)):
        layer.passes.ours = frozenset(ours)
    StandIn.calls = []
    for each in (plain, model):
        given = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = each(given)
        loss(y).backward()
        each.dx = given.grad
    assert StandIn.calls == ["silu", ""]
    assert [name for name in nodes(y) if name.startswith("_")] == ["_TogetherBackward"] * 2
    alike(plain, model, autocast)
    torch.testing.assert_close(model.dx, plain.dx, rtol=5e-2, atol=(5e-2 if autocast else 1e-4) * plain.dx.abs().max().item())


def test_what_the_kernels_do_not_compute_is_pytorchs(monkeypatch):
    plain, model, x = pair(monkeypatch)
    monkeypatch.setattr(_norm_kernels, "launches_for", lambda x, word: None)
    for each in (plain, model):
        loss(each(x)).backward()
    alike(plain, model, False)


@pytest.mark.parametrize("frozen", [0, 1, 3])
def test_frozen_parameters(monkeypatch, frozen):
    plain, model, x = pair(monkeypatch)
    for each in (plain, model):
        list(each.parameters())[frozen].requires_grad_(False)
        loss(each(x)).backward()
    alike(plain, model, False)


@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_of_gradients(monkeypatch, autocast):
    plain, model, x = pair(monkeypatch, autocast)
    for each in (plain, model):
        given = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = each(given)
            first = torch.autograd.grad(loss(y), (given, *each.parameters()), create_graph=True)
        sum(t.float().pow(2).sum() for t in first).backward()
    alike(plain, model, autocast)


def test_weights_that_change_before_the_backward_pass(monkeypatch):
    _, model, x = pair(monkeypatch)
    y = model(x)
    with torch.no_grad():
        model[3].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_copy_trains_on_its_own(monkeypatch):
    _, model, x = pair(monkeypatch)
    other = copy.deepcopy(model)
    other(x).sum().backward()
    assert all(p.grad is None for p in model.parameters()) and all(p.grad is not None for p in other.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_lie_as_what_they_are_of(dtype):
    class Made:
        processors = 4
    x = torch.empty(2, 16, 5, 6, dtype=dtype).to(memory_format=torch.channels_last)
    y = _norm_kernels.Launches(Made, x.device, dtype, "silu", 60, 16)._empty_like(x)
    assert (y.shape, y.stride(), y.dtype, y.device) == (x.shape, x.stride(), x.dtype, x.device) and y.data_ptr() != x.data_ptr()


def test_gradients_have_their_weights_strides(monkeypatch):
    """Of filters of one pixel, too, whose strides say what their memory does not: others are copied into the parameter's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1))
    model, x = model.to(memory_format=torch.channels_last), torch.randn(4, 8, 6, 6).to(memory_format=torch.channels_last)
    for module in model[0], model[4]:
        module.weight.data = module.weight.as_strided(module.weight.shape, (module.in_channels, 1, *[module.in_channels] * 2)).data
    fused(monkeypatch, model, x, True)
    for parameter, gradient in zip(model.parameters(), torch.autograd.grad(loss(model(x)), list(model.parameters()))):
        assert gradient.stride() == parameter.stride()
