"""Convolutions of arrays: the problem is read off their shapes and strides, its plan is made once and kept."""
import sys
from functools import lru_cache

from ._c import BadProblem, describe

CONTIGUOUS, CHANNELS_LAST = "nchw", "nhwc"


def pair(value, what):
    """An int or a pair of ints as a pair."""
    if isinstance(value, int):
        return value, value
    value = tuple(value)
    if len(value) == 1:
        return value * 2
    if len(value) != 2:
        raise BadProblem(f"{what} is {value}; give one int, or one for the height and one for the width")
    return value


def dense_strides(shape, layout):
    n, c, h, w = shape
    return (c * h * w, 1, w * c, c) if layout == CHANNELS_LAST else (c * h * w, h * w, w, 1)


def layout_of(shape, strides):
    """The layouts whose strides these are: both where the channels or the image are one, none where there are gaps."""
    return [layout for layout in (CONTIGUOUS, CHANNELS_LAST)
            if all(n == 1 or s == d for n, s, d in zip(shape, strides, dense_strides(shape, layout)))]


def common_layout(**arrays):
    """The layout of all of them; arrays by name as (shape, strides)."""
    left = [CONTIGUOUS, CHANNELS_LAST]
    for name, (shape, strides) in arrays.items():
        own = layout_of(shape, strides)
        if not own:
            raise BadProblem(f"{name} has the strides {tuple(strides)}; no layout has those for the shape {tuple(shape)}: give "
                             f"a contiguous array, or one in channels_last order (faltung.channels_last)")
        left = [layout for layout in left if layout in own]
        if not left:
            first = next(iter(arrays))
            raise BadProblem(f"{name} is {'contiguous' if own[0] == CONTIGUOUS else 'in channels_last order'} and {first} is "
                             f"not; they must be alike: faltung.channels_last copies an array into that order")
    return left[0]


def problem_text(direction, x_shape, w_shape, stride, padding, dilation, groups, dtype, layout, math=None, bias=False,
                 residual=False, activation=None, pool=None):
    """The canonical grammar's text; shapes are N C H W and K C/groups R S, padding is top, bottom, left, right."""
    n, c, h, w = x_shape
    k, c_of_group, r, s = w_shape
    if c_of_group * groups != c:
        raise BadProblem(f"w has {c_of_group} input channels a group and there are {groups} groups, which makes "
                         f"{c_of_group * groups}; x has {c}")
    words = [direction, f"n{n}c{c}h{h}w{w}k{k}r{r}s{s}"]
    words.append("st%dx%d" % stride)
    words.append("pad%d.%d.%d.%d" % padding)
    words.append("dil%dx%d" % dilation)
    words += [f"g{groups}", dtype, layout]
    words += [f"math={math}"] if math else []
    words += ["bias"] if bias else []
    words += ["residual"] if residual else []
    words += [activation] if activation else []
    words += [pool] if pool else []
    return ":".join(words)


def four_sides(padding, kernel, stride, dilation):
    """torch's padding ("same", "valid", an int, a pair), or four sides, as top, bottom, left, right."""
    if padding == "valid":
        return 0, 0, 0, 0
    if padding == "same":
        if stride != (1, 1):
            raise BadProblem(f"padding='same' with the stride {stride}; it is for a stride of 1")
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        return total[0] // 2, total[0] - total[0] // 2, total[1] // 2, total[1] - total[1] // 2
    if isinstance(padding, str):
        raise BadProblem(f"padding is '{padding}'; it is 'same', 'valid', or numbers")
    if not isinstance(padding, int) and len(padding) == 4:
        return tuple(padding)
    h, w = pair(padding, "padding")
    return h, h, w, w


def empty_strided(like, shape, strides):
    """A new array of the library, dtype and device of like; strides in elements, those of one of the layouts."""
    library = type(like).__module__.split(".")[0]
    if library == "torch":
        return sys.modules["torch"].empty_strided(shape, strides, dtype=like.dtype, device=like.device)
    if library in ("numpy", "cupy"):
        empty = sys.modules[library].empty
        if strides[1] != 1:
            return empty(shape, like.dtype)
        n, c, h, w = shape
        return empty((n, h, w, c), like.dtype).transpose(0, 3, 1, 2)
    raise BadProblem(f"how {library} makes arrays is not known here; give the result's array as out")


def _check(**arrays):
    """That they are arrays that a convolution can be of; by name, as describe tells them."""
    first, (_, _, dtype, device) = next(iter(arrays.items()))
    for name, (shape, _, own_dtype, own_device) in arrays.items():
        if len(shape) != 4:
            raise BadProblem(f"{name} has the shape {shape}; four sizes are wanted: x, y are N C H W, w is K C/groups R S")
        if own_dtype not in ("f32", "f16", "bf16"):
            raise BadProblem(f"{name} is of another type than f32, f16 and bf16, which are computed: convert it")
        if own_dtype != dtype or own_device != device:
            raise BadProblem(f"{name} is {own_dtype} on {own_device}, {first} is {dtype} on {device}; all must be alike")


_NAMES = {"fwd": ("x", "w"), "bwd_d": ("dy", "w"), "bwd_w": ("x", "dy")}


@lru_cache(maxsize=4096)
def _plan(direction, first, second, residual, size, stride, padding, dilation, groups, bias, activation, pool, math, threads):
    """first, second, residual: as describe tells them; size: of the gradient that is computed."""
    from ._engine import plan
    arrays = dict(zip(_NAMES[direction], (first, second)))
    if residual is not None:
        arrays["residual"] = residual
    _check(**arrays)
    x_shape = size if direction == "bwd_d" else first[0]
    w_shape = size if direction == "bwd_w" else second[0]
    stride, dilation = pair(stride, "stride"), pair(dilation, "dilation")
    sides = four_sides(padding, w_shape[2:], stride, dilation)
    layout = common_layout(**{name: array[:2] for name, array in arrays.items()})
    text = problem_text(direction, x_shape, w_shape, stride, sides, dilation, groups, first[2], layout, math, bias,
                        residual is not None, activation, pool)
    return plan(text, first[3], threads=threads)


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value


def conv2d(x, w, b=None, *, stride=1, padding=0, dilation=1, groups=1, residual=None, activation=None, pool=None, math=None,
           out=None, threads=0):
    """The convolution of x (N, C, H, W) with the filter w (K, C/groups, R, S), and what follows it in a network, in this
    order: b (K) added, residual (N, K, P, Q) added, the activation, the pool. Returns y (N, K, P, Q), or pooled; ``out``
    takes it. All arrays have one dtype (f32, f16, bf16), one device and one layout (contiguous, or channels_last strides).

    ``stride``, ``dilation``: one int or (height, width). ``padding``: that too, or (top, bottom, left, right), "same" or
    "valid". ``activation``: relu, relu6, leaky_relu(0.01), sigmoid, silu, gelu, gelu_tanh, hardswish. ``pool``: maxpool2,
    avgpool3s2p1, ... ``math``: the accuracy: f32, tf32, f16, bf16, fast; the dtype's own unless given. ``threads``: 0 for
    all. Raises BadProblem or Unsupported."""
    plan = _plan("fwd", describe(x), describe(w), None if residual is None else describe(residual), None, _hashable(stride),
                 _hashable(padding), _hashable(dilation), groups, b is not None, activation, pool, math, threads)
    return plan(x, w, b, residual, out)


def conv2d_input_grad(dy, w, input_size, *, stride=1, padding=0, dilation=1, groups=1, math=None, out=None, threads=0):
    """The gradient of conv2d's input, of the shape input_size (N, C, H, W), from that of its output, dy (N, K, P, Q), and
    the weights w (K, C/groups, R, S). Options as in :func:`conv2d`."""
    plan = _plan("bwd_d", describe(dy), describe(w), None, tuple(input_size), _hashable(stride), _hashable(padding),
                 _hashable(dilation), groups, False, None, None, math, threads)
    return plan(dy, w, None, None, out)


def conv2d_weight_grad(x, dy, weight_size, *, stride=1, padding=0, dilation=1, groups=1, math=None, out=None, threads=0):
    """The gradient of conv2d's weights, of the shape weight_size (K, C/groups, R, S), from the input x (N, C, H, W) and the
    output's gradient dy (N, K, P, Q). Options as in :func:`conv2d`."""
    plan = _plan("bwd_w", describe(x), describe(dy), None, tuple(weight_size), _hashable(stride), _hashable(padding),
                 _hashable(dilation), groups, False, None, None, math, threads)
    return plan(x, dy, None, None, out)


def conv1d(x, w, b=None, *, stride=1, padding=0, dilation=1, groups=1, residual=None, activation=None, math=None, out=None,
           threads=0):
    """As :func:`conv2d`, for x (N, C, L) and w (K, C/groups, S): an image of one row. Returns y (N, K, Q)."""
    def row(array, name):
        if array is None:
            return None
        if len(array.shape) != 3:
            raise BadProblem(f"{name} has the shape {tuple(array.shape)}; three sizes are wanted: N C L, and w's K C/groups S")
        return array[:, :, None, :]

    if not isinstance(padding, str):
        padding = (0, 0, padding, padding) if isinstance(padding, int) else (0, 0, *padding) if len(padding) == 2 else (0, 0, padding[0], padding[0])
    one = [(1, v if isinstance(v, int) else v[0]) for v in (stride, dilation)]
    y = conv2d(row(x, "x"), row(w, "w"), b, stride=one[0], padding=padding, dilation=one[1], groups=groups,
               residual=row(residual, "residual"), activation=activation, math=math, out=row(out, "out"), threads=threads)
    return y[:, :, 0, :] if out is None else out


def channels_last(array):
    """A copy of array (N, C, H, W) in channels_last order: the same shape, the channels of a pixel side by side. For NumPy
    and CuPy; PyTorch has ``.to(memory_format=torch.channels_last)``."""
    copy = empty_strided(array, array.shape, dense_strides(array.shape, CHANNELS_LAST))
    copy[...] = array
    return copy
