"""Squeeze and excite, group norm with its activation, and averages, as torch.compile computes them: excite's and average's kernels on the
CPU, where they are put into a graph, and on CUDA what they compute."""
import ctypes
import math

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import cuda_on_cpu  # noqa: E402
from faltung.torch import _attention, _backend, _excite, _islands  # noqa: E402

ops = torch.ops.faltung
HOST = """
extern "C" void both(Int gx, Int gy, const Vector* x, const Vector* down, const unsigned short* down_bias, const unsigned short* up,
                     const unsigned short* up_bias, Vector* y, float* partial, const Int* s) {
  launch(gx, gy, kThreads, [=] { squeeze(x, down, partial, s[0], s[1], s[2], s[3], s[4], s[5]); });
  launch(gx, gy, kThreads, [=] { excite(x, partial, down_bias, up, up_bias, y, s[0], s[1], s[2], s[3], s[4], s[5], s[6]); });
}
"""


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return cuda_on_cpu.libraries(tmp_path_factory.mktemp("excite"), "_excite.cu", HOST)


def tensors(shape, squeezed, has_bias=True, device="cpu", dtype=torch.bfloat16):
    channels = shape[1]
    x = torch.randn(shape, device=device).add_(0.3).to(dtype).contiguous(memory_format=torch.channels_last)
    down, up = (torch.randn(k, c, 1, 1, device=device).div_(c ** 0.5 / 2).to(dtype) for k, c in ((squeezed, channels), (channels, squeezed)))
    biases = [torch.randn(k, device=device).to(dtype) if has_bias else None for k in (squeezed, channels)]
    return x, down, biases[0], up, biases[1]


def exact(given, word, gate):
    return _excite.composed(*(None if t is None else t.double() for t in given), word, gate)


# Blocks of all channels and of some, one chunk of rows and several, fewer rows than threads beside each other.
SHAPES = [((2, 32, 13, 11), 8), ((3, 144, 9, 9), 6), ((1, 16, 40, 33), 4), ((2, 528, 5, 7), 22), ((1, 2112, 3, 3), 88), ((5, 24, 1, 1), 1),
          ((1, 96, 17, 17), 40), ((1, 64, 70, 70), 300)]


def test_arithmetic_is_pytorchs(on_cpu):
    for i, (shape, squeezed) in enumerate(SHAPES):
        torch.manual_seed(i)
        word, gate = ("silu", "sigmoid") if i % 2 else ("relu", "hardsigmoid")
        given = tensors(shape, squeezed, i % 3 > 0)
        (grid, sizes) = _excite.cut(shape, 1 + 5 * (i % 2))
        rows, channels, chunks, chunk, beside = sizes
        y, partial = torch.empty_like(given[0]), torch.full((grid[0] * grid[1] * squeezed,), float("nan"))
        all_sizes = torch.tensor([rows, channels, squeezed, chunks, chunk, beside, int(gate == "hardsigmoid")])
        on_cpu(word).both(*map(ctypes.c_longlong, grid), *(ctypes.c_void_p(0 if t is None else t.data_ptr()) for t in (
            *given, y, partial, all_sizes)))
        right = exact(given, word, gate)
        assert not partial.isnan().any()
        assert ((y.double() - right).abs() <= right.abs() * 2 ** -8 + 2e-5).all(), (shape, (y.double() - right).abs().max())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_excited_channels_on_the_device(dtype):
    for i, (shape, squeezed) in enumerate([*SHAPES, ((32, 144, 65, 65), 6), ((32, 32, 130, 130), 8), ((32, 1248, 9, 9), 52)]):
        torch.manual_seed(i)
        word, gate = ("silu", "sigmoid") if i % 2 else ("relu", "hardsigmoid")
        given = tensors(shape, squeezed, i % 3 > 0, "cuda", dtype)
        right = exact(given, word, gate)
        for _ in range(2):
            y = ops.excite(*given, word, gate)
            assert ((y.double() - right).abs() <= right.abs() * (2 ** -8 if dtype is torch.bfloat16 else 2 ** -11) + 2e-5).all(), shape


class Excited(nn.Module):
    def __init__(self, gate=torch.sigmoid, c=16, s=4):
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(c, s, 1), nn.Conv2d(s, c, 1), gate

    def forward(self, x):
        return x * self.gate(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Torchvisions(Excited):
    def forward(self, x):
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Reread(Excited):
    """Its squeezed channels are also returned."""

    def forward(self, x):
        hidden = F.silu(self.down(x.mean((2, 3), keepdim=True)))
        return x * self.gate(self.up(hidden)), hidden


class Computed(Excited):
    """Its weights are."""

    def forward(self, x):
        hidden = F.silu(F.conv2d(x.mean((2, 3), keepdim=True), self.down.weight * 2))
        return x * self.gate(self.up(hidden))


class InTurn(Excited):
    """As torchvision has it, the gate first."""

    def forward(self, x):
        return torch.mul(self.gate(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True))))), x)


class OfAnother(Excited):
    """What is scaled is not what the mean is of."""

    def forward(self, x):
        return (x + 1) * self.gate(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class InPlace(Excited):
    def forward(self, x):
        y = x + 1
        y *= self.gate(self.up(F.silu(self.down(y.mean((2, 3), keepdim=True)))))
        return y


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        y = F.silu(self.norm(x))
        return self.norm(y) + y


def compiled(model, x):
    """The result, and what of faltung's is in the graph."""
    seen = []

    def look(graph, example_inputs):
        _islands.replace(graph, _backend._value, _backend._is_given, False, ("cpu", "cuda"))
        graph.recompile()
        seen.extend(node.target for node in graph.graph.nodes if "faltung" in str(node.target))
        return graph.forward
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(model, backend=look, fullgraph=True)(x), seen


@pytest.mark.parametrize("make,wanted", [
    (Excited, ["excite"]), (lambda: Excited(F.hardsigmoid), ["excite"]), (Torchvisions, ["excite"]), (InTurn, ["excite"]),
    (Reread, ["average"]), (OfAnother, ["average"]), (InPlace, ["average"]), (Computed, ["average"]),
    (lambda: Excited(torch.tanh), ["average"]), (Normed, ["group_norm"] * 2)], ids=str)
def test_where_they_are_put(make, wanted):
    torch.manual_seed(1)
    model = make().bfloat16()
    x = torch.randn(2, 16, 6, 5).bfloat16().contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        right = model(x)
    y, seen = compiled(model, x)
    assert seen == [getattr(ops, name).default for name in wanted]
    for ours, theirs in zip(y if isinstance(y, tuple) else [y], right if isinstance(right, tuple) else [right]):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    assert compiled(model.float(), x.float())[1] == []


class Attended(nn.Module):
    """Of one head in three dimensions, or several in four, of queries of one part of x and keys of another."""

    def __init__(self, depth=264, heads=(), **how):
        super().__init__()
        self.depth, self.heads, self.how = depth, heads, how

    def forward(self, x):
        q, k, v = x[..., :3 * math.prod((*self.heads, self.depth))].unflatten(-1, (3, *self.heads, self.depth)).unbind(2)
        if self.heads:
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q[..., :5, :], k, v, **self.how)


@pytest.mark.parametrize("make,is_put", [
    (Attended, True), (lambda: Attended(heads=(2,)), True), (lambda: Attended(scale=0.3), True), (lambda: Attended(256), False),
    (lambda: Attended(260), False), (lambda: Attended(is_causal=True), False), (lambda: Attended(attn_mask=torch.ones(5, 9).bool()), False),
    (lambda: Attended(dropout_p=0.1), False)], ids=str)
def test_attention(make, is_put, monkeypatch):
    torch.manual_seed(1)
    model, x = make(), torch.randn(2, 9, 3 * 2 * 264).bfloat16()
    y, seen = compiled(model, x)
    assert seen == [ops.scores.default] * is_put
    if is_put:  # in bf16 the shares are rounded, and so is the result
        exact = model(x.double())
        assert ((y.double() - exact).abs() <= 2 ** -8 * (exact.abs() + 2)).all(), (y.double() - exact).abs().max()
        monkeypatch.setattr(_attention, "MOST_BYTES", 4 * 2 * 5 * 9 - 1)
        assert compiled(model, x)[1] == []
    assert compiled(model, x.float())[1] == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_attention_on_the_device(dtype):
    torch.manual_seed(1)
    for spread in (1.0, 4.0):  # all keys count, a few do
        q, k, v = (torch.randn(1, 2, n, 512, device="cuda").mul_(s).to(dtype) for n, s in ((300, spread), (1000, spread), (1000, 1.0)))
        exact = torch.softmax(q.double() @ k.double().mT * 512 ** -0.5, -1) @ v.double()
        ours, theirs = ((f(q, k, v, 512 ** -0.5).double() - exact).abs().max() for f in (_attention.by_products, _attention.by_pytorch))
        assert ours <= 2 * theirs + 1e-4, (ours, theirs)


def test_they_are_operators_like_any_other():
    torch.manual_seed(1)
    given = tensors((2, 16, 5, 4), 4)
    torch.library.opcheck(ops.excite.default, (*given, "silu", "sigmoid"))
    x, weight = given[0], torch.rand(16).bfloat16()
    for keepdim in (True, False):
        torch.library.opcheck(ops.average.default, (x, keepdim))
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.library.opcheck(ops.group_norm.default, (x.contiguous(memory_format=layout), 4, weight, None, 1e-5, "silu"))
    torch.library.opcheck(ops.scores.default, (torch.rand(2, 3, 8).bfloat16(), torch.rand(2, 4, 8).bfloat16()))
    leaf = x.float().requires_grad_()
    wanted = torch.autograd.grad(F.silu(F.group_norm(leaf, 4)).sum(), leaf)[0]
    assert torch.equal(torch.autograd.grad(ops.group_norm(leaf, 4, None, None, 1e-5, "silu").sum(), leaf)[0], wanted)


@torch.no_grad()
def test_what_is_faster_is_measured():
    from faltung.torch import _choice
    _choice._known.clear()
    given = tensors((2, 16, 5, 4), 4)
    assert _choice.is_faster("excite", (*given, "silu", "sigmoid")) in (True, False)
    assert _choice.is_faster("group_norm", (given[0], 4, torch.rand(16), None, 1e-5, "silu")) in (True, False)
    assert _choice.is_faster("average", (given[0], True)) in (True, False)
    assert _choice.is_faster_attention(*(torch.rand(1, n, 264).bfloat16() for n in (3, 5, 5)), 0.1) in (True, False)
    assert len(_choice._known) == 4
