"""A block of a residual network with what patch's and the backend's tests ask of it."""
import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ALWAYS = dict(at_least=0.0, min_time=1.0)


class Block(nn.Module):
    """As in a residual network: a stem, then two convolutions around an addition; one ReLU that is used twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.first, self.norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 1, groups=2)
        self.relu = nn.ReLU()
        with torch.no_grad():
            for norm in (self.stem[1], self.norm):
                norm.running_mean.uniform_(-1, 1), norm.running_var.uniform_(0.5, 2), norm.weight.uniform_(0.5, 2), norm.bias.uniform_(-1, 1)

    def forward(self, x):
        x = self.stem(x)
        y = self.relu(self.norm(self.first(x)))
        return self.relu(self.second(y) + x)


def block(device="cpu"):
    torch.manual_seed(1)
    return Block().to(device).eval(), torch.randn(2, 3, 10, 12, device=device)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def before_of(model, patched, x):
    """What the model computes without faltung."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        module.__dict__.pop("forward", None)
    return plain(x)


def plans_made(monkeypatch):
    """Lists that fill with the plans that are made ahead, here one after the other, and with those that are made later."""
    from faltung.torch import _run
    ahead, later, new_plan = [], [], _run._new_plan

    def plan_ahead(device, wanted):
        for arguments in wanted:
            _run.plan_for(*arguments)
        ahead.extend(later)
        later.clear()
    monkeypatch.setattr(_run, "_plans", {})
    monkeypatch.setattr(_run, "plan_ahead", plan_ahead)
    monkeypatch.setattr(_run, "_new_plan", lambda *arguments: later.append(arguments) or new_plan(*arguments))
    return ahead, later
