"""Which group norms patch gives to the kernels, with which activation, and that all else stays PyTorch's; a stand-in computes on the CPU
what the kernels compute on CUDA."""
import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import faltung.torch as ft  # noqa: E402
from faltung.torch import _group, _groups, _patch  # noqa: E402
from faltung.torch._activations import activation_of  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.half if torch.cuda.is_available() else torch.float
ALWAYS = dict(at_least=0.0, min_time=1.0)


@pytest.fixture
def words(monkeypatch):
    """Of the calls that kernels, or what stands for them, compute."""
    seen, computed = [], _group.computed

    def by_pytorch(norm, x, word, last):
        if torch.compiler.is_compiling() or (
                torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, norm.weight, norm.bias))):
            return None
        return activation_of(word)(F.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)).to(
            memory_format=torch.channels_last if last and not x.is_contiguous() else torch.contiguous_format)

    def noted(norm, x, word, last):
        y = (computed if DEVICE == "cuda" else by_pytorch)(norm, x, word, last)
        if y is not None:
            seen.append(word)
        return y
    monkeypatch.setattr(_group, "computed", noted)
    if DEVICE == "cpu":
        monkeypatch.setattr(_groups, "DEVICES", ("cpu",))
        monkeypatch.setattr(_groups, "DTYPES", (torch.float,))
    return seen


class Residual(nn.Module):
    """A function behind each norm, and an addition that a convolution does."""

    def __init__(self, c):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, c), nn.Conv2d(c, c, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, c), nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class Plain(nn.Module):
    """Without an addition: a function behind one norm, two readers of another, a module that two share."""

    def __init__(self, c):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.GroupNorm(2, c, affine=i != 0) for i in range(4))
        self.conv, self.act = nn.Conv2d(c, c, 1), nn.SiLU()

    def forward(self, x):
        x = torch.relu(self.a(self.conv(x)))
        y = self.b(x)
        return self.act(self.d(self.act(self.c(F.silu(y) * y))))


def network(last=True, kind=lambda: nn.Sequential(Residual(16), Plain(16), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 8, 1),
                                                  nn.GroupNorm(1, 8), nn.GELU())):
    torch.manual_seed(2)
    model, x = kind().eval().to(DEVICE, DTYPE), torch.randn(2, 16, 12, 8, device=DEVICE, dtype=DTYPE)
    with torch.no_grad():
        for norm in (m for m in model.modules() if isinstance(m, nn.GroupNorm) and m.affine):
            norm.weight.uniform_(0.5, 2), norm.bias.uniform_(-1, 1)
    return (model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)) if last else (model, x)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-2 if DTYPE is torch.half else 1e-4, atol=2e-2 if DTYPE is torch.half else 1e-4)


ALL = ["silu", "silu", "relu", "", "silu", "silu", "silu", ""]


@pytest.mark.parametrize("last", [True, False])
@torch.no_grad()
def test_norms_take_the_activation_that_alone_follows(words, last):
    model, x = network(last)
    before = model(x)
    patched = ft.patch(model, x, **ALWAYS)
    assert {row.name: row.fused for row in patched.norms} == {
        "0.norm1": "norm+silu", "0.norm2": "norm+silu", "1.a": "norm+relu", "1.b": "norm", "1.c": "norm+silu", "1.d": "norm+silu",
        "2": "norm+silu", "5": "norm"}
    assert all(row.kept and row.ms > 0 and row.torch_ms > 0 and row.error < 2e-3 for row in patched.norms)
    assert [row.name for row in patched.rows] == ["0.conv1", "0.conv2", "1.conv", "4"]
    assert "8 of 8 group norms" in patched.report() and "4 of 4 convolutions" in patched.report()
    words.clear()
    close(model(x), before)
    assert words == ALL
    close(model(x[:1, :, :8]), plain(model)(x[:1, :, :8]))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        words.clear()
        close(other(x), before)
        assert words == ALL
    patched.undo()
    assert torch.equal(model(x), before) and not any("forward" in m.__dict__ for m in model.modules())


def plain(model):
    model = copy.deepcopy(model)
    for module in model.modules():
        module.__dict__.pop("forward", None)
    return model


def test_gradients_and_compilation_are_pytorchs(words):
    model, x = network(DEVICE == "cuda")  # PyTorch 2.11's gradients on the CPU end the process with channels-last tensors here
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), plain(model)(x))
    words.clear()
    other = plain(model)
    for m in (model, other):
        m(x).float().square().mean().backward()
    assert not words
    for (name, a), b in zip(model.named_parameters(), other.named_parameters()):
        close(a.grad, b[1].grad)


@torch.no_grad()
def test_what_changes_later_is_seen(words):
    model, x = network()
    ft.patch(model, x, **ALWAYS)
    model[0].norm1.weight.mul_(2), model[0].norm2.bias.add_(1)
    model[2].eps, model[0].norm1.num_groups = 0.5, 8
    close(model(x), plain(model)(x))
    seen = []
    model[0].norm1.register_forward_hook(lambda module, inputs, y: seen.append(y.min().item()))
    words.clear()
    close(model(x), plain(model)(x))
    assert len(seen) == 2 and seen[0] < -0.5 and words == ["", ""] + ALL[2:]  # the block's own forward: what a hook sees is no activation's


@torch.no_grad()
def test_a_model_that_views_its_norms_results(words):
    """PyTorch's are contiguous on CUDA, whatever they are made of; ours are not, and the model says no."""
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.conv = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 1)

        def forward(self, x):
            y = self.norm(x) if "forward" in self.norm.__dict__ else self.norm(x).contiguous()  # as on CUDA
            return self.conv(y.view(2, -1).view(2, 16, 12, 8))
    model, x = network(kind=Views)
    before = model(x)
    patched = ft.patch(model, x, **ALWAYS)
    assert "does not run with it: view size" in patched.norms[0].why and patched.rows[0].kept
    close(model(x), before)
    model, x = network(False, kind=Views)
    patched = ft.patch(model, x, **ALWAYS)
    assert patched.norms[0].kept
    close(model(x.to(memory_format=torch.channels_last)), model(x)) if DEVICE == "cuda" else None


@torch.no_grad()
def test_what_is_refused(words):
    class Other(nn.GroupNorm):
        pass
    norms = Other(4, 16), nn.GroupNorm(4, 16), nn.GroupNorm(4, 16), nn.GroupNorm(2, 16)
    norms[1].register_forward_hook(lambda *arguments: None)
    nn.utils.parametrizations.weight_norm(norms[2], dim=None)
    model, x = network(kind=lambda: nn.Sequential(*norms, nn.Identity(), nn.Conv2d(16, 8, 1)))
    model[3].forward = norms[3].forward
    patched = ft.patch(model, x, **ALWAYS)
    assert [row.why.split(":")[0].split(",")[0] for row in patched.norms] == [
        "it is a Other", "it has hooks", "it is a ParametrizedGroupNorm", "its forward was replaced already"]


@pytest.mark.parametrize("times,kept", [([5, 4, 3, 2], True), ([5, 3, 2, 4], True), ([1, 4, 3, 2], False)])
@torch.no_grad()
def test_the_whole_model_decides(words, monkeypatch, times, kept):
    """Times: of PyTorch alone, then with norms alone, with convolutions, with both."""
    monkeypatch.setattr(_patch, "SHARES", (0.0, 1.0))

    def time_whole(model, example, candidates, device, min_ms):
        counts = []
        for put in candidates:
            put()
            counts.append(sum("forward" in m.__dict__ for m in model.modules() if isinstance(m, (nn.Conv2d, nn.GroupNorm))))
        assert counts == [0, 2, 2, 4]
        return times
    monkeypatch.setattr(_patch, "time_whole", time_whole)
    model, x = network(kind=lambda: Residual(16))
    patched = ft.patch(model, x, at_least=1e-9, min_time=1.0)
    best = times.index(min(times))
    assert [row.kept for row in patched.norms] == [best in (1, 3)] * 2 and [row.kept for row in patched.rows] == [best > 1] * 2
    assert kept == any("forward" in m.__dict__ for m in model.modules())
    patched.undo()
    assert not any("forward" in m.__dict__ for m in model.modules())


@pytest.mark.skipif(DEVICE == "cpu", reason="there is no GPU")
@torch.no_grad()
def test_what_kernels_do_not_compute_is_pytorchs(words):
    model, x = network()
    ft.patch(model, x, **ALWAYS)
    words.clear()
    with torch.autocast("cuda", torch.bfloat16):
        assert model[5](model[4](x)).dtype is torch.float32
    model.float()(x.float())
    assert not words
    model.half()
    graph, y = torch.cuda.CUDAGraph(), model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = model(x)
    graph.replay()
    assert torch.equal(captured, y) and words == ALL * 2
