"""ONNX's operators in PyTorch's words, for onnx_module.py.

OPERATORS has a row an operator: its function, of tensors and of its attributes by their names (one that it does not know is an error), and which
of its inputs are no tensors in PyTorch, but lists or numbers: they must be known beforehand.
"""
import functools
import math

import torch
import torch.nn.functional as F


class Lacking(Exception):
    """What PyTorch, or this reader, does not have."""


# ---- convolutions and pools

def _padding(x, kernel, strides, dilations, pads, auto_pad):
    """What goes before and behind each dimension."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        more = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations)]
        less, rest = [m // 2 for m in more], [m - m // 2 for m in more]
        return (less, rest) if auto_pad == "SAME_UPPER" else (rest, less)
    pads = pads or [0] * 2 * len(kernel)
    return pads[:len(kernel)], pads[len(kernel):]


def _pad_ends(x, before, after, value=0.0):
    return F.pad(x, [p for ends in zip(reversed(before), reversed(after)) for p in ends], value=value)


def conv(x, w, bias=None, kernel_shape=None, strides=None, pads=None, dilations=None, group=1, auto_pad="NOTSET"):
    n = w.dim() - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    before, after = _padding(x, w.shape[2:], strides, dilations, pads, auto_pad)
    if before != after:
        x, before = _pad_ends(x, before, after), [0] * n
    return (F.conv1d, F.conv2d, F.conv3d)[n - 1](x, w, bias, strides, before, dilations, group)


def conv_transpose(x, w, bias=None, kernel_shape=None, strides=None, pads=None, dilations=None, group=1, auto_pad="NOTSET",
                   output_padding=None):
    n = w.dim() - 2
    strides, dilations, output_padding = strides or [1] * n, dilations or [1] * n, output_padding or [0] * n
    if auto_pad not in ("NOTSET", "VALID"):
        raise Lacking(f"ConvTranspose with auto_pad {auto_pad}")
    pads = pads or [0] * 2 * n
    before, after = pads[:n], pads[n:]
    crop = before != after
    y = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1](
        x, w, bias, strides, 0 if crop else before, output_padding, group, dilations)
    return _pad_ends(y, [-p for p in before], [-p for p in after]) if crop else y


def max_pool(x, kernel_shape, strides=None, pads=None, dilations=None, auto_pad="NOTSET", ceil_mode=0, storage_order=0):
    n = len(kernel_shape)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    before, after = _padding(x, kernel_shape, strides, dilations, pads, auto_pad)
    if before != after or any(2 * p > k for p, k in zip(before, kernel_shape)):
        x, before = _pad_ends(x, before, after, -math.inf), [0] * n
    return (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1](x, kernel_shape, strides, before, dilations, bool(ceil_mode))


def average_pool(x, kernel_shape, strides=None, pads=None, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0):
    n = len(kernel_shape)
    strides = strides or [1] * n
    before, after = _padding(x, kernel_shape, strides, [1] * n, pads, auto_pad)
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
    if before == after and all(2 * p <= k for p, k in zip(before, kernel_shape)):
        return pool(x, kernel_shape, strides, before, bool(ceil_mode), bool(count_include_pad))
    y = pool(_pad_ends(x, before, after), kernel_shape, strides, 0, bool(ceil_mode))
    if count_include_pad:
        return y
    return y / pool(_pad_ends(torch.ones_like(x), before, after), kernel_shape, strides, 0, bool(ceil_mode))


def over_pixels(function):
    return lambda x: function(x, tuple(range(2, x.dim())), keepdim=True)


# ---- resizing

def _source(i, size, result, scale, mode):
    """Where the i-th of `result` elements lies among `size`."""
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return 0.0 if mode == "pytorch_half_pixel" and result == 1 else (i + 0.5) / scale - 0.5
    if mode == "align_corners":
        return i * (size - 1) / (result - 1) if result > 1 else 0.0
    if mode == "asymmetric":
        return i / scale
    raise Lacking(f"Resize by {mode}")


ROUNDINGS = {"round_prefer_floor": lambda at: math.ceil(at - 0.5), "round_prefer_ceil": lambda at: math.floor(at + 0.5),
             "floor": math.floor, "ceil": math.ceil}


@functools.lru_cache
def _table(indices, device):
    """Brought to the device once."""
    return torch.tensor(indices, device=device)


def _nearest(x, sizes, scales, by, rounding):
    tables = [[min(max(ROUNDINGS[rounding](_source(i, size, result, scale, by)), 0), size - 1) for i in range(result)]
              for size, result, scale in zip(x.shape, sizes, scales)]
    plain = all(table == [i * size // len(table) for i in range(len(table))] for size, table in zip(x.shape, tables))
    if plain and x.dim() in (3, 4, 5) and tuple(sizes[:2]) == tuple(x.shape[:2]):
        return F.interpolate(x, size=sizes[2:], mode="nearest")
    for d, table in enumerate(tables):
        if table != list(range(x.shape[d])):
            x = x.index_select(d, _table(tuple(table), x.device))
    return x


def resize(x, roi=None, scales=None, sizes=None, mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_floor",
           cubic_coeff_a=-0.75, exclude_outside=0, antialias=0, extrapolation_value=0.0):
    if sizes:
        scales = [result / size for size, result in zip(x.shape, sizes)]
    else:
        sizes = [math.floor(size * scale) for size, scale in zip(x.shape, scales)]
    by = coordinate_transformation_mode
    if mode == "nearest":
        return _nearest(x, sizes, scales, by, nearest_mode)
    whole = all(abs(result - size * scale) < 1e-3 for size, result, scale in zip(x.shape, sizes, scales))
    odd = cubic_coeff_a != -0.75 or exclude_outside or antialias or not whole or tuple(sizes[:2]) != tuple(x.shape[:2])
    odd = odd or (by == "pytorch_half_pixel" and any(result == 1 < size for size, result in zip(x.shape, sizes)))
    if odd or by not in ("half_pixel", "pytorch_half_pixel", "align_corners") or (mode == "cubic" and x.dim() != 4):
        raise Lacking(f"Resize, {mode}, {by}, in this way")
    name = "bicubic" if mode == "cubic" else {3: "linear", 4: "bilinear", 5: "trilinear"}[x.dim()]
    return F.interpolate(x, size=sizes[2:], mode=name, align_corners=by == "align_corners")


def upsample(x, scales, mode="nearest"):
    return resize(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


# ---- products and normalizations

def gemm(a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0):
    a = a.t() if transA else a
    if alpha == beta == 1 and (c is None or c.dim() == 1):
        return F.linear(a, b if transB else b.t(), c)
    y = alpha * (a @ (b.t() if transB else b))
    return y if c is None else y + beta * c


def batch_norm(x, scale, bias, mean, variance, epsilon=1e-5, momentum=0.9, spatial=1, training_mode=0):
    if training_mode or not spatial:
        raise Lacking("BatchNormalization in training, or by element")
    return F.batch_norm(x, mean, variance, scale, bias, eps=epsilon)


def layer_norm(x, scale=None, bias=None, axis=-1, epsilon=1e-5, stash_type=1):
    return F.layer_norm(x, x.shape[axis % x.dim():], scale, bias, epsilon)


def group_norm(x, scale, bias, num_groups, epsilon=1e-5, stash_type=1):
    each = x.shape[1] // scale.shape[0]  # before opset 21 a number a group
    return F.group_norm(x, num_groups, scale.repeat_interleave(each), bias.repeat_interleave(each), epsilon)


def softmax(function):
    def soft(x, axis=-1, coerced=False):
        if not coerced:
            return function(x, axis)
        return function(x.flatten(axis % x.dim()) if axis % x.dim() else x.reshape(1, -1), -1).reshape(x.shape)
    return soft


def reduction(function):
    def reduce(x, axes=None, keepdims=1, noop_with_empty_axes=0):
        if not axes and noop_with_empty_axes:
            return x
        return function(x, tuple(axes or range(x.dim())), bool(keepdims))
    return reduce


# ---- shapes and movement

def reshape(x, shape, allowzero=0):
    return x.reshape([x.shape[i] if size == 0 and not allowzero else size for i, size in enumerate(shape)])


def flatten(x, axis=1):
    return x.reshape(math.prod(x.shape[:axis]), -1)


def squeeze(x, axes=None):
    return x.squeeze(tuple(axes)) if axes else x.squeeze()


def unsqueeze(x, axes):
    for axis in sorted(a % (x.dim() + len(axes)) for a in axes):
        x = x.unsqueeze(axis)
    return x


def slices(x, starts, ends, axes=None, steps=None):
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps or [1] * len(starts)):
        axis %= x.dim()
        at = range(x.shape[axis])[slice(start, end if step > 0 or end >= -x.shape[axis] else None, step)]
        if step < 0:  # the same elements, upwards, then turned
            at = at[::-1]
        x = x[(slice(None),) * axis + (slice(at.start, at.stop, at.step),)]
        x = x.flip(axis) if step < 0 else x
    return x


def split(x, sizes=None, axis=0, num_outputs=None, split=None, count=None):
    sizes = sizes or split or -(-x.shape[axis] // (num_outputs or count))
    return torch.split(x, sizes, axis)


def _from_front(indices, size):
    return torch.where(indices < 0, indices + size, indices)


def gather(x, indices, axis=0):
    axis %= x.dim()
    y = x.index_select(axis, _from_front(indices.reshape(-1), x.shape[axis]))
    return y.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]])


def gather_elements(x, indices, axis=0):
    return x.gather(axis, _from_front(indices, x.shape[axis]))


def pad(x, pads, value=None, axes=None, mode="constant"):
    axes = [a % x.dim() for a in axes] if axes else list(range(x.dim()))
    ends = [(0, 0)] * x.dim()
    for i, axis in enumerate(axes):
        ends[axis] = (pads[i], pads[i + len(axes)])
    names = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}
    if mode not in names:
        raise Lacking(f"Pad by {mode}")
    if mode == "constant":
        return F.pad(x, [p for end in reversed(ends) for p in end], value=value or 0)
    if any(p for end in ends[:-2] for p in end):
        raise Lacking(f"Pad by {mode} in front of the last two dimensions")
    seen = x.reshape(1, -1, *x.shape[-2:])
    return F.pad(seen, [p for end in reversed(ends[-2:]) for p in end], mode=names[mode]).reshape(*x.shape[:-2], -1, x.shape[-1] + sum(ends[-1]))


def depth_to_space(x, blocksize, mode="DCR"):
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    n, c, h, w = x.shape
    x = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // blocksize**2, h * blocksize, w * blocksize)


def space_to_depth(x, blocksize):
    n, c, h, w = x.shape
    x = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


def expand(x, shape):
    return x.expand(torch.broadcast_shapes(x.shape, tuple(shape)))


def constant_of_shape(shape, value=None):
    return torch.zeros(shape) if value is None else value.reshape(()).expand(shape).clone()


def largest(function):
    def index(x, axis=0, keepdims=1, select_last_index=0):
        if select_last_index:
            raise Lacking("the last of several largest")
        return function(x, axis, keepdim=bool(keepdims))
    return index


# ---- elementwise

def dropout(x, ratio=None, training=None, seed=0):
    if training:
        raise Lacking("Dropout in training")
    return x


def clip(x, low=None, high=None, min=None, max=None):
    low, high = min if low is None else low, max if high is None else high
    return x if low is None and high is None else torch.clamp(x, low, high)


def divide(x, y):
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def prelu(x, slope):
    return torch.where(x < 0, x * slope, x)


def all_of(function):
    return lambda *xs: functools.reduce(function, xs)


def of(function, *parameters):
    return function, frozenset(parameters)


OPERATORS = {name: of(function) for name, function in {
    "Abs": torch.abs, "Add": torch.add, "And": torch.logical_and, "Ceil": torch.ceil, "Cos": torch.cos, "Div": divide, "Equal": torch.eq,
    "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "Greater": torch.gt, "GreaterOrEqual": torch.ge, "HardSwish": F.hardswish,
    "Identity": lambda x: x, "Less": torch.lt, "LessOrEqual": torch.le, "Log": torch.log, "MatMul": torch.matmul, "Max": all_of(torch.maximum),
    "Mean": lambda *xs: sum(xs) / len(xs), "Min": all_of(torch.minimum), "Mish": F.mish, "Mul": torch.mul, "Neg": torch.neg,
    "Not": torch.logical_not, "Or": torch.logical_or, "PRelu": prelu, "Pow": torch.pow, "Reciprocal": torch.reciprocal, "Relu": F.relu,
    "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin, "Softplus": F.softplus, "Softsign": F.softsign,
    "Sqrt": torch.sqrt, "Sub": torch.sub, "Sum": all_of(torch.add), "Tanh": torch.tanh, "Where": torch.where, "Xor": torch.logical_xor,
    "Celu": lambda x, alpha=1.0: F.celu(x, alpha), "Elu": lambda x, alpha=1.0: F.elu(x, alpha),
    "Gelu": lambda x, approximate="none": F.gelu(x, approximate=approximate),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: torch.clamp(x * alpha + beta, 0, 1),
    "LeakyRelu": lambda x, alpha=0.01: F.leaky_relu(x, alpha), "Selu": F.selu,
    "ThresholdedRelu": lambda x, alpha=1.0: F.threshold(x, alpha, 0),
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": max_pool, "AveragePool": average_pool,
    "GlobalAveragePool": over_pixels(torch.mean), "GlobalMaxPool": over_pixels(torch.amax), "Gemm": gemm,
    "BatchNormalization": batch_norm, "LayerNormalization": layer_norm, "GroupNormalization": group_norm,
    "InstanceNormalization": lambda x, scale, bias, epsilon=1e-5: F.instance_norm(x, weight=scale, bias=bias, eps=epsilon),
    "Softmax": softmax(torch.softmax), "LogSoftmax": softmax(torch.log_softmax),
    "Concat": lambda *xs, axis: torch.cat(xs, axis), "Transpose": lambda x, perm=None: x.permute(perm or list(range(x.dim()))[::-1]),
    "Flatten": flatten, "Gather": gather, "GatherElements": gather_elements, "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth,
    "ArgMax": largest(torch.argmax), "ArgMin": largest(torch.argmin), "Einsum": lambda *xs, equation: torch.einsum(equation, *xs),
}.items()} | {
    "Clip": of(clip, 1, 2), "Dropout": of(dropout, 1, 2), "Reshape": of(reshape, 1), "Squeeze": of(squeeze, 1),
    "Unsqueeze": of(unsqueeze, 1), "Slice": of(slices, 1, 2, 3, 4),
    "Split": of(split, 1), "Pad": of(pad, 1, 2, 3), "Expand": of(expand, 1), "Tile": of(lambda x, repeats: x.repeat(repeats), 1),
    "ConstantOfShape": of(constant_of_shape, 0), "Range": of(lambda *ends: torch.arange(*ends), 0, 1, 2), "Resize": of(resize, 1, 2, 3),
    "Upsample": of(upsample, 1),
} | {f"Reduce{name}": of(reduction(function), 1) for name, function in {
    "Mean": torch.mean, "Sum": torch.sum, "Max": torch.amax, "Min": torch.amin,
    "SumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keep), "L1": lambda x, axes, keep: torch.sum(x.abs(), axes, keep),
    "L2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep), "LogSumExp": torch.logsumexp}.items()}
