"""faltung.torch's linear layers: the operator, and where torch.compile puts it."""
import copy
import itertools

import pytest

torch = pytest.importorskip("torch")

import faltung  # noqa: E402
import graphs  # noqa: E402
import faltung.torch as ft  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
ops = torch.ops.faltung


@pytest.mark.parametrize("shape", [(16,), (3, 16), (5, 7, 16), (2, 3, 4, 16), (0, 16)], ids=str)
@pytest.mark.parametrize("device,dtype", [("cpu", torch.float32)] + [("cuda", dtype) for dtype in (torch.float32, torch.float16)
                                                                      if torch.cuda.is_available()], ids=str)
def test_it_is_what_pytorch_composes(shape, device, dtype):
    torch.manual_seed(1)
    bound = 1e-4 if dtype is torch.float32 else 4e-2
    x, w = torch.randn(shape, device=device).to(dtype), torch.randn(24, 16, device=device).to(dtype)
    for has_bias, is_scaled, adds, word in itertools.product((False, True), (False, True), (False, True), ("", "gelu", "relu")):
        bias = torch.randn(24, device=device).to(dtype) if has_bias else None
        scale = torch.randn(24, 1, 1, device=device).to(dtype) if is_scaled else None
        right = F.linear(x, w, bias) * (scale.flatten() if is_scaled else 1)
        residual = torch.randn_like(right) if adds else None
        right = {"": lambda y: y, "gelu": F.gelu, "relu": F.relu}[word](right + residual if adds else right)
        for _ in range(2):  # the second call is repeated in C
            torch.testing.assert_close(ops.linear_layer(x, w, bias, scale, residual, word), right, rtol=bound, atol=bound)


def test_it_is_an_operator_like_any_other():
    torch.manual_seed(1)
    x, w, bias, residual = torch.randn(4, 16), torch.randn(8, 16), torch.randn(8), torch.randn(4, 8)
    arguments = x, w, bias, torch.randn(8), residual, "gelu"
    torch.library.opcheck(ops.linear_layer.default, arguments)
    torch.library.opcheck(ops.linear_layer.default, (x.requires_grad_(), w.requires_grad_(), *arguments[2:]))
    ours, theirs = (torch.autograd.grad(function().sum(), (x, w)) for function in (
        lambda: ops.linear_layer(*arguments), lambda: F.gelu(F.linear(x, w, bias) * arguments[3] + residual)))
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)


def test_what_is_made_of_weights_follows_them():
    x, w, scale = torch.ones(3, 16), torch.ones(8, 16), torch.ones(8)
    for _ in range(2):
        assert torch.equal(ops.linear_layer(x, w, None, scale, None, ""), torch.full((3, 8), 16.0))
    scale.mul_(2)
    assert torch.equal(ops.linear_layer(x, w, None, scale, None, ""), torch.full((3, 8), 32.0))
    w.mul_(2)
    assert torch.equal(ops.linear_layer(x, w, None, scale, None, ""), torch.full((3, 8), 64.0))


def test_what_does_not_fit_is_refused():
    x, w = torch.ones(3, 16), torch.ones(8, 16)
    for arguments, words in (((x, torch.ones(8, 15), None, None, None, ""), "does not fit"), ((x, w, torch.ones(7), None, None, ""), "outputs"),
                             ((x, w, None, torch.ones(9), None, ""), "outputs"), ((x, w, None, None, torch.ones(3, 9), ""), "added to"),
                             ((x, w, None, None, torch.ones(3, 8).double(), ""), "one dtype"), ((x, w[0], None, None, None, ""), "K C")):
        with pytest.raises(faltung.BadProblem, match=words):
            ops.linear_layer(*arguments)


class Block(nn.Module):
    """ConvNeXt's."""

    def __init__(self, c=8, approximate="none", scale=(8, 1, 1)):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c, c, 3, padding=1, groups=c), nn.LayerNorm(c)
        self.wide, self.gelu, self.narrow = nn.Linear(c, 4 * c), nn.GELU(approximate), nn.Linear(4 * c, c)
        self.scale = nn.Parameter(torch.rand(scale))

    def forward(self, x):
        y = self.narrow(self.gelu(self.wide(self.norm(self.conv(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2)
        y = self.scale * y
        y += x
        return y


class ScaledLast(Block):
    """As timm writes it."""

    def forward(self, x):
        y = self.scale * self.narrow(self.gelu(self.wide(self.norm(self.conv(x).permute(0, 2, 3, 1)))))
        return x + y.permute((0, 3, 1, -2))


def compiled(model, *inputs):
    """The result without gradients, and the operators of faltung's that are in the graph."""
    y, seen = graphs.compiled(model, *inputs)
    return y, [node for node in seen if "faltung" in str(node.target)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [Block, lambda: Block(approximate="tanh"), lambda: ScaledLast(scale=(8,))], ids=["block", "tanh", "timm"])
def test_convnexts_block_is_three_operators(make, device):
    torch.manual_seed(2)
    model = make().to(device).to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 6, 5, device=device).to(memory_format=torch.channels_last)
    if device == "cuda":
        assert [node.target for node in compiled(model, x)[1]] == [ops.conv2d_layer.default]  # f32 there is PyTorch's
        model, x = model.half(), x.half()
    y, seen = compiled(model, x)
    right = model(x).detach()
    torch.testing.assert_close(y, right, rtol=1e-2, atol=1e-2 if device == "cuda" else 1e-3)
    assert y.stride() == right.stride()
    assert [node.target for node in seen] == [ops.conv2d_layer.default, ops.linear_layer.default, ops.linear_layer.default]
    assert seen[1].args[5].startswith("gelu") and None not in seen[2].args[:5]


class Permuted(nn.Module):
    """What only puts a result in another order, before a scale and behind it."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale, self.planes = nn.Linear(8, 6), nn.Parameter(torch.rand(6)), nn.Parameter(torch.rand(6, 1, 1))

    def forward(self, x):
        return ((self.linear(x) * self.scale).permute(0, 3, 1, 2), self.linear(x).permute(0, 3, 1, 2) * self.planes,
                (self.planes * torch.permute(self.linear(x), (0, 3, 2, 1))).permute(3, 1, 0, 2), self.linear(x).permute(1, 0, 2, 3))


def test_orders_are_kept():
    torch.manual_seed(5)
    model, x = Permuted(), torch.randn(2, 3, 4, 8)
    y, seen = compiled(model, x)
    for ours, right in zip(y, model(x)):
        torch.testing.assert_close(ours, right.detach(), rtol=1e-5, atol=1e-5)
        assert ours.stride() == right.stride()
    assert len(seen) == 3


class Others(nn.Module):
    """Linear layers with what must not be computed with them."""

    def __init__(self):
        super().__init__()
        self.linear, self.factor = nn.Linear(8, 8), nn.Parameter(torch.rand(8))

    def forward(self, x):
        a = self.linear(x)
        b = F.gelu(a) + a  # read twice
        c = self.linear(x) * x  # no constant
        d = self.linear(x).transpose(0, 1) + x.transpose(0, 1)
        e = self.linear(x) * self.factor[None, :4].repeat(1, 2)  # computed
        f = self.linear(x) + x[:1]  # another shape
        g = F.linear(x, x[:8]) + 1
        return b, c, d, e, f, g, self.linear(x.t()[:, :8].t()[:, :8]).relu()


def test_what_is_not_known_stays():
    torch.manual_seed(3)
    model, x = Others(), torch.randn(9, 8)
    y, seen = compiled(model, x)
    for ours, right in zip(y, model(x)):
        torch.testing.assert_close(ours, right.detach(), rtol=1e-5, atol=1e-5)
    assert [node.args[5] for node in seen] == ["relu"]


def test_gradients_stay_pytorchs():
    torch.manual_seed(4)
    model, x = Block(), torch.randn(2, 8, 6, 5)
    plain = copy.deepcopy(model)

    def look(graph, example_inputs):
        ft._backend.replace(graph, torch.is_grad_enabled())
        assert not any("linear_layer" in str(node.target) for node in graph.graph.nodes)
        return graph.forward
    torch._dynamo.reset()
    torch.compile(model, backend=look, fullgraph=True)(x).square().sum().backward()
    plain(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3)


class OfArguments(nn.Module):
    def forward(self, x, w, image, filter):
        return F.gelu(F.linear(x, w)), F.relu(F.conv2d(image, filter))


def test_what_is_an_argument_is_no_constant():
    """A CUDA graph reads a copy of it, of which nothing may have been made ahead."""
    arguments = torch.randn(3, 8), torch.randn(4, 8), torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    y, seen = compiled(OfArguments(), *arguments)
    for ours, right in zip(y, OfArguments()(*arguments)):
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-4)
    assert [node.target for node in seen] == [ops.conv2d_fused.default]


@torch.no_grad()
def test_what_is_faster_is_measured():
    from faltung.torch import _choice
    _choice._known.clear()
    x, w = torch.empty(3, 7, 16), torch.empty(24, 16)
    for has_bias, is_scaled, adds, activation in ((True, False, False, "gelu"), (False, True, True, ""), (True, True, False, "")):
        question = x, w, has_bias, is_scaled, adds, activation
        _choice.plan_ahead([], [question])
        assert _choice.is_faster_linear(*question) in (True, False)
    assert len(_choice._known) == 3 and {key[0] for key in _choice._known} == {"linear"}


def test_what_nothing_follows_is_measured_where_rows_are_few(monkeypatch):
    from faltung.torch import _choice, _linears
    asked = []
    monkeypatch.setattr(_choice, "is_faster_linear", lambda *question: asked.append(question[0].shape[0]) or True)
    model = torch.nn.Linear(16, 8).eval()
    for rows in (4, _linears.MOST_ROWS_ALONE, _linears.MOST_ROWS_ALONE + 1):
        x = torch.randn(rows, 16)
        for is_measured in (False, True):
            y, nodes = graphs.compiled(model, x, is_measured=is_measured)
            torch.testing.assert_close(y, model(x).detach(), rtol=1e-5, atol=1e-5)
            assert any("faltung" in str(node.target) for node in nodes) == (is_measured and rows <= _linears.MOST_ROWS_ALONE)
    assert asked == [4, _linears.MOST_ROWS_ALONE]


@torch.no_grad()
def test_plans_are_made_all_at_once(monkeypatch):
    """Those of convolutions and of linear layers: what they need is compiled side by side."""
    from faltung.torch import _backend, _choice
    waves = []
    monkeypatch.setattr(_choice, "_plan_ahead", lambda wanted: waves.append([make.__qualname__.split(".")[0] for _, make, _ in wanted]))
    monkeypatch.setattr(_choice, "is_faster_fused", lambda *question: True)
    monkeypatch.setattr(_choice, "is_faster_linear", lambda *question: True)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 16), torch.nn.GELU()
    replaced = []

    def backend(graph, inputs):
        replaced.append(_backend.replace(graph, False, is_measured=True))
        return graph
    torch._dynamo.reset()
    torch.compile(torch.nn.Sequential(*layers).eval(), backend=backend)(torch.randn(2, 3, 8, 8))
    assert waves == [["plan_ahead", "wanted"]] and replaced == [(2, 2)]
