"""The average of an image's pixels, as torch.compile computes it: the kernel on the CPU, where it is put into a graph, and on CUDA what it
computes."""
import ctypes

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import cuda_on_cpu  # noqa: E402
from faltung.torch import _average  # noqa: E402
from test_torch_islands import compiled  # noqa: E402

ops = torch.ops.faltung
HOST = """
extern "C" void all(Int gx, Int gy, const Vector* x, unsigned short* y, float* partial, unsigned* counters, const Int* s) {
  launch(gx, gy, kThreads, [=] { average(x, y, partial, counters, s[0], s[1], s[2], s[3], s[4]); });
}
"""
# Of one chunk of rows and several, blocks of all channels and of some, fewer rows than threads beside each other.
SHAPES = [(2, 2048, 7, 7), (3, 144, 9, 9), (1, 16, 40, 33), (5, 24, 1, 1), (1, 96, 37, 17), (2, 528, 30, 11)]


def tensor(shape, device="cpu", dtype=torch.bfloat16):
    torch.manual_seed(shape[1])
    return torch.randn(shape, device=device).add_(0.3).to(dtype).contiguous(memory_format=torch.channels_last)


def far(y, x, dtype):
    """Over the bound: rounding to the dtype, and f32's over so many terms."""
    right, terms = x.double().mean((2, 3)), x.double().abs().mean((2, 3))
    epsilon = 2.0 ** (-8 if dtype is torch.bfloat16 else -11)
    return ((y.double().flatten(1) - right).abs() / (right.abs() * epsilon + terms * x[0, 0].numel() * 2 ** -24)).max().item()


@pytest.mark.parametrize("processors", [1, 40])
def test_arithmetic_is_pytorchs(processors, tmp_path):
    kernel, chunked = cuda_on_cpu.libraries(tmp_path, "_average.cu", HOST)(""), []
    for shape in SHAPES:
        x, (grid, sizes) = tensor(shape), _average.cut(shape, processors)
        chunked.append(sizes[2] > 1)
        y, partial = torch.full(shape[:2], float("nan"), dtype=x.dtype), torch.full((grid[1] * shape[1],), float("nan"))
        counters, sizes = torch.zeros(shape[0] * grid[0], dtype=torch.int32), torch.tensor(sizes)
        kernel.all(*map(ctypes.c_longlong, grid), *(ctypes.c_void_p(t.data_ptr()) for t in (x, y, partial, counters, sizes)))
        assert not counters.any() and far(y, x, x.dtype) <= 1, shape
    assert any(chunked) and not all(chunked)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA here")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_the_device(dtype):
    for shape in (*SHAPES, (32, 2048, 7, 7), (32, 1408, 9, 9), (4, 64, 224, 224)):
        x = tensor(shape, "cuda", dtype)
        results = [ops.average(x, True) for _ in range(3)]
        assert all(torch.equal(y, results[0]) for y in results) and far(results[0], x, dtype) <= 1, shape


class Head(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.pool, self.last = pool, nn.Linear(16, 8)

    def forward(self, x):
        return self.last(self.pool(x + 1).flatten(1))


@pytest.mark.parametrize("pool,is_replaced", [
    (nn.AdaptiveAvgPool2d(1), True), (nn.AdaptiveAvgPool2d((1, 1)), True), (lambda x: x.mean((2, 3)), True),
    (lambda x: torch.mean(x, dim=[-1, -2], keepdim=True), True), (lambda x: x.mean((1, 2, 3), keepdim=True).expand(-1, 16, 1, 1), False),
    (lambda x: x.mean((2, 3), dtype=torch.float32).to(x.dtype), False), (lambda x: F.adaptive_avg_pool2d(x, 2)[:, :4], False),
    (lambda x: torch.mean(x, (2, 3), out=torch.empty(x.shape[:2], dtype=x.dtype)), False)], ids=list("abcdefgh"))
def test_where_it_is_put(pool, is_replaced):
    torch.manual_seed(1)
    model, x = Head(pool).bfloat16(), tensor((2, 16, 6, 5))
    with torch.no_grad():
        right = model(x)
    y, seen = compiled(model, x)
    assert seen == [ops.average.default] * is_replaced
    torch.testing.assert_close(y, right, rtol=2e-2, atol=2e-2)
    assert compiled(model, x.contiguous())[1] == [] and compiled(model.float(), x.float())[1] == []


@pytest.mark.parametrize("keepdim", [True, False])
def test_the_result_lies_as_pytorchs(keepdim):
    x = tensor((2, 16, 5, 4))
    y, right = ops.average(x, keepdim), x.mean((2, 3), keepdim=keepdim)
    assert torch.equal(y, right) and y.stride() == right.stride() and y.dtype is right.dtype
