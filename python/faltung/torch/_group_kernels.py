"""The CUDA kernels of group norm with the activation that follows it, on tensors of 16 bits, channels-last or contiguous; _vectors.cu and
_group.cu have them. What they compute is compared with PyTorch before use."""
import math

import torch
import torch.nn.functional as F

from .. import _c
from . import _norm_kernels, _run
from ._activations import activation_of
from ._norm_kernels import COUNTERS, LEAST_ROWS, THREADS, VECTOR, across, counters

MOST_BLOCKS = 65535  # of a grid's second dimension
LEAST_LENGTH = 4 * THREADS  # vectors of a block


def rows_of(x):
    """Pixels of an image, if the tensor is channels-last and not contiguous as well; None if it is contiguous; 0 for others."""
    if x.is_contiguous():
        return None
    last = _run.FORMATS.get(x.dim())
    return math.prod(x.shape[2:]) if last is not None and x.is_contiguous(memory_format=last) else 0


class Rows:
    """How channels-last tensors are cut: two blocks a processor."""

    def __init__(self, images, rows, channels, groups, processors):
        beside = across(channels)
        columns, size = channels // VECTOR // beside, channels // groups
        chunk = max(LEAST_ROWS, -(-rows * images * columns // (2 * processors)))
        chunks = -(-rows // chunk)
        slots = (beside * VECTOR + size - 2) // size + 1  # groups that a block's channels may be of
        self.grid = self.second_grid = (columns, images * chunks)
        self.partials, self.counters = images * chunks * columns * slots, images
        self.sizes = (images, rows, channels, groups, chunks, chunk, beside, slots)
        self.second_sizes = (images, rows, channels, chunks, chunk, beside)


class Planes:
    """How contiguous tensors are cut; length: vectors of a plane."""

    def __init__(self, images, length, channels, groups, processors):
        runs, run = images * groups, length * channels // groups
        chunk = max(LEAST_LENGTH, -(-run * runs // (2 * processors)))
        chunks = -(-run // chunk)
        every = max(LEAST_LENGTH, -(-run * runs // (2 * processors)))
        self.grid, self.second_grid = (runs, chunks), (-(-run * runs // every), 1)
        self.partials, self.counters = runs * chunks, runs
        self.sizes = (images, channels, groups, run, chunk)
        self.second_sizes = (images * channels, length, every)


def cut(shape, rows, groups, processors):
    """Rows or Planes; None for what nothing computes. rows: as rows_of has it."""
    images, channels, pixels = shape[0], shape[1], math.prod(shape[2:])
    if groups < 1 or channels % groups or images * channels * pixels == 0 or channels // groups * pixels < 2 or rows == 0:
        return None
    if rows is None:
        if pixels % VECTOR or images * channels * pixels // VECTOR >= 1 << 31:
            return None
        made = Planes(images, pixels // VECTOR, channels, groups, processors)
    else:
        if across(channels) is None:
            return None
        made = Rows(images, rows, channels, groups, processors)
    return made if made.counters <= COUNTERS and max(made.grid[1], made.second_grid[1]) <= MOST_BLOCKS else None


def parameter_kind(parameter):
    """As _group.cu has them."""
    return 0 if parameter is None else 1 if parameter.dtype is torch.float32 else 2


class Launches:
    """Of tensors of such a shape and layout."""

    def __init__(self, made, device, dtype, word, shape, is_last, cut, groups):
        self.index, self.dtype, self.word, self.shape, self.is_last, self.groups = device.index, dtype, word, shape, is_last, groups
        self.cut, self.overlaps, channels = cut, made.overlaps, shape[0] * shape[1]
        self.functions = (made.row_statistics, made.row_normalize) if is_last else (made.plane_statistics, made.plane_normalize)
        self.allocate, self.typed, self.keywords = _run.allocator(device, torch.float32)
        self.space, self.after_save = ((2 * channels + 2 * cut.partials,), (1,)), 8 * channels

    def __call__(self, x, weight, bias, eps):
        stream, cut = torch._C._cuda_getCurrentRawStream(self.index), self.cut
        space, y = self.allocate(*self.space, *self.typed, **self.keywords), torch.empty_like(x)
        save = space.data_ptr()
        _c.launch(self.functions[0], *cut.grid, THREADS, stream, self.overlaps, x, 0 if weight is None else weight, 0 if bias is None else bias, save,
                  save + self.after_save, counters(self.index, stream), *cut.sizes, parameter_kind(weight), parameter_kind(bias), eps)
        _c.launch(self.functions[1], *cut.second_grid, THREADS, stream, self.overlaps, x, y, save, *cut.second_sizes)
        return y


def agrees(made):
    """Whether the result is PyTorch's in f32, within rounding to the dtype."""
    device, channels = f"cuda:{made.index}", made.shape[1]
    x = torch.empty(made.shape, dtype=made.dtype, device=device)
    if made.is_last:
        x = x.contiguous(memory_format=_run.FORMATS[x.dim()])
    x.normal_(1, 2)
    weight, bias = (torch.rand(channels, device=device).sub_(0.3).to(made.dtype) for _ in range(2))
    y, made.far = made(x, weight, bias, 1e-5), 0.0
    for i in range(len(x)):  # whose f32 would take much memory together
        exact = activation_of(made.word)(F.group_norm(x[i:i + 1].float(), made.groups, weight.float(), bias.float(), 1e-5))
        made.far = max(made.far, ((y[i:i + 1].float() - exact).abs().max() / exact.abs().max()).item())
    return made.far <= 2.0 ** (-8 if made.dtype is torch.bfloat16 else -10)


def launches(x, groups, word):
    """None where nothing of the kind is computed, or what it computed is not what PyTorch computes in f32."""
    rows = rows_of(x)
    if rows == 0 or (made := _norm_kernels.kernels(x.device, x.dtype, word, "_group.cu")) is None:
        return None
    how = cut(x.shape, rows, groups, made.processors)
    if how is None:
        return None
    with torch.no_grad(), torch.random.fork_rng([x.device.index]), torch.autocast("cuda", enabled=False):
        try:
            made = Launches(made, x.device, x.dtype, word, tuple(x.shape), rows is not None, how, groups)
            return made if agrees(made) else None
        except RuntimeError:
            return None


_known = {}


def launches_for(x, groups, word):
    """Of group norm of this tensor and such an activation; None where nothing computes it. They are made when they are first asked for,
    but not while a CUDA graph is captured."""
    index = x.get_device()
    key = index, x.dtype, word, groups, x.shape, x.stride()
    found = _known.get(key, _known)
    if found is _known:
        if not x.is_cuda or x.dim() < 3 or torch.cuda.is_current_stream_capturing():
            return None
        if len(_known) >= _run.MOST_PLANS:
            _known.clear()
        found = _known[key] = launches(x, groups, word)
    return found if found is None or (index == torch._C._cuda_getDevice() and x.data_ptr() % 16 == 0) else None
