"""Squeeze and excite where no gradient is needed, by two kernels on CUDA (_excite.cu)."""
import torch
import torch.nn.functional as F

from .. import _c
from . import _norm_kernels, _run
from ._activations import activation_of
from ._norm_kernels import COUNTERS, LEAST_ROWS, THREADS, VECTOR, across, counters

# input * gate(up activation(down mean(input) + down_bias) + up_bias), the mean of an image's pixels.
SCHEMA = "(Tensor input, Tensor down, Tensor? down_bias, Tensor up, Tensor? up_bias, str activation, str gate) -> Tensor"
GATES = {"sigmoid": torch.sigmoid, "hardsigmoid": F.hardsigmoid}
MOST_CHANNELS, MOST_SQUEEZED, MOST_BLOCKS = THREADS * VECTOR, 512, 65535


def composed(x, down, down_bias, up, up_bias, activation, gate):
    hidden = activation_of(activation)(F.conv2d(x.mean((2, 3), keepdim=True), down, down_bias))
    return x * GATES[gate](F.conv2d(hidden, up, up_bias))


def fake(x, down, down_bias, up, up_bias, activation, gate):
    return torch.empty_like(x)


def cut(shape, processors):
    """Grid, and rows, channels, chunks, rows of a chunk, vectors beside each other: two blocks a processor at most, where that is one
    an image's channels; None for what the kernels do not compute."""
    images, channels, rows = shape[0], shape[1], shape[2] * shape[3]
    beside = across(channels)
    if beside is None or channels > MOST_CHANNELS or not 0 < images <= COUNTERS or rows == 0:
        return None
    columns = channels // VECTOR // beside
    chunk = max(LEAST_ROWS, -(-rows // max(1, 2 * processors // (images * columns))))
    chunks = -(-rows // chunk)
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


def compute(x, down, down_bias, up, up_bias, activation, gate):
    squeezed, made, y = down.shape[0], None, torch.empty_like(x)
    if x.is_cuda and squeezed <= MOST_SQUEEZED and is_read(x, down, down_bias, up, up_bias):
        made = _norm_kernels.kernels(x.device, x.dtype, activation, "_excite.cu")
    how = None if made is None else cut(x.shape, made.processors)
    if how is None or torch.cuda.is_current_stream_capturing() and not has_counters(x):
        return y.copy_(composed(x, down, down_bias, up, up_bias, activation, gate))
    grid, (rows, channels, *chunks) = how
    hidden, partial = (torch.empty(n, dtype=torch.float32, device=x.device) for n in (x.shape[0] * squeezed, grid[1] * channels))
    stream = torch._C._cuda_getCurrentRawStream(x.device.index)
    _c.launch(made.squeeze, *grid, THREADS, stream, x, down, 0 if down_bias is None else down_bias, hidden, partial,
              counters(x.device.index, stream), rows, channels, squeezed, *chunks)
    _c.launch(made.excite, *grid, THREADS, stream, x, hidden, up, 0 if up_bias is None else up_bias, y, rows, channels, squeezed, *chunks,
              int(gate == "hardsigmoid"))
    return y
