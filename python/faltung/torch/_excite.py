"""Squeeze and excite where no gradient is needed, by two kernels on CUDA (_excite.cu)."""
import torch
import torch.nn.functional as F

from .. import _c
from . import _average, _norm_kernels
from ._activations import activation_of
from ._average import is_read
from ._norm_kernels import THREADS, VECTOR

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
    """As _average has it; None for what the kernels do not compute."""
    return _average.cut(shape, processors) if shape[1] <= MOST_CHANNELS else None


def compute(x, down, down_bias, up, up_bias, activation, gate):
    squeezed, made, y = down.shape[0], None, torch.empty_like(x)
    if x.is_cuda and 0 < squeezed <= MOST_SQUEEZED and is_read(x, down, down_bias, up, up_bias):
        made = _norm_kernels.kernels(x.device, x.dtype, activation, "_excite.cu")
    how = None if made is None else cut(x.shape, made.processors)
    if how is None:
        return y.copy_(composed(x, down, down_bias, up, up_bias, activation, gate))
    grid, (rows, channels, *chunks) = how
    partial = torch.empty(grid[0] * grid[1] * squeezed, dtype=torch.float32, device=x.device)
    stream = torch._C._cuda_getCurrentRawStream(x.device.index)
    _c.launch(made.squeeze, *grid, THREADS, stream, made.overlaps, x, down, partial, rows, channels, squeezed, *chunks)
    _c.launch(made.excite, *grid, THREADS, stream, made.overlaps, x, partial, 0 if down_bias is None else down_bias, up,
              0 if up_bias is None else up_bias, y, rows, channels, squeezed, *chunks, int(gate == "hardsigmoid"))
    return y
