"""A maximum pool behind a convolution, as torch.compile computes it with the convolution."""
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from faltung.torch import _choice  # noqa: E402
from graphs import compiled  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
LAYER = torch.ops.faltung.conv2d_layer.default


def stem(pool, activation=nn.ReLU, device="cpu", layout=torch.channels_last):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), activation(), pool).eval().to(device).to(memory_format=layout)
    return model, torch.randn(2, 3, 17, 15, device=device).contiguous(memory_format=layout)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=str)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU, nn.Identity])
@pytest.mark.parametrize("pool,word", [(nn.MaxPool2d(3, 2, 1), "maxpool3s2p1"), (nn.MaxPool2d(2), "maxpool2s2p0"), (nn.MaxPool2d((3, 3), 1), "maxpool3s1p0")])
def test_it_is_one_operator(pool, word, activation, layout, device):
    model, x = stem(pool, activation, device, layout)
    y, seen = compiled(model, x)
    with torch.no_grad():
        right = model(x)
    torch.testing.assert_close(y, right, rtol=1e-3, atol=1e-3)
    assert y.stride() == right.stride() and [node.target for node in seen] == [LAYER] and seen[0].args[-1].endswith(word)
    arguments = [a if not isinstance(a, torch.fx.Node) else None for a in seen[0].args]
    given = model[0].weight, model[0].bias, model[1].weight, model[1].bias, model[1].running_mean, model[1].running_var
    torch.library.opcheck(LAYER, (x, *given, *arguments[7:]), test_utils=("test_schema", "test_faketensor"))
    if device == "cuda":  # where TF32's rounding may make another element the largest
        return
    leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
    ours, theirs = (torch.autograd.grad(function().sum(), leaf)[0] for function in (
        lambda: LAYER(leaf, *given, *arguments[7:]), lambda: model(leaf)))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d((2, 3)), nn.MaxPool2d(3, dilation=2), nn.AvgPool2d(2)], ids=str)
def test_other_pools_stay(pool):
    model, x = stem(pool)
    y, seen = compiled(model, x)
    with torch.no_grad():
        torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-4)
    assert [node.target is LAYER for node in seen] == [True, False] and seen[0].args[-1] == "relu"


class Others(nn.Module):
    """Pools that are not the only readers, of convolutions that are transposed, and of weights that are computed."""

    def __init__(self):
        super().__init__()
        self.conv, self.up = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 2, 2)

    def forward(self, x):
        y = F.relu(self.conv(x))
        return F.max_pool2d(y, 2) + y.mean(), F.max_pool2d(self.up(x), 2), F.max_pool2d(F.conv2d(x, self.conv.weight * 2), 2)


def test_what_is_not_known_stays():
    torch.manual_seed(2)
    model, x = Others(), torch.randn(1, 3, 8, 8)
    y, seen = compiled(model, x)
    for ours, right in zip(y, model(x)):
        torch.testing.assert_close(ours, right.detach(), rtol=1e-4, atol=1e-4)
    assert sum("max_pool2d" in str(node.target) or "boolean_dispatch" in str(node.target) for node in seen) == 3


@pytest.mark.parametrize("without", [True, False])
def test_where_it_is_slower_the_pool_is_left(without, monkeypatch):
    """And the convolution, where that is slower without one, too."""
    model, x = stem(nn.MaxPool2d(2))
    monkeypatch.setattr(_choice, "plan_ahead", lambda convolutions, linears: list(linears))
    monkeypatch.setattr(_choice, "is_faster_fused", lambda *question: without and "pool" not in question[6])
    y, seen = compiled(model, x, is_measured=True)
    with torch.no_grad():
        torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-4)
    assert any(node.target is LAYER for node in seen) == without and seen[-1].target is not LAYER
