"""What patch fuses of modules that add: the addition is the convolution's where the module's code proves that nothing else reads the
result, and whatever a trace took as given is looked at again in every call."""
import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import faltung.torch as ft  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ALWAYS = dict(at_least=0.0, min_time=1.0)


class Residual(nn.Module):
    """As ResNet's: in place, one ReLU for all, sometimes a convolution beside."""

    def __init__(self, beside):
        super().__init__()
        self.a, self.norm_a = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.b, self.norm_b = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.beside = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8)) if beside else None
        self.scale = 1

    def forward(self, x):
        identity = x
        out = self.relu(self.norm_a(self.a(x)))
        out = self.norm_b(self.b(out))
        if self.beside is not None:
            identity = self.beside(x)
        out += identity
        return self.relu(out) * self.scale


def network(device="cpu"):
    torch.manual_seed(5)
    model = nn.Sequential(Residual(True), Residual(False)).to(device)
    x = torch.randn(2, 8, 12, 9, device=device)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 2), nn.init.uniform_(norm.bias, -1, 1)
    model(x)  # moves the statistics
    return model.eval(), x


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def plain(model):
    """A copy without faltung."""
    other = copy.deepcopy(model)
    for module in other.modules():
        module.__dict__.pop("forward", None)
    return other


def is_fused(model, x):
    """Whether no addition runs on its own."""
    with torch.profiler.profile() as profile:
        model(x)
    return not any(event.key in ("aten::add", "aten::add_") for event in profile.key_averages())


@pytest.mark.parametrize("device", DEVICES)
@torch.no_grad()
def test_the_addition_is_fused(device):
    model, x = network(device)
    before, kept = model(x), x.clone()
    assert not is_fused(model, x)
    patched = ft.patch(model, x, **ALWAYS)
    assert [row.fused for row in patched.rows] == ["conv+bn+relu", "conv+bn+add+relu", "conv+bn", "conv+bn+relu", "conv+bn+add+relu"]
    assert all(row.error < 1e-5 for row in patched.rows) and ":residual:relu" in patched.rows[1].problem
    close(model(x), before)
    assert torch.equal(x, kept) and is_fused(model, x)
    other = torch.randn(1, 8, 7, 20, device=device)
    close(model(other), plain(model)(other))
    patched.undo()
    assert torch.equal(model(x), before) and not any("forward" in module.__dict__ for module in model.modules())


def changes():
    def hook(model):
        model[1].norm_b.register_forward_hook(lambda module, inputs, y: y + 1)

    def flag(model):
        model[1].scale = 3

    def module(model):
        model[1].relu = nn.SiLU()

    def inside(model):
        model[0].beside[1] = nn.Identity()

    def training(model):
        model[1].norm_b.train()

    def weights(model):
        model[0].b.weight.mul_(2)

    def whole(model):
        model.double()
    return [hook, flag, module, inside, training, weights, whole]


@pytest.mark.parametrize("change", changes(), ids=lambda change: change.__name__)
@torch.no_grad()
def test_what_changes_later_is_seen(change):
    model, x = network()
    ft.patch(model, x, **ALWAYS)
    before = model(x)
    change(model)
    x = x.to(model[0].a.weight.dtype)
    expected = plain(model)(x)
    assert not torch.allclose(before.to(expected.dtype), expected) or change.__name__ == "whole"
    if change.__name__ not in ("module", "inside"):  # in place of one that a layer has fused: docs/python.md
        close(model(x), expected)


@torch.no_grad()
def test_hooks_and_modules_of_a_layer():
    """A hook that comes later is called, with what there is; a module that takes another's place is run."""
    model, x = network()
    ft.patch(model, x, **ALWAYS)
    seen = []
    model[1].relu.register_forward_hook(lambda module, inputs, y: seen.append(y))
    model(x)
    assert len(seen) == 2


def test_gradients_go_through():
    model, x = network()
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
    for training in (False, True):
        ours, theirs = model.train(training), plain(model).train(training)
        for m in (ours, theirs):
            m.zero_grad()
            m(x).square().sum().backward()
        for (name, a), b in zip(ours.named_parameters(), theirs.parameters()):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3, msg=name)
        for a, b in zip(ours.buffers(), theirs.buffers()):
            close(a, b)


@torch.no_grad()
def test_copies_and_compilation():
    model, x = network()
    ft.patch(model, x, **ALWAYS)
    expected = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), expected) and is_fused(other, x)
        other[0].b.weight.zero_()
        close(other(x), plain(other)(x))
    assert torch.equal(model(x), expected)
    close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), expected)
    close(torch.fx.symbolic_trace(plain(model))(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(x), plain(model)(x), rtol=0.1, atol=0.1)


class Other(nn.Module):
    """Whose addition may not be fused, or not so."""

    def __init__(self, kind):
        super().__init__()
        self.conv, self.kind, self.calls = nn.Conv2d(4, 4, 3, padding=1), kind, 0

    def forward(self, x):
        if self.kind == "branches on values" and x.sum() > 1e9:
            return x
        if self.kind == "counts":
            self.calls += 1
        y = self.conv(x)
        if self.kind == "reads twice":
            return (y + x) * y
        if self.kind == "broadcasts":
            return y + x.mean((2, 3), keepdim=True)
        if self.kind == "scales":
            return torch.add(y, x, alpha=2)
        if self.kind == "into the residual":
            kept = x.clone()
            x = same = x.clone()
            x += y
            return F.relu(x) + kept + same
        if self.kind == "changes what is read":
            z = x.clone()
            y = self.conv(z) if self.calls else y
            z.mul_(2)
            return y + z
        if self.kind == "in between":
            z = x.clone()
            y = self.conv_of(z)
            z.mul_(2)
            return y + x
        return y + x

    def conv_of(self, z):
        return F.conv2d(z, self.conv.weight, self.conv.bias, padding=1)


@pytest.mark.parametrize("kind", ["branches on values", "counts", "reads twice", "broadcasts", "scales", "into the residual",
                                  "changes what is read", "in between"])
@torch.no_grad()
def test_what_may_not_be_fused_is_right(kind):
    torch.manual_seed(6)
    model, x = Other(kind).eval(), torch.randn(2, 4, 9, 8)
    before, calls = model(x), model.calls
    patched = ft.patch(model, x, **ALWAYS)
    assert kind == "in between" or all("add" not in row.fused or kind == "changes what is read" for row in patched.rows), patched.report()
    close(model(x), before)
    assert model.calls == calls + (3 if kind == "counts" else 0)  # patch runs it twice


class PassesOn(nn.Module):
    """Where a module between a convolution and its activation returns what it is given."""

    def __init__(self, between):
        super().__init__()
        self.a, self.between, self.activation = nn.Conv2d(8, 8, 1), between, nn.LeakyReLU(0.1)
        self.b, self.last = nn.Conv2d(8, 8, 3, padding=1), nn.SiLU()

    def forward(self, x):
        return self.last(self.b(self.activation(self.between(self.a(x)))) + x)


@pytest.mark.parametrize("between", [nn.Identity(), nn.Dropout(0.5), nn.BatchNorm2d(8), nn.Sequential(nn.Identity(), nn.BatchNorm2d(8))])
@torch.no_grad()
def test_what_is_passed_on_is_activated_after_all(between):
    torch.manual_seed(8)
    model, x = PassesOn(between).eval(), torch.randn(2, 8, 9, 8)
    expected = model(x)
    patched = ft.patch(model, x, **ALWAYS)
    close(model(x), expected)
    model.scale = 2  # the block's own forward runs
    close(model(x), expected)
    model.train()
    results = []
    for _ in range(2):
        torch.manual_seed(9)
        results.append(model(x))
        patched.undo()
    close(*results)
    assert not isinstance(between, nn.Dropout) or not torch.equal(results[0], expected)
