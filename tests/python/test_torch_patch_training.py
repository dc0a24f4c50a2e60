"""Patched models in training: gradients, autocast, batch norm's statistics, passes by either library."""
import copy

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import faltung.torch as ft  # noqa: E402
from residual import ALWAYS, DEVICES, before_of, block, close  # noqa: E402


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


def rounded(t):
    """PyTorch's integers are off by some 1e-6 where cuDNN takes a fast transform, and so are those of passes that are PyTorch's."""
    torch.testing.assert_close(t, t.round(), rtol=0, atol=1e-4)
    return t.round()


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
    exact = (lambda t: t) if ours == (0, 1, 2) else rounded
    for a, b, right in zip(*results):
        assert torch.equal(exact(a), rounded(right)) and torch.equal(exact(b), rounded(right))
    late = []  # a weight that changes before the backward pass: what was made of it is what counts
    for function in (passes.trained, lambda x, w, b: F.conv2d(x, w, b, padding=1)):
        leaves = [x.to(dtype).requires_grad_(), w.clone().requires_grad_()]
        with torch.autocast(device, torch.bfloat16):
            y = function(*leaves, None)
        with torch.no_grad():
            leaves[1].add_(1)
        first = torch.autograd.grad(y, leaves, dy.to(y.dtype), create_graph=True)
        late.append((*first, *torch.autograd.grad((first[0] * ddx).sum() + (first[1] * ddw).sum(), leaves)))
    assert all(torch.equal(exact(a), rounded(right)) for a, right in zip(*late))


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
