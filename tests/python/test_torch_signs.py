"""Tensors whose memory holds the opposite numbers, by PyTorch's negative bit: read with their sign, or refused; never as they lie."""
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import faltung  # noqa: E402
import faltung.torch as ft  # noqa: E402

ops = torch.ops.faltung
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
PLAIN = [1, 1], [1, 1], [1, 1], 1


def integers(seed, *shape, device="cpu"):
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).to(device, torch.float32)


def negated(tensor):
    """Of the same values, with the bit."""
    made = torch._neg_view(tensor.neg())
    assert made.is_neg() and torch.equal(made, tensor)
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("which", range(3))
def test_operators(which, device):
    """As first calls, as repeated ones, and by the dispatcher."""
    tensors = [integers(1, 2, 4, 5, 6, device=device), integers(2, 3, 4, 3, 3, device=device), integers(3, 3, device=device)]
    wanted = F.conv2d(*tensors, padding=1)
    given = list(tensors)
    given[which] = negated(tensors[which])
    for arguments in given, tensors, given:
        for call in ops.conv2d, ops.conv2d.default:
            assert torch.equal(call(*arguments, *PLAIN), wanted)
    with torch.autocast(device, torch.bfloat16):
        assert torch.equal(ops.conv2d(*given, *PLAIN).float(), wanted)


def test_imaginary_parts():
    x, w = torch.complex(integers(1, 1, 4, 1, 1), integers(2, 1, 4, 1, 1)), integers(3, 3, 4, 1, 1)
    part = x.conj().imag
    for given in part, part.contiguous(), x.imag, part:  # of one pixel the memory may pass for dense
        assert torch.equal(ops.conv2d(given, w, None, [1, 1], [0, 0], [1, 1], 1), F.conv2d(given, w))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device):
    x, w, dy = integers(1, 2, 4, 5, 6, device=device), integers(2, 3, 4, 3, 3, device=device), integers(3, 2, 3, 5, 6, device=device)
    for a, b, dz in (x, w, dy), (x, w, negated(dy)), (negated(x), w, dy), (x, negated(w), negated(dy)):
        leaves = [t.detach().requires_grad_() for t in (a, b)]
        theirs = torch.autograd.grad(F.conv2d(*leaves, padding=1), leaves, dz)
        for _ in range(2):
            ours = torch.autograd.grad(ops.conv2d(*leaves, None, *PLAIN), leaves, dz)
            assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("training", [False, True])
def test_patched_layers(training):
    model, x = nn.Sequential(nn.Conv2d(4, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()).train(training), integers(1, 2, 4, 5, 6)
    other = negated(x)
    with torch.set_grad_enabled(training):
        wanted = model(other)
        ft.patch(model, x, at_least=0.0, min_time=0.1)
        for given in x, other:
            torch.testing.assert_close(model(given), wanted, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_constants_and_residuals():
    """A bias of other numbers at the same address among them."""
    x, w, residual = integers(1, 2, 4, 5, 6), integers(2, 3, 4, 3, 3), integers(3, 2, 3, 5, 6)
    b = integers(4, 3)

    def layer(x, w, b, residual):
        return ops.conv2d_layer(x, w, b, None, None, None, None, residual, *PLAIN, 0.0, "")
    for given in (x, w, b, residual), (x, w, torch._neg_view(b), residual), (x, w, b, residual), (x, negated(w), b, residual), \
            (x, torch._neg_view(w), b, negated(residual)), (torch._neg_view(x), w, b, torch._neg_view(residual)):
        for _ in range(2):
            assert torch.equal(layer(*given), F.conv2d(*given[:3], padding=1) + given[3])


def test_plans_refuse_them():
    x, w = integers(1, 2, 4, 5, 6), integers(2, 3, 4, 3, 3)
    plan, y = faltung.plan("fwd:n2c4h5w6k3r3s3:pad1"), torch.empty(2, 3, 5, 6)
    for arguments, name in ((negated(x), w, y), "x"), ((x, negated(w), y), "w"), ((x, w, torch._neg_view(y)), "y"):
        with pytest.raises(faltung.BadProblem, match=f"{name} has PyTorch's negative bit.*{name}.resolve_neg"):
            plan(*arguments[:2], out=arguments[2])
    with pytest.raises(faltung.BadProblem, match="negative bit"):
        faltung.conv2d(negated(x), w, padding=1)
    assert torch.equal(plan(negated(x).resolve_neg(), w, out=y), F.conv2d(x, w, padding=1))
