"""A patched model in training, captured into CUDA graphs: what replays change nothing counts."""
import copy
import types

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import faltung.torch as ft  # noqa: E402
from faltung.torch import _constant, _norm_kernels, _run  # noqa: E402

ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
ALWAYS = dict(at_least=0.0, min_time=1.0)


def model_of(device="cpu"):
    """With a smooth activation: TF32's rounding turns signs, and each that turns moves a gradient behind ReLU by a term of its sum."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.SiLU(), nn.Conv2d(64, 32, 1))
    return (model.to(device).to(memory_format=torch.channels_last),
            torch.randn(8, 16, 12, 12, device=device).to(memory_format=torch.channels_last))


def patched_and_plain(device="cpu"):
    model, x = model_of(device)
    plain = copy.deepcopy(model)
    with torch.no_grad():
        patched = ft.patch(model.eval(), x, **ALWAYS)
        assert all(row.kept for row in patched.rows), patched.report()
        torch.testing.assert_close(model(x), plain.eval()(x), rtol=1e-2, atol=1e-2)  # folds batch norm into the weights
    return model, plain, x


def close(model, plain, x):
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), plain.eval()(x), rtol=1e-2, atol=1e-2)


def test_replays_are_not_counted_as_changes(monkeypatch):
    model, plain, x = patched_and_plain()
    with monkeypatch.context() as capturing:
        capturing.setattr(_run, "is_captured", lambda x: True, raising=False)
        model.train()(x).sum().backward()
    plain.train()(x)
    with torch.no_grad():
        for module in (model, plain):  # as a replay does
            module.eval()(x)
            for parameter in module.parameters():
                parameter.data.mul_(1.5)
            for buffer in module.buffers():
                buffer.data.add_(1)
    close(model, plain, x)


@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("is_folded", [False, True])
def test_weights_rest_that_are_nobody_elses(is_folded, packs, is_captured, monkeypatch):
    """Once the stream was waited for, which a capture would not allow."""
    waits, weight, ones = [], torch.rand(4, 3, 1, 1), torch.ones(4)
    monkeypatch.setattr(_constant, "apart", lambda device, function: function())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_captured)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(synchronize=lambda: waits.append(device)))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: None, raising=False)

    class Plan:
        packed_weights_bytes = 64 * packs

        def pack(self, address, stream):
            return "packed"
    plan = Plan()
    made = _constant.Made(None, None, weight, (None, ones, ones, ones, ones) if is_folded else (None,) * 5, 0.0, None, torch.float32)
    device = types.SimpleNamespace(type="cuda", index=0)
    for _ in range(2):
        dense, packed, rests = made.pack(plan, False, device)
        assert (dense.data_ptr() == weight.data_ptr()) != is_folded and packed == ("packed" if packs else None)
        assert rests == (not is_captured and (packs or is_folded)) and len(waits) == (not is_captured)


@ON_CUDA
def test_a_step_that_is_captured_with_its_optimizer():
    model, plain, x = patched_and_plain("cuda")
    optimizers = [torch.optim.SGD(module.train().parameters(), 0.5) for module in (model, plain)]

    def step(module, optimizer):
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(model, optimizers[0])
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model, optimizers[0])
    step(plain, optimizers[1])
    for _ in range(2):
        graph.replay()
        step(plain, optimizers[1])
        close(model, plain, x)
        model.train(), plain.train()


@ON_CUDA
@pytest.mark.parametrize("autocast,fuses", [(False, False), (True, False), (True, True)])
def test_pytorch_makes_graphs_of_it(autocast, fuses, monkeypatch):
    """By torch.cuda.make_graphed_callables, in training as a user has it; then in evaluation. fuses: batch norm and its activation by
    kernels of our own."""
    model, x = model_of("cuda")
    plain, others = copy.deepcopy(model), torch.randn_like(x)
    own, launched = _norm_kernels.Launches.backward, []
    monkeypatch.setattr(_norm_kernels.Launches, "backward", lambda self, *tensors: launched.append(self) or own(self, *tensors))
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=False):
        patched = ft.patch(model.train(), x, **ALWAYS)
        assert all(row.kept for row in patched.rows), patched.report()
        model[0].forward.fuses = fuses
        with torch.no_grad():  # as warming up does
            for _ in range(3):
                plain(x)
        launched.clear()
        model = torch.cuda.make_graphed_callables(model, (x.clone(),))
        assert (len(launched) >= 4) == fuses  # three times, and captured; once more, where they are tried
        optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in (model, plain)]
        for given in (x, others, x):
            for module, optimizer in zip((model, plain), optimizers):
                optimizer.zero_grad()
                module(given).float().square().mean().backward()
            far = 3e-2 if autocast else 5e-3  # of TF32, or of bf16
            for ours, theirs in zip(model.parameters(), plain.parameters()):
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=far, atol=far * theirs.grad.abs().max().item())
            for optimizer in optimizers:
                optimizer.step()
    for ours, theirs in zip(model.buffers(), plain.buffers()):
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=2e-2, atol=2e-2)
    close(model, plain, x)
