"""patch(model, example): what is replaced, that results stay right in every mode, what is refused, and that undo is whole; and the
torch.compile backend."""
import copy
import importlib.metadata
import io
import math
import os
import pickle
import time
import types

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import faltung.torch as ft  # noqa: E402

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


@pytest.mark.parametrize("device", DEVICES)
def test_layers_are_fused_where_nothing_else_reads(device):
    model, x = block(device)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        rows = {row.name: row for row in patched.rows}
        assert {name: row.fused for name, row in rows.items()} == {
            "stem.0": "conv+bn+silu", "first": "conv+bn+relu", "second": "conv+add+relu"}
        assert all(row.kept and row.kernel and row.ms > 0 and row.torch_ms > 0 and row.error < 1e-5 for row in patched.rows)
        assert "stem.0" in str(patched) and "3 of 3" in str(patched)
        close(model(x), before)
        close(model(x[:1, :, :7]), before_of(model, patched, x[:1, :, :7]))
        patched.undo()
        assert torch.equal(model(x), before) and not any("forward" in m.__dict__ for m in model.modules())


def test_activations_in_place():
    """What reads the tensor after one reads what it left; what read it before keeps it from being fused."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
            self.norm, self.first, self.second, self.third = nn.BatchNorm2d(4), *(nn.ReLU(inplace=True) for _ in range(3))

        def forward(self, x):
            x = self.first(self.norm(self.a(x)))
            y = self.b(x)
            early = y.clone()
            y = self.second(y)
            return self.third(self.c(y)) + early + y + x
    torch.manual_seed(3)
    model, x = Model().eval(), torch.randn(1, 4, 9, 8)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert {row.name: row.fused for row in patched.rows} == {"a": "conv+bn+relu", "b": "conv", "c": "conv+relu"}
        close(model(x), before)
    assert patched.difference < 1e-5 and "differs from PyTorch's" in patched.report()


@pytest.mark.parametrize("kind", [nn.ReLU, nn.SiLU])
def test_an_activation_that_layers_share(kind):
    """It is done once for each, whoever does it, in every mode."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
            self.act = kind()

        def forward(self, x):
            y = self.act(self.a(x))
            z = self.act(self.act(self.b(y)))
            return self.act(self.c(z) + y)
    torch.manual_seed(3)
    model, x = Model().eval(), torch.randn(1, 4, 9, 8)
    word = "relu" if kind is nn.ReLU else "silu"
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert {row.name: row.fused for row in patched.rows} == {"a": f"conv+{word}", "b": f"conv+{word}", "c": f"conv+add+{word}"}
        for _ in range(2):
            close(model(x), before)
        close(copy.deepcopy(model)(x), before)
        close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), before)
    close(model(x), before)  # with gradients
    patched.undo()
    assert torch.equal(model(x), before)


def test_what_overflows_is_said():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)).eval().bfloat16()
    with torch.no_grad():
        model[0].weight.fill_(1)
        model[1].weight.fill_(3e38)
        patched = ft.patch(model, torch.ones(1, 4, 9, 9, dtype=torch.bfloat16), **ALWAYS)
    assert patched.overflows_in == "1" and patched.difference is None and "not finite from 1 on" in patched.report()


@pytest.mark.parametrize("kinds", [(nn.Conv1d, nn.BatchNorm1d, 1), (nn.Conv3d, nn.BatchNorm3d, 3), (nn.ConvTranspose1d, nn.BatchNorm1d, 1),
                                   (nn.ConvTranspose2d, nn.BatchNorm2d, 2), (nn.ConvTranspose3d, nn.BatchNorm3d, 3)], ids=str)
def test_other_convolutions_are_fused(kinds):
    conv, norm, dimensions = kinds
    torch.manual_seed(4)
    model = nn.Sequential(conv(4, 8, 3, stride=2, padding=1), norm(8), nn.SiLU(), conv(8, 6, 2, groups=2), nn.ReLU())
    x = torch.randn(2, 4, *[7] * dimensions)
    model(x)  # moves the statistics
    model.eval()
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert [row.fused for row in patched.rows] == ["conv+bn+silu", "conv+relu"]
        close(model(x), before)
        if "Transpose" in conv.__name__:
            patched.undo()
            right = conv.forward(model[0], x, output_size=[14] * dimensions)
            ft.patch(model[:1], x, **ALWAYS)
            close(model[0](x, output_size=[14] * dimensions), right)


def before_of(model, patched, x):
    """What the model computes without faltung."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        module.__dict__.pop("forward", None)
    return plain(x)


def test_weights_that_change_are_read_again():
    model, x = block()
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        first = model(x)
        model.first.weight.mul_(2)
        model.norm.running_mean.add_(1)
        second = model(x)
        assert not torch.allclose(first, second)
        close(second, before_of(model, None, x))
        model.load_state_dict({k: v + 0.25 if v.is_floating_point() else v for k, v in model.state_dict().items()})
        close(model(x), before_of(model, None, x))


def test_training_after_patching_is_right():
    """Batch norm in training mode, gradients of everything; the running statistics move as they should."""
    model, x = block()
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
    for training in (True, False):
        plain = copy.deepcopy(model)
        for module in plain.modules():
            module.__dict__.pop("forward", None)
        for m in (model, plain):
            m.train(training)
            m.zero_grad()
            (m(x) ** 2).sum().backward()
        for (name, ours), theirs in zip(model.named_parameters(), plain.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-3, msg=name)
        for ours, theirs in zip(model.buffers(), plain.buffers()):
            close(ours, theirs)


def test_a_model_in_training_is_timed_with_its_gradients():
    model, x = block()
    model.train()
    state, seed = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    patched = ft.patch(model, x, **ALWAYS)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values()))
    assert torch.equal(seed, torch.random.get_rng_state())
    assert {row.fused for row in patched.rows} == {"conv"} and all(row.ms > 0 for row in patched.rows)
    model(x).sum().backward()
    assert model.first.weight.grad is not None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ours", [(), (0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)], ids=str)
def test_passes_by_either_library(ours, device):
    """Exact on small integers, the gradients of the gradients too; also where something looks at the call."""
    from faltung.torch._passes import Passes
    generator = torch.Generator().manual_seed(7)
    x, w, b, dy, ddx, ddw = (torch.randint(-2, 3, shape, generator=generator).float().to(device) for shape in (
        (2, 4, 9, 8), (6, 2, 3, 3), (6,), (2, 6, 5, 4), (2, 4, 9, 8), (6, 2, 3, 3)))
    layer = ft._patch.Layer(nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2).to(device))
    passes = Passes(layer.family, layer.geometry, ours)
    results = []
    for function in (passes, lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 2)):
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        y = function(*leaves)
        first = torch.autograd.grad(y, leaves, dy, create_graph=True)
        results.append((y, *first, *torch.autograd.grad((first[0] * ddx).sum() + (first[1] * ddw).sum(), leaves[:2])))
    for a, right in zip(*results):
        assert torch.equal(a, right)
    with torch.autocast(device, torch.bfloat16):
        y = passes(x.requires_grad_(), w, b)
    assert y.dtype == torch.bfloat16 and y.requires_grad


def test_autocast():
    """Layers whose input and weights differ in dtype are faltung's, too."""
    model, x = block()
    plain = copy.deepcopy(model).train()
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        patched = ft.patch(model, x, **ALWAYS)
        assert all(row.kept and ":bf16" in row.problem for row in patched.rows), patched.report()
        y, right = model(x), plain(x)
    torch.testing.assert_close(y, right, rtol=0.05, atol=0.05)
    y.float().sum().backward()
    assert model.first.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ours", [(0,), (1, 2), (0, 1, 2)], ids=str)
def test_what_autocast_converts_has_its_gradients(ours, dtype, device):
    """Exact on small integers, the gradients of the gradients too, in the dtypes that were given."""
    from faltung.torch._passes import Passes
    generator = torch.Generator().manual_seed(8)
    x, w, b, dy, ddx, ddw = (torch.randint(-2, 3, shape, generator=generator).float().to(device) for shape in (
        (1, 2, 5, 6), (3, 2, 3, 3), (3,), (1, 3, 5, 6), (1, 2, 5, 6), (3, 2, 3, 3)))
    layer = ft._patch.Layer(nn.Conv2d(2, 3, 3, padding=1).to(device))
    passes, results = Passes(layer.family, layer.geometry, ours), []
    for function in (passes.trained, passes, lambda x, w, b: F.conv2d(x, w, b, padding=1)):
        leaves = [x.to(dtype).requires_grad_(), w.clone().requires_grad_(), b.clone().requires_grad_()]
        with torch.autocast(device, torch.bfloat16):
            y = function(*leaves)
        assert y.dtype is torch.bfloat16
        first = torch.autograd.grad(y, leaves, dy.to(y.dtype), create_graph=True)
        second = torch.autograd.grad((first[0] * ddx).sum() + (first[1] * ddw).sum(), leaves[:2])
        assert [g.dtype for g in (*first, *second)] == [t.dtype for t in (*leaves, *leaves[:2])]
        results.append((y, *first, *second))
    for a, b, right in zip(*results):
        assert torch.equal(a, right) and torch.equal(b, right)
    late = []  # a weight that changes before the backward pass: what was made of it is what counts
    for function in (passes.trained, lambda x, w, b: F.conv2d(x, w, b, padding=1)):
        leaves = [x.to(dtype).requires_grad_(), w.clone().requires_grad_()]
        with torch.autocast(device, torch.bfloat16):
            y = function(*leaves, None)
        with torch.no_grad():
            leaves[1].add_(1)
        first = torch.autograd.grad(y, leaves, dy.to(y.dtype), create_graph=True)
        late.append((*first, *torch.autograd.grad((first[0] * ddx).sum() + (first[1] * ddw).sum(), leaves)))
    assert all(map(torch.equal, *late))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("autocast", [False, True])
def test_batch_norm_in_training_is_torchs(momentum, autocast):
    """What is kept of the batches, too; where it is fixed later, it is folded; a single value a channel is refused in its words."""
    model, x = block()
    for norm in (model.stem[1], model.norm):
        norm.momentum = momentum
    plain = copy.deepcopy(model.train()).train()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        patched = ft.patch(model, x, **ALWAYS)
        assert [row.fused for row in patched.rows] == ["conv"] * 3
        assert all("forward" in norm.__dict__ for norm in (model.stem[1], model.norm, model.stem[2]))
        bound = 0.05 if autocast else 1e-4
        for step in range(3):
            ours, theirs = model(x + step), plain(x + step)
            torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound)
            for m, y in ((model, ours), (plain, theirs)):
                m.zero_grad()
                y.float().square().sum().backward()
            largest = max(p.grad.abs().max().item() for p in plain.parameters())  # a bias before batch norm has none but rounding's
            for (name, p), q in zip(model.named_parameters(), plain.parameters()):
                torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=bound * largest, msg=name)
        for (name, a), b in zip(model.named_buffers(), plain.buffers()):
            torch.testing.assert_close(a, b, rtol=bound, atol=bound, msg=name)
        assert model.norm.num_batches_tracked == 3
    model.norm(torch.ones(2, 8, 1, 1))
    alone = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    ft.patch(alone, x, **ALWAYS)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        alone(x[:1, :, :1, :1])
    with torch.no_grad():
        close(model.eval()(x), before_of(plain.eval(), None, x)) if not autocast else None
    patched.undo()
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_statistics_that_are_not_tracked_stay():
    model, x = block()
    model.train()
    for norm in (model.stem[1], model.norm):
        norm.track_running_stats = False
    plain = copy.deepcopy(model)
    ft.patch(model, x, **ALWAYS)
    close(model(x), plain(x))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), plain.buffers()))


def test_what_batch_norm_learned_of_new_data_is_folded():
    """PyTorch counts no change of its statistics, and no weight has one here."""
    model, x = block()
    plain = copy.deepcopy(model.eval()).eval()
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        for step in range(2):
            close(model.eval()(x), plain.eval()(x))
            model.train()(3 * x + step), plain.train()(3 * x + step)
        close(model.eval()(x), plain.eval()(x))


def test_autocast_without_gradients_is_fused():
    model, x = block()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert [row.fused for row in patched.rows] == ["conv+bn+silu", "conv+bn+relu", "conv+add+relu"], patched.report()
        assert all(":bf16" in row.problem and row.error < 0.02 for row in patched.rows)
        for _ in range(2):
            y = model(x)
            assert y.dtype == before.dtype
            torch.testing.assert_close(y, before, rtol=0.05, atol=0.05)
        torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), before, rtol=0.05, atol=0.05)


def test_pickles_copies_state():
    model, x = block()
    names = list(model.state_dict())
    with torch.no_grad():
        ft.patch(model, x, **ALWAYS)
        expected = model(x)
        assert list(model.state_dict()) == names
        assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
        assert torch.equal(copy.deepcopy(model)(x), expected)
        memory = io.BytesIO()
        torch.save(model, memory)
        memory.seek(0)
        assert torch.equal(torch.load(memory, weights_only=False)(x), expected)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if torch.allclose(model(x), expected) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(model(x).float(), expected, rtol=0.1, atol=0.1)
    with torch.inference_mode():
        close(model(x), expected)
    double = model.double()
    assert double(x.double()).dtype == torch.float64


def test_what_is_refused_is_said_and_left_alone():
    class Reused(nn.Module):
        def __init__(self):
            super().__init__()
            self.reused, self.unused = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3)
            self.reflect = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")
            self.hooked, self.normal = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
            self.transposed = nn.ConvTranspose2d(3, 3, 3)
            self.lazy = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 1))
            self.norm, self.act = nn.BatchNorm2d(3), nn.ReLU()

        def forward(self, x):
            x = self.transposed(self.hooked(self.reflect(self.reused(self.reused(x)))))
            y = self.normal(self.lazy(x))
            return self.act(self.norm(y)) + y  # two readers of y

    torch.manual_seed(2)
    model, x = Reused().eval(), torch.randn(1, 3, 9, 9)
    model.hooked.register_forward_hook(lambda *_: None)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        why = {row.name: row.why for row in patched.rows}
        assert "2 times" in why["reused"] and "did not run" in why["unused"] and "reflect" in why["reflect"]
        assert "hooks" in why["hooked"] and "parametriz" in why["lazy"].lower()
        assert [row.fused for row in patched.rows if row.kept] == ["conv", "conv"] and not why["normal"] and not why["transposed"]
        close(model(x), before)
        slow = ft.patch(block()[0], block()[1], at_least=1e9, min_time=1.0)
        assert not any(row.kept for row in slow.rows) and "speed" in slow.rows[0].why + slow.rows[1].why or "faster" in slow.report()
        model.double()
        assert all(row.why for row in ft.patch(model, x.double(), **ALWAYS).rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [False, True])
def test_channels_last_by_patch(training, device):
    """The weights' order, and from the first convolution on that of all results; undone with the rest, to the bit."""
    model, x = block(device)
    model.train(training)
    state = copy.deepcopy(model.state_dict())
    with torch.set_grad_enabled(training):
        before = copy.deepcopy(model)(x)
        patched = ft.patch(model, x, memory_format=torch.channels_last, **ALWAYS)
        y = model(x)
        assert y.is_contiguous(memory_format=torch.channels_last) and ":nhwc" in patched.rows[0].problem
        close(y, before)
        assert all(torch.equal(a, b) for (name, a), b in zip(model.state_dict().items(), state.values()) if "running" not in name
                   and "batches" not in name)
        patched.undo()
        model.load_state_dict(state)
        assert {k: v.stride() for k, v in model.state_dict().items()} == {k: v.stride() for k, v in state.items()}
        assert torch.equal(model(x), before)
    for wrong, words in ((torch.contiguous_format, "memory_format"), ("nhwc", "memory_format")):
        with pytest.raises(ValueError, match=words):
            ft.patch(model, x, memory_format=wrong)


@torch.no_grad()
def test_a_model_that_needs_its_order_keeps_it():
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3)

        def forward(self, x):
            return self.conv(x).view(len(x), -1)
    model, x = Views(), torch.randn(2, 4, 9, 9)
    strides, before = model.conv.weight.stride(), model(x)
    with pytest.raises(RuntimeError, match="view"):
        ft.patch(model, x, memory_format=torch.channels_last, **ALWAYS)
    assert model.conv.weight.stride() == strides and torch.equal(model(x), before)


@torch.no_grad()
def test_patched_layers_refuse_and_pass_on_as_torchs():
    """Other devices, layouts, dtypes and sizes."""
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    model, x = copy.deepcopy(plain), torch.randn(2, 3, 8, 8)
    ft.patch(model, x, **ALWAYS)
    close(model(x), plain(x))
    for given in (x[:0], x[:1].expand(2, 3, 8, 8), x[..., ::2], x.transpose(2, 3)):
        close(model(given), plain(given))
    for given in (x.double(), x.cfloat(), x.int(), x.to_sparse(), x[:, :2], x[..., :2], torch.ones(1, 3, 0, 8)):
        with pytest.raises((RuntimeError, ValueError)):
            plain(given)
        with pytest.raises((RuntimeError, ValueError)):
            model(given)
    double = copy.deepcopy(model).double()
    close(double(x.double()), copy.deepcopy(plain).double()(x.double()))
    assert copy.deepcopy(model).to("meta")(x.to("meta")).shape == (2, 4, 6, 6)


@torch.no_grad()
def test_layers_are_timed_as_in_the_model(monkeypatch):
    """As many bytes as all parameters have pass through the CPU's caches between two runs; blocks are timed without them."""
    from faltung.torch import _time
    (model, x), asked, passed = block(), [], []

    def time_in_turn(functions, device, min_ms, between):
        asked.append(between)
        return _time.time_in_turn(functions, device, min_ms, between)
    monkeypatch.setattr(ft._patch, "time_in_turn", time_in_turn)
    monkeypatch.setattr(_time.torch, "ones", lambda count: passed.append(count) or torch.zeros(count))
    ft.patch(model, x, **ALWAYS)
    assert asked == [sum(4 * p.numel() for p in model.parameters())] * 3 and passed == [asked[0] // 4] * 3
    slow, quick = _time.time_in_turn([lambda: time.sleep(0.01), lambda: None], x.device, 1.0, 1 << 20)
    assert slow > 9 > quick


def test_long_passes_are_timed_a_few_times(monkeypatch):
    """On CUDA, whose events a clock stands in for here: without a graph, in the least rounds; what is short in all of them, in one."""
    from faltung.torch import _time
    clock, calls, in_graphs = [0.0], [], []

    class Event:
        def __init__(self, enable_timing):
            pass

        def record(self):
            self.at = clock[0]

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return 1e3 * (end.at - self.at)

    def function(seconds):
        def run():
            calls.append(seconds)
            clock[0] += seconds
        return run
    long, short = function(0.02), function(1e-5)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(_time, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(_time, "captured", lambda f: in_graphs.append(f) or (f, 1))
    times = _time.time_in_turn([long, short], torch.device("cuda"), 1.0)
    assert times == pytest.approx([20.0, 0.01]) and in_graphs == [short]
    assert calls.count(0.02) <= 4 + _time.LEAST_ROUNDS < _time.ROUNDS
    calls.clear()
    _time.time_in_turn([short, short], torch.device("cuda"), 1.0)
    assert len(calls) > 2 * _time.ROUNDS * 10


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_timed_where_autograd_computes_them(device, monkeypatch):
    from faltung.torch._passes import FORWARD, PASSES, Passes
    from faltung._geometry import Family
    passes, tasks = Passes(Family(2, False), ((1, 1), (1, 1), (1, 1), 1)), {}
    x, w = torch.randn(1, 3, 6, 6, device=device), torch.randn(4, 3, 3, 3, device=device)
    gradients, forward = passes.gradients, passes.forward

    def noted(which, function):
        def call(*arguments):
            tasks.setdefault(which, set()).add(torch._C._current_graph_task_id())  # -1: of no backward pass
            return function(*arguments)
        return call
    with torch.no_grad():
        for which in PASSES:
            monkeypatch.setattr(passes, "gradients", noted(which, gradients))
            monkeypatch.setattr(passes, "forward", noted(FORWARD, forward))
            assert all(0 < ms < 1e4 for ms in passes.time(which, x, w, 0.1))
    assert tasks[FORWARD] == {-1} and all(-1 not in tasks[which] for which in PASSES if which != FORWARD)
    with torch.no_grad(), pytest.raises(ZeroDivisionError):
        ft._time.in_backward(lambda: 1 / 0, x.device)


def test_what_patching_took():
    model, x = block()
    with torch.no_grad():
        patched = ft.patch(model, x, **ALWAYS)
    assert len(patched.took) == 3 and all(seconds > 0 for seconds in patched.took.values())
    assert patched.report().splitlines()[-1].startswith(f"Patching took {sum(patched.took.values()):.1f} s: ")


def test_tied_weights():
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)).eval()
    model[2].weight = model[0].weight
    x = torch.randn(1, 4, 8, 8)
    with torch.no_grad():
        before = model(x)
        patched = ft.patch(model, x, **ALWAYS)
        assert all(row.kept for row in patched.rows)
        close(model(x), before)


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


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_plans_are_made_ahead(training, autocast, monkeypatch):
    """All of them at once, before the first is timed."""
    model, x = block()[0], torch.randn(2, 3, 11, 13)  # which no other test has run
    ahead, later = plans_made(monkeypatch)
    with torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ft.patch(model.train(training), x, **ALWAYS)
    assert later == [] and len(ahead) >= (9 if training else 3)


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


def test_which_passes_are_ours():
    from faltung.torch._patch import faster_passes
    fwd, bwd_d, bwd_w = range(3)
    assert faster_passes({fwd: (1.0, 2.0), bwd_d: (1.0, 0.97), bwd_w: (2.0, 1.0)}, 1.0, True) == ({fwd, bwd_d}, "")
    assert faster_passes({fwd: (1.0, 0.97), bwd_w: (2.0, 1.0)}, 1.0, True) == (frozenset(), "PyTorch is faster in every pass")
    little = {fwd: (0.010, 0.011), bwd_w: (0.02, 0.01)}
    assert faster_passes(little, 1.0, False) == ({fwd}, "")
    chosen, why = faster_passes(little, 1.0, True)
    assert not chosen and "less than 50 us" in why
    assert faster_passes({fwd: (0.010, 0.011), bwd_w: (0.01, 0.011)}, 1.0, True) == ({fwd, bwd_w}, "")
    # Of one library, where that saves nearly as much; of both, where it does not, or takes longer than PyTorch.
    assert faster_passes({fwd: (0.10, 0.13), bwd_w: (0.02, 0.01)}, 1.0, True) == ({fwd, bwd_w}, "")
    assert faster_passes({fwd: (0.1, 0.2), bwd_w: (0.1, 0.04)}, 1.0, True) == ({fwd}, "")
    assert faster_passes({fwd: (0.1, 0.16), bwd_w: (0.1, 0.03)}, 1.0, True) == ({fwd}, "")
    assert faster_passes({fwd: (0.1, 0.2), bwd_w: (math.inf, 0.04)}, 1.0, True) == ({fwd}, "")


@torch.no_grad()
def test_a_dropout_stays_before_the_activation():
    """Out of training it returns what it is given, and looks as if it were not there."""
    torch.manual_seed(3)
    model, x = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.Dropout(0.5), torch.nn.SiLU()).eval(), torch.randn(1, 3, 5, 4)
    patched = ft.patch(model, x, at_least=0.0, min_time=1.0)
    model.train()
    torch.manual_seed(4)
    ours = model(x)
    patched.undo()
    torch.manual_seed(4)
    torch.testing.assert_close(ours, model(x), rtol=1e-4, atol=1e-4)
