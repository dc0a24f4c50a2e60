"""Convolutions of arrays: the problem is read off their shapes and strides, its plan is made once and kept."""
import sys
from functools import lru_cache

from ._c import BadProblem, describe
from ._geometry import CHANNELS_LAST, FAMILIES, common_layout, dense_strides, geometry_of, problem_text


def empty_strided(like, shape, strides):
    """A new array of the library, dtype and device of like; strides in elements, those of one of the layouts."""
    library = type(like).__module__.split(".")[0]
    if library == "torch":
        return sys.modules["torch"].empty_strided(shape, strides, dtype=like.dtype, device=like.device)
    if library in ("numpy", "cupy"):
        empty = sys.modules[library].empty
        if strides[1] != 1:
            return empty(shape, like.dtype)
        n, c, *image = shape
        return empty((n, *image, c), like.dtype).transpose(0, len(shape) - 1, *range(1, len(shape) - 1))
    raise BadProblem(f"how {library} makes arrays is not known here; give the result's array as out")


def _check(family, **arrays):
    """That they are arrays that a convolution can be of; by name, as describe tells them."""
    first, (_, _, dtype, device) = next(iter(arrays.items()))
    for name, (shape, _, own_dtype, own_device) in arrays.items():
        if len(shape) != family.dimensions + 2:
            raise BadProblem(f"{name} has the shape {shape}; {('three', 'four', 'five')[family.dimensions - 1]} sizes are wanted: "
                             f"x, y are {family.image_sizes}, w is {family.filter_sizes}")
        if own_dtype not in ("f32", "f16", "bf16"):
            raise BadProblem(f"{name} is of another type than f32, f16 and bf16, which are computed: convert it")
        if own_dtype != dtype or own_device != device:
            raise BadProblem(f"{name} is {own_dtype} on {own_device}, {first} is {dtype} on {device}; all must be alike")


_NAMES = {"fwd": ("x", "w"), "bwd_d": ("dy", "w"), "bwd_w": ("x", "dy")}


@lru_cache(maxsize=4096)
def _plan(direction, family, first, second, size, stride, padding, dilation, groups, output_padding, math, threads, residual=None,
          bias=False, activation=None, pool=None, affine=None):
    """first, second, residual: as describe tells them; size: of the gradient that is computed; affine: as _affine has it."""
    from ._engine import plan
    arrays = dict(zip(_NAMES[direction], (first, second)))
    if residual is not None:
        arrays["residual"] = residual
    _check(family, **arrays)
    x_shape = size if direction == "bwd_d" else first[0]
    w_shape = size if direction == "bwd_w" else second[0]
    if size is not None and len(size) != family.dimensions + 2:
        raise BadProblem(f"the gradient's shape is {size}; x is {family.image_sizes}, w is {family.filter_sizes}")
    geometry = geometry_of(family, w_shape[2:], stride, padding, dilation, groups, output_padding)
    layout = common_layout(**{name: array[:2] for name, array in arrays.items()})
    text = problem_text(direction, family, x_shape, w_shape, geometry, first[2], layout, math, bias, residual is not None,
                        activation, pool, affine)
    return plan(text, first[3], threads=threads)


def _affine(scale, shift, activation):
    """The problem's word for what x is read through."""
    if scale is None and shift is None and activation is None:
        return None
    if scale is None or shift is None:
        raise BadProblem(f"{'input_scale' if scale is None else 'input_shift'} is missing: x is read through a scale and a shift")
    if activation not in (None, "relu"):
        raise BadProblem(f"input_activation is {activation!r}; x is read through relu, or None")
    return "affine_relu" if activation else "affine"


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value


_FORWARD = """The {kind} of x ({x}) with the filter w ({w}), and what follows it in a network, in this order: b (K) added, residual
(of the output's shape, {y}) added, the activation, the pool. Returns y ({y}), or pooled; ``out`` takes it. All arrays have one
dtype (f32, f16, bf16), one device and one layout (contiguous, or channels_last strides).

``stride``, ``dilation``: one int or {dimensions}. ``padding``: that too, or twice as many, before and after each{words}.{outpad}
``activation``: relu, relu6, leaky_relu(0.01), sigmoid, silu, gelu, gelu_tanh, hardswish, hardsigmoid(0.2),
clip(-1,6), or prelu with ``slopes`` (K, of f32).
``pool`` (of one and two dimensions): maxpool2, avgpool3s2p1, ... ``math``: the accuracy: f32, tf32, f16, bf16, fast; the dtype's own unless given.
``input_scale``, ``input_shift`` (C, of f32) and ``input_activation`` (relu): x is read through them, as what a normalization before
made of it, and the padding is zero after it. ``threads``: 0 for all. Raises BadProblem or Unsupported."""
_INPUT_GRAD = """The gradient of {name}'s input, of the shape input_size ({x}), from that of its output, dy ({y}), and the weights w
({w}). Options as in :func:`{name}`."""
_WEIGHT_GRAD = """The gradient of {name}'s weights, of the shape weight_size ({w}), from the input x ({x}) and the output's gradient
dy ({y}). Options as in :func:`{name}`."""


def _named(function, family, suffix, text):
    function.__name__ = function.__qualname__ = family.name + suffix
    function.__doc__ = text.format(
        name=family.name, kind="transposed convolution" if family.transposed else "convolution",
        x=family.image_sizes.replace(" ", ", "), w=family.filter_sizes.replace(" ", ", "),
        y=("N, K, Q", "N, K, P, Q", "N, K, Z, P, Q")[family.dimensions - 1],
        dimensions=("(length,)", "(height, width)", "(depth, height, width)")[family.dimensions - 1],
        words="" if family.transposed else ', "same" or "valid"',
        outpad=" ``output_padding``: how much\nlarger the output is, below the stride." if family.transposed else "")
    return function


def _forward(family):
    def function(x, w, b=None, *, stride=1, padding=0, dilation=1, groups=1, output_padding=0, residual=None, activation=None,
                 pool=None, math=None, out=None, threads=0, slopes=None, input_scale=None, input_shift=None, input_activation=None):
        plan = _plan("fwd", family, describe(x), describe(w), None, _hashable(stride), _hashable(padding), _hashable(dilation),
                     groups, _hashable(output_padding), math, threads, None if residual is None else describe(residual),
                     b is not None, activation, pool, _affine(input_scale, input_shift, input_activation))
        if input_scale is None and slopes is None:
            return plan(x, w, b, residual, out)
        return plan(x, w, b, residual, out, scale=input_scale, shift=input_shift, slopes=slopes)
    return _named(function, family, "", _FORWARD)


def _input_grad(family):
    def function(dy, w, input_size, *, stride=1, padding=0, dilation=1, groups=1, output_padding=0, math=None, out=None, threads=0):
        plan = _plan("bwd_d", family, describe(dy), describe(w), tuple(input_size), _hashable(stride), _hashable(padding),
                     _hashable(dilation), groups, _hashable(output_padding), math, threads)
        return plan(dy, w, None, None, out)
    return _named(function, family, "_input_grad", _INPUT_GRAD)


def _weight_grad(family):
    def function(x, dy, weight_size, *, stride=1, padding=0, dilation=1, groups=1, output_padding=0, math=None, out=None, threads=0,
                 input_scale=None, input_shift=None, input_activation=None):
        plan = _plan("bwd_w", family, describe(x), describe(dy), tuple(weight_size), _hashable(stride), _hashable(padding),
                     _hashable(dilation), groups, _hashable(output_padding), math, threads,
                     affine=_affine(input_scale, input_shift, input_activation))
        if input_scale is None:
            return plan(x, dy, None, None, out)
        return plan(x, dy, None, None, out, scale=input_scale, shift=input_shift)
    return _named(function, family, "_weight_grad", _WEIGHT_GRAD)


conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_forward, FAMILIES)
(conv1d_input_grad, conv2d_input_grad, conv3d_input_grad, conv_transpose1d_input_grad, conv_transpose2d_input_grad,
 conv_transpose3d_input_grad) = map(_input_grad, FAMILIES)
(conv1d_weight_grad, conv2d_weight_grad, conv3d_weight_grad, conv_transpose1d_weight_grad, conv_transpose2d_weight_grad,
 conv_transpose3d_weight_grad) = map(_weight_grad, FAMILIES)


def channels_last(array):
    """A copy of array (N, C, and an image of one to three dimensions) in channels_last order: the same shape, the channels of a
    pixel side by side. For NumPy and CuPy; PyTorch has ``.to(memory_format=torch.channels_last)``."""
    if len(array.shape) not in (3, 4, 5):
        raise BadProblem(f"an array of shape {tuple(array.shape)} is no image; N C and one to three sizes are wanted")
    copy = empty_strided(array, array.shape, dense_strides(array.shape, CHANNELS_LAST))
    copy[...] = array
    return copy
