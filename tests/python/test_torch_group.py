"""Group norm with its activation: the kernels' arithmetic, run on the CPU, beside PyTorch's in f64; on CUDA the kernels themselves."""
import ctypes

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import cuda_on_cpu  # noqa: E402
from faltung.torch import _group_kernels, _norm_kernels  # noqa: E402
from faltung.torch._activations import activation_of  # noqa: E402

HOST = """
extern "C" void rows_(Int gx, Int gy, Vector* y, const Vector* x, const void* w, const void* b, float* save, float2* partial,
                      unsigned* counters, const Int* s, Int weights, Int biases) {
  launch(gx, gy, kThreads, [=] {
    row_statistics(x, w, b, save, partial, counters, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], weights, biases, 1e-5);
  });
  launch(gx, gy, kThreads, [=] { row_normalize(x, y, save, s[8], s[9], s[10], s[11], s[12], s[13]); });
}
extern "C" void planes_(Int gx, Int gy, Int blocks, Vector* y, const Vector* x, const void* w, const void* b, float* save, float2* partial,
                        unsigned* counters, const Int* s, Int weights, Int biases) {
  launch(gx, gy, kThreads, [=] {
    plane_statistics(x, w, b, save, partial, counters, s[0], s[1], s[2], s[3], s[4], weights, biases, 1e-5);
  });
  launch(blocks, 1, kThreads, [=] { plane_normalize(x, y, save, s[5], s[6], s[7]); });
}
"""


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return cuda_on_cpu.libraries(tmp_path_factory.mktemp("group"), "_group.cu", HOST)


def computed(library, x, groups, weight, bias, processors=4):
    rows = _group_kernels.rows_of(x)
    cut = _group_kernels.cut(x.shape, rows, groups, processors)
    y, channels = torch.empty_like(x), x.shape[0] * x.shape[1]
    save, partial = torch.full((2 * channels,), float("nan")), torch.full((2 * cut.partials,), float("nan"))
    counters = torch.zeros(cut.counters, dtype=torch.int32)
    sizes = torch.tensor([*cut.sizes, *cut.second_sizes])
    grid = cut.grid if rows is not None else (*cut.grid, cut.second_grid[0])
    (library.planes_ if rows is None else library.rows_)(
        *map(ctypes.c_longlong, grid), *(ctypes.c_void_p(0 if t is None else t.data_ptr()) for t in (
            y, x, weight, bias, save, partial, counters, sizes)),
        *(ctypes.c_longlong(_group_kernels.parameter_kind(t)) for t in (weight, bias)))
    assert not counters.any() and (save.isnan().any() <= x.isnan().any())
    return y


def exact(x, groups, weight, bias, word):
    weight, bias = (None if t is None else t.double() for t in (weight, bias))
    return activation_of(word)(F.group_norm(x.double(), groups, weight, bias, 1e-5))


# Groups within a block of channels, across several, beside its edges; rows that fill chunks and do not; images.
LAST = [("", (1, 64, 13, 11), 32, 0), ("silu", (2, 320, 9, 9), 32, 0), ("silu", (3, 24, 5, 7), 1, 100), ("relu", (1, 352, 30, 5), 4, 3),
        ("", (2, 256, 4, 3), 1, 1000), ("silu", (1, 512, 3, 3), 512, 0), ("silu", (2, 8, 33, 31), 8, 3), ("", (1, 640, 3, 5), 16, 10),
        ("relu", (1, 1152, 2, 2), 3, 0), ("", (1, 1024, 2, 3), 1024, 0)]
PLANES = [("silu", (1, 64, 8, 13), 32, 0), ("", (2, 12, 16, 16), 4, 1000), ("relu", (3, 5, 8, 9), 5, 3), ("silu", (1, 6, 80, 88), 1, 100),
          ("", (2, 7, 24), 7, 0), ("silu", (1, 4, 4, 2, 9), 2, 10)]


@pytest.mark.parametrize("last", [True, False])
def test_arithmetic_is_pytorchs(on_cpu, last):
    for i, (word, shape, groups, mean) in enumerate(LAST if last else PLANES):
        torch.manual_seed(i)
        x = (torch.randn(shape) * 2 + mean * torch.rand(shape[1]).view(-1, *[1] * (len(shape) - 2))).bfloat16()
        if mean == 1000:  # far beyond the deviation; the dtype keeps a few bits
            x = (torch.randn(shape) * 8 + 1000).bfloat16()
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        weight, bias = (t.to(torch.bfloat16 if i % 3 == 2 else torch.float32) for t in (torch.rand(shape[1]) + 0.1, torch.rand(shape[1]) - 0.3))
        weight, bias = weight if i % 3 else None, bias if i % 3 else None
        y, right = computed(on_cpu(word), x, groups, weight, bias, 1 + 11 * (i % 2)), exact(x, groups, weight, bias, word)
        assert y.stride() == x.stride()
        bound = right.abs() * 2 ** -8 + right.abs().max() * 2e-5
        assert ((y.double() - right).abs() <= bound).all(), (word, shape, groups, (y.double() - right).abs().max())


def test_what_is_not_a_number_stays(on_cpu):
    for last in (True, False):
        x = torch.randn(2, 16, 8, 9).bfloat16()
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        x[1, 3, 7, 2] = float("nan")
        x[0, 8, 0, 0] = float("inf")
        y, right = computed(on_cpu("silu"), x, 2, None, None), exact(x, 2, None, None, "silu")
        assert torch.equal(y.isnan(), right.isnan()) and right.isnan().any() and not right.isnan().all()


def test_how_tensors_are_cut():
    for shape, groups, last in (((1, 128, 1024, 1024), 32, True), ((8, 320, 64, 64), 32, True), ((32, 64, 7, 7), 1, True),
                                ((1, 512, 128, 128), 32, False), ((4, 64, 8, 8), 64, False)):
        x = torch.empty(shape, device="meta")
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        rows = _group_kernels.rows_of(x)
        cut = _group_kernels.cut(x.shape, rows, groups, 132)
        if last:
            images, rows, channels, _, chunks, chunk, beside, slots = cut.sizes
            assert (chunks - 1) * chunk < rows <= chunks * chunk and cut.grid == (channels // 8 // beside, images * chunks)
        else:
            _, channels, _, length, chunk = cut.sizes
            planes, plane, every = cut.second_sizes
            assert (cut.grid[1] - 1) * chunk < length <= cut.grid[1] * chunk and length * cut.grid[0] == planes * plane
            assert (cut.second_grid[0] - 1) * every < planes * plane <= cut.second_grid[0] * every
    declined = [((1, 12, 4, 4), 3, True), ((1, 32, 3, 3), 8, False), ((1, 32, 4, 4), 5, False), ((0, 32, 4, 4), 8, False),
                ((1 << 17, 8, 4, 4), 8, True), ((1, 8, 1, 1), 8, False)]
    for shape, groups, last in declined:
        x = torch.empty(shape, device="meta")
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        assert _group_kernels.cut(x.shape, _group_kernels.rows_of(x), groups, 132) is None, shape
    assert _group_kernels.rows_of(torch.empty(2, 8, 4, 6, device="meta")[..., ::2]) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("word", ["", "relu", "silu"])
def test_kernels_agree_on_the_device(dtype, word):
    for cases in (LAST, PLANES, [("", (2, 128, 256, 256), 32, 0), ("", (1, 512, 64, 64), 32, 0), ("", (4, 320, 64, 64), 32, 0)]):
        for _, shape, groups, mean in cases:
            for last in (True, False):
                x = (torch.randn(shape, device="cuda") * 2 + mean).to(dtype)
                if last and x.dim() == 4:
                    x = x.contiguous(memory_format=torch.channels_last)
                launches = _group_kernels.launches_for(x, groups, word)
                rows = _group_kernels.rows_of(x)
                assert (launches is None) == (_group_kernels.cut(x.shape, rows, groups, 132) is None), (shape, groups, last)
                if launches is not None:
                    y, right = launches(x, None, None, 1e-5), exact(x, groups, None, None, word)
                    rounding = 2.0 ** (-8 if dtype is torch.bfloat16 else -11)
                    assert ((y.double() - right).abs() <= right.abs() * rounding + right.abs().max() * 2e-5).all(), (shape, groups, last)
