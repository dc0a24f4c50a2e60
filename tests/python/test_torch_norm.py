"""Batch norm in training with its activation: the kernels' arithmetic, run on the CPU, beside PyTorch's in f64; which modules a patched
model gives to them, and what becomes of its gradients; on CUDA the kernels themselves."""
import ctypes
import os
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import cuda_on_cpu  # noqa: E402
import faltung.torch as ft  # noqa: E402
from faltung.torch import _norm_kernels, _patch  # noqa: E402
from faltung.torch._activations import activation_of  # noqa: E402

HOST = """
extern "C" void forward(Int gx, Int gy, Vector* y, const Vector* x, const float* w, const float* b, float* mean, float* variance,
                        Int* batches, float* save, float2* partial, unsigned* counters, Int rows, Int channels, Int chunk, Int across) {
  launch(gx, gy, kThreads, [=] {
    statistics(x, w, b, mean, variance, batches, save, partial, counters, rows, channels, chunk, across, 0.1, 1e-5);
  });
  launch(gx, gy, kThreads, [=] { normalize(x, y, save, rows, channels, chunk, across); });
}
extern "C" void backward(Int gx, Int gy, Vector* dx, float* dw, float* db, const Vector* dy, const Vector* x, const float* save,
                         float* coefficients, float2* partial, unsigned* counters, Int rows, Int channels, Int chunk, Int across) {
  launch(gx, gy, kThreads, [=] { reduce(dy, x, save, dw, db, coefficients, partial, counters, rows, channels, chunk, across); });
  launch(gx, gy, kThreads, [=] { apply(dy, x, dx, save, coefficients, rows, channels, chunk, across); });
}
"""


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return cuda_on_cpu.libraries(tmp_path_factory.mktemp("norm"), "_norm.cu", HOST)


def run(function, grid, tensors, sizes):
    function(*map(ctypes.c_longlong, grid), *(ctypes.c_void_p(t.data_ptr()) for t in tensors), *map(ctypes.c_longlong, sizes))


def far(a, b):
    return ((a.double() - b).abs().max() / b.abs().max()).item()


# Rows that fill chunks and do not, channels of one block and several, vectors that divide its threads and do not.
@pytest.mark.parametrize("word,rows,channels", [("", 130, 64), ("", 64, 352), ("relu", 301, 24), ("relu", 2, 8), ("silu", 77, 144),
                                                ("silu", 1000, 48)])
def test_arithmetic_is_pytorchs(on_cpu, word, rows, channels):
    library = on_cpu(word)
    grid, sizes = _norm_kernels.grid_of(rows, channels, 4)
    torch.manual_seed(rows)
    x = (2 * torch.randn(rows, channels) + 100 * torch.rand(channels)).bfloat16()  # a mean far beyond the deviation
    w, b, mean, variance = (torch.rand(channels) + shift for shift in (0.1, -0.3, 0.0, 0.0))
    leaves = [t.double().requires_grad_() for t in (x, w, b)]
    their_mean, their_variance, batches = mean.double(), variance.double(), torch.zeros((), dtype=torch.int64)
    z = torch.batch_norm(*leaves, their_mean, their_variance, True, 0.1, 1e-5, False)
    exact = activation_of(word)(z)
    dy = torch.where(z.abs() > 1 / 64, torch.rand_like(z) - 0.4, 0.0).bfloat16()  # of others the sign is that of a rounding error
    wanted = torch.autograd.grad(exact, leaves, dy.double())
    y, dx, dw, db = torch.empty_like(x), torch.empty_like(x), torch.empty(channels), torch.empty(channels)
    save, partial = torch.empty(4 * channels), torch.full((2 * grid[1] * channels,), float("nan"))
    counters, coefficients = torch.zeros(64, dtype=torch.int32), torch.empty(2 * channels)
    run(library.forward, grid, (y, x, w, b, mean, variance, batches, save, partial, counters), sizes)
    run(library.backward, grid, (dx, dw, db, dy, x, save, coefficients, partial, counters), sizes)
    assert far(y, exact) < 2 ** -8 and far(dx, wanted[0]) < 2 ** -7
    assert far(dw, wanted[1]) < 1e-4 and far(db, wanted[2]) < 1e-4
    assert far(mean, their_mean) < 1e-6 and far(variance, their_variance) < 1e-5
    assert batches == 1 and not counters.any()


def test_channels_that_no_block_reads_well_are_declined():
    for channels, beside in ((8, 1), (16, 2), (24, 3), (64, 8), (96, 12), (352, 11), (2048, 16), (12, None), (8 * 17, None), (0, None)):
        assert _norm_kernels.across(channels) == beside
    for rows, channels in ((200704, 64), (7, 2048), (1 << 24, 8)):
        (groups, chunks), (_, _, chunk, beside) = _norm_kernels.grid_of(rows, channels, 132)
        assert groups * beside * 8 == channels and (chunks - 1) * chunk < rows <= chunks * chunk and chunks < 65536


class StandIn:
    """Stands for the kernels, by PyTorch."""

    calls = []

    def __init__(self, word):
        self.word = word

    def forward(self, x, weight, bias, mean, variance, batches, momentum, eps):
        self.calls.append(self.word)
        batches += 1
        return activation_of(self.word)(torch.batch_norm(x, weight, bias, mean, variance, True, momentum, eps, False)), bias

    def backward(self, dy, x, bias, weight):
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
            y = activation_of(self.word)(torch.batch_norm(*leaves, None, None, True, 0.0, 1e-5, False))
        return torch.autograd.grad(y, leaves, dy)


def net():
    torch.manual_seed(0)
    relu = nn.ReLU(inplace=True)  # used twice
    return nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), relu, nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16),
                         relu, nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8))


def fused(monkeypatch, model, x, has_layers):
    """The patched model with batch norm by the stand-in, with faltung's convolutions or without."""
    StandIn.calls = []
    monkeypatch.setattr(_norm_kernels, "launches_for", lambda x, word: StandIn(word))
    patched = ft.patch(model, x, at_least=0, min_time=1)
    patched._forwards.take_back()
    observation = _patch.Observation(model, x)
    norms = [_patch.quick(m, observation) for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.norm.reset_running_stats()
    _patch.Forwards(patched._forwards.layers if has_layers else {}, {}, norms, True).put()


@pytest.mark.parametrize("has_layers", [False, True])
def test_a_model_in_training_gives_activations_to_batch_norm(monkeypatch, has_layers):
    x = torch.randn(2, 8, 9, 9)
    alone, model = net(), net()
    fused(monkeypatch, model, x, has_layers)
    for each in (alone, model):
        each(x).square().mean().backward()
    assert StandIn.calls == ["relu", "relu", "silu", ""]
    for (name, a), (_, b) in zip(alone.named_parameters(), model.named_parameters()):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-5, msg=name)
    for a, b in zip(alone.buffers(), model.buffers()):
        torch.testing.assert_close(b, a)
    model.eval(), alone.eval()
    torch.testing.assert_close(model(x), alone(x), rtol=1e-4, atol=1e-4)
    assert len(StandIn.calls) == 4


def test_statistics_count_as_changed(monkeypatch):
    x, model = torch.randn(2, 8, 9, 9), net()
    fused(monkeypatch, model, x, False)
    versions = [b._version for b in model.buffers()]
    model(x)
    assert all(b._version > v for b, v in zip(model.buffers(), versions))


def test_gradients_of_gradients_are_pytorchs(monkeypatch):
    x = torch.randn(2, 8, 5, 5, requires_grad=True)
    seconds = []
    for by in ("torch", "faltung"):
        norm = nn.Sequential(nn.BatchNorm2d(8), nn.SiLU())
        if by == "faltung":
            norm.insert(0, nn.Conv2d(8, 8, 1, bias=False))
            nn.init.dirac_(norm[0].weight)
            fused(monkeypatch, norm, x.detach(), False)
        first = torch.autograd.grad(norm(x).pow(3).sum(), x, create_graph=True)[0]
        seconds.append(torch.autograd.grad(first.pow(2).sum(), x)[0])
    assert StandIn.calls == ["silu"]
    torch.testing.assert_close(seconds[1], seconds[0], rtol=1e-3, atol=1e-3)


def test_what_looks_at_calls_sees_pytorchs(monkeypatch):
    x, model = torch.randn(2, 8, 9, 9), net()
    fused(monkeypatch, model, x, False)
    with torch.autograd.forward_ad.dual_level():
        model(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
    assert StandIn.calls == []


@pytest.mark.parametrize("change", [lambda norm: norm.double(), lambda norm: setattr(norm, "momentum", None),
                                    lambda norm: setattr(norm, "num_batches_tracked", torch.zeros(1, dtype=torch.int64)),
                                    lambda norm: setattr(norm, "weight", nn.Parameter(torch.ones(32)[::2])), lambda norm: norm.eval()])
def test_a_norm_that_became_another_is_pytorchs(monkeypatch, change):
    x, model = torch.randn(2, 8, 9, 9), net()[:3]
    fused(monkeypatch, model, x, False)
    model(x)
    change(model[1])
    if model[1].weight.dtype is torch.float64:
        model[0].double()
        x = x.double()
    after = model(x)
    assert StandIn.calls == ["relu"] and (after >= 0).all()


DRIVER = """
#include <stdio.h>
struct Attribute { int id; char pad[4]; union { char bytes[64]; int flag; } value; };
struct Config { unsigned grid[3], block[3], shared; void* stream; struct Attribute* attributes; unsigned count; };
int cuLaunchKernelEx(const struct Config* c, void* f, void** p, void** x) {
  printf("%p %u %u %u %u %u %u %u %p ", f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, c->stream);
  for (unsigned i = 0; i < c->count; ++i) printf("%d=%d ", c->attributes[i].id, c->attributes[i].value.flag);
  return printf("%lld %f %p ", *(long long*)p[0], *(double*)p[1], *(void**)p[2]) < 0 || x;
}
"""
LAUNCH = """
import torch
from faltung import _c
x = torch.zeros(8)[2:]
for wrong in ((1, 2, 3), (1, 1, 1, 1, 1, 0, "x"), (-1, 1, 1, 1, 1, 0), (1,) * 40):
    try:
        _c.launch(*wrong)
    except (TypeError, OverflowError):
        continue
    raise AssertionError(wrong)
_c.launch(4096, 3, 5, 512, 77, 0, -9, 0.125, x)
_c.launch(4096, 3, 5, 512, 77, 1, -9, 0.125, x)
print(hex(x.data_ptr()))
"""


def test_a_launch_gives_the_driver_what_it_was_given(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    told = subprocess.run([sys.executable, "-c", LAUNCH], check=True, capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONUNBUFFERED": "1"}).stdout.split()
    launch, address = "0x1000 3 5 1 512 1 1 0 0x4d".split(), told[-1]
    assert told[:-1] == [*launch, "-9", "0.125000", address, *launch, "6=1", "-9", "0.125000", address]


class InDouble(StandIn):
    """Rounded once; factors: of what is returned."""

    def __init__(self, rows, channels, word, factors=(1, 1, 1, 1)):
        super().__init__(word)
        self.sizes, self.dtype, self.factors = (rows, channels), torch.float16, factors

    def forward(self, x, weight, bias, mean, variance, *rest):
        running = mean.double(), variance.double()
        y, save = super().forward(x.double(), weight.double(), bias.double(), *running, *rest)
        mean.copy_(running[0]), variance.copy_(running[1])
        return (y * self.factors[0]).to(x.dtype), save

    def backward(self, dy, x, save, weight):
        found = super().backward(dy.double(), x.double(), save, weight.double())
        return [(t * factor).to(dtype) for t, factor, dtype in zip(found, self.factors[1:], (x.dtype, torch.float32, torch.float32))]


@pytest.mark.parametrize("word", ["", "relu", "silu"])
def test_what_agrees_is_found_whatever_the_numbers(word):
    """Of two rows, too, whose gradient of x is what rounding leaves of it."""
    with torch.no_grad():
        for seed in range(60):
            torch.manual_seed(seed)
            for rows, channels in ((2, 8), (301, 24)):
                made = InDouble(rows, channels, word)
                assert _norm_kernels.agrees(made, torch.device("cpu")), (seed, rows, made.far)
        for wrong in range(4):
            factors = [1.0 + 0.02 * (i == wrong) for i in range(4)]
            assert not _norm_kernels.agrees(InDouble(301, 24, word, factors), torch.device("cpu")), factors


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("word", ["", "relu", "silu"])
def test_kernels_agree_on_the_device(dtype, word):
    device = torch.device("cuda", torch.cuda.current_device())
    made = _norm_kernels.Kernels(device, dtype, word)
    for rows, channels in ((50176, 64), (3136, 2048), (1003, 144), (301, 24), (2, 8)):
        launches = _norm_kernels.Launches(made, device, dtype, word, rows, channels)
        with torch.no_grad():
            assert _norm_kernels.agrees(launches, device), launches.far
