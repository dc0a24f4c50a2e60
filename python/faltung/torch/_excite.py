"""Squeeze and excite where no gradient is needed, by two kernels on CUDA (_excite.cu)."""
import torch
import torch.nn.functional as F

from .. import _c
from . import _norm_kernels
from ._activations import activation_of
from ._average import MOST_BLOCKS, is_read
from ._norm_kernels import THREADS, VECTOR, across, chunks_of

# input * gate(up activation(down mean(input) + down_bias) + up_bias), the mean of an image's pixels.
SCHEMA = "(Tensor input, Tensor down, Tensor? down_bias, Tensor up, Tensor? up_bias, str activation, str gate) -> Tensor"
GATES = {"sigmoid": torch.sigmoid, "hardsigmoid": F.hardsigmoid}
MOST_CHANNELS, MOST_SQUEEZED = THREADS * VECTOR, 512


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
    if beside is None or channels > MOST_CHANNELS or images <= 0 or rows == 0:
        return None
    columns = channels // VECTOR // beside
    chunks, chunk = chunks_of(rows, images * columns, processors)
    return ((columns, images * chunks), (rows, channels, chunks, chunk, beside)) if images * chunks <= MOST_BLOCKS else None


def launch(made, how, x, down, down_bias, up, up_bias, gate, y):
    """Into y; how: as cut has it."""
    (grid, (rows, channels, *chunks)), squeezed = how, down.shape[0]
    partial = torch.empty(grid[0] * grid[1] * squeezed, dtype=torch.float32, device=x.device)
    stream = torch._C._cuda_getCurrentRawStream(x.device.index)
    _c.launch(made.squeeze, *grid, THREADS, stream, made.overlaps, x, down, partial, rows, channels, squeezed, *chunks)
    _c.launch(made.excite, *grid, THREADS, stream, made.overlaps, x, partial, 0 if down_bias is None else down_bias, up,
              0 if up_bias is None else up_bias, y, rows, channels, squeezed, *chunks, int(gate == "hardsigmoid"))
    return y


def compute(x, down, down_bias, up, up_bias, activation, gate):
    made, y = None, torch.empty_like(x)
    if x.is_cuda and 0 < down.shape[0] <= MOST_SQUEEZED and is_read(x, down, down_bias, up, up_bias):
        made = _norm_kernels.kernels(x.device, x.dtype, activation, "_excite.cu")
    how = None if made is None else cut(x.shape, made.processors)
    if how is None:
        return y.copy_(composed(x, down, down_bias, up, up_bias, activation, gate))
    return launch(made, how, x, down, down_bias, up, up_bias, gate, y)
