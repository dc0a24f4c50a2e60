"""The mean of every channel of an image where no gradient is needed, by a kernel on CUDA (_average.cu)."""
import torch

from .. import _c
from . import _norm_kernels
from ._norm_kernels import COUNTERS, THREADS, VECTOR, across, chunks_of, counters

SCHEMA = "(Tensor input, bool keepdim) -> Tensor"
MOST_BLOCKS = 65535
LEAST_BESIDE, MOST_BESIDE, MOST_SHARE = 4, 64, 0.75


def composed(x, keepdim):
    return x.mean((2, 3), keepdim=keepdim)


def fake(x, keepdim):
    return x.new_empty((*x.shape[:2], 1, 1) if keepdim else x.shape[:2])


def beside_of(vectors, images, processors):
    """Vectors of channels that a block has: as many as leave most processors a block, so that its rows, few of which are beside each
    other then, need little adding up."""
    widths = [n for n in range(1, MOST_BESIDE + 1) if vectors % n == 0 and (n >= LEAST_BESIDE or n == vectors)]
    return max([n for n in widths if images * vectors // n >= MOST_SHARE * processors] or widths[:1])


def cut(shape, processors):
    """Grid, and rows, channels, chunks, rows of a chunk, vectors beside each other; None for what the kernel does not compute."""
    images, channels, rows = shape[0], shape[1], shape[2] * shape[3]
    if across(channels) is None or not 0 < images <= COUNTERS or rows == 0:
        return None
    beside = beside_of(channels // VECTOR, images, processors)
    columns = channels // VECTOR // beside
    chunks, chunk = chunks_of(rows, images * columns, processors)
    return ((columns, images * chunks), (rows, channels, chunks, chunk, beside)) if images * chunks <= MOST_BLOCKS else None


def is_read(x, *parameters):
    """Whether the kernels read such tensors as they are."""
    return (x.is_cuda and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and x.data_ptr() % 16 == 0 and not x.is_neg()
            and all(p is None or (p.dtype is x.dtype and p.device == x.device and not p.is_neg() and p.data_ptr() % 16 == 0
                                  and (p.dim() == 1 or p.is_contiguous() or p.is_contiguous(memory_format=torch.channels_last)))
                    for p in parameters))


def has_counters(x):
    """Whether this stream has: they are not made while a CUDA graph is captured."""
    index = x.device.index
    return (index, torch._C._cuda_getCurrentRawStream(index)) in _norm_kernels._counters


def launch(made, how, x, y):
    """Into y; how: as cut has it."""
    grid, (rows, channels, chunks, *rest) = how
    stream, partial, counted = torch._C._cuda_getCurrentRawStream(x.device.index), 0, 0
    if chunks > 1:
        partial = torch.empty(grid[1] * channels, dtype=torch.float32, device=x.device)
        counted = counters(x.device.index, stream)
    _c.launch(made.average, *grid, THREADS, stream, made.overlaps, x, y, partial, counted, rows, channels, chunks, *rest)
    return y


def compute(x, keepdim):
    made, y = None, fake(x, keepdim)
    if x.is_cuda and is_read(x):
        made = _norm_kernels.kernels(x.device, x.dtype, "", "_average.cu")
    how = None if made is None else cut(x.shape, made.processors)
    if how is None or how[0][0] * len(x) > COUNTERS or how[1][2] > 1 and torch.cuda.is_current_stream_capturing() and not has_counters(x):
        return y.copy_(composed(x, keepdim))
    return launch(made, how, x, y)
