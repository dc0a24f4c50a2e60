"""What a convolution is but its data: its family, how the filter moves, sizes, memory layouts, and the text of its problem."""
from collections import namedtuple
from collections.abc import Iterable, Sequence

from ._c import BadProblem

CONTIGUOUS, CHANNELS_LAST = "nchw", "nhwc"  # the problem's words, in any number of dimensions
_IMAGE, _FILTER = "dhw", "trs"
_SIZES = {1: ("N C L", "K C/groups S", "C K/groups S"), 2: ("N C H W", "K C/groups R S", "C K/groups R S"),
          3: ("N C D H W", "K C/groups T R S", "C K/groups T R S")}


class Family(namedtuple("Family", "dimensions transposed")):
    """The convolutions of 1, 2 or 3 spatial dimensions, or their transposes."""
    __slots__ = ()

    @property
    def name(self):
        return f"conv{'_transpose' if self.transposed else ''}{self.dimensions}d"

    @property
    def image_sizes(self):
        return _SIZES[self.dimensions][0]

    @property
    def filter_sizes(self):
        return _SIZES[self.dimensions][2 if self.transposed else 1]

    def channels(self, w_shape, groups):
        """Input and output channels of the filter."""
        return (w_shape[0], w_shape[1] * groups) if self.transposed else (w_shape[1] * groups, w_shape[0])


FAMILIES = [Family(dimensions, transposed) for transposed in (False, True) for dimensions in (1, 2, 3)]


class Geometry(namedtuple("Geometry", "stride padding dilation groups output_padding")):
    """stride, dilation, output_padding: a number a dimension, depth first; padding: two, before and after."""
    __slots__ = ()


def geometry_of(family, kernel, stride=1, padding=0, dilation=1, groups=1, output_padding=0):
    """A Geometry of what PyTorch's functions take: one int for all dimensions, or one for each; padding also "same", "valid", or
    two for each. kernel: the filter's sizes."""
    stride, dilation = (_one_each(family, v, what) for v, what in ((stride, "stride"), (dilation, "dilation")))
    output_padding = _one_each(family, output_padding, "output_padding")
    if any(output_padding) and not family.transposed:
        raise BadProblem(f"output_padding is {output_padding}; it is for transposed convolutions")
    sides = _sides(family, padding, kernel, stride, dilation)
    for what, value, least in (("stride", stride, 1), ("dilation", dilation, 1), ("padding", sides, 0), ("output_padding", output_padding, 0),
                               ("groups", (groups,), 1)):
        if not _reaches(value, least):
            raise BadProblem(f"{what} is {groups if what == 'groups' else value}; it must be {least} or more, in whole numbers")
    return Geometry(stride, sides, dilation, groups, output_padding)


def _reaches(values, least):
    """Whether they are whole numbers that are no less."""
    return all(hasattr(value, "__index__") for value in values) and min(values) >= least


def _one_each(family, value, what):
    if not isinstance(value, Iterable):
        return (value,) * family.dimensions
    value = tuple(value)
    if len(value) == 1:
        return value * family.dimensions
    if len(value) != family.dimensions:
        raise BadProblem(f"{what} is {value}; give one int, or {family.dimensions}: one for each of the image's dimensions")
    return value


def _sides(family, padding, kernel, stride, dilation):
    if isinstance(padding, str):
        if family.transposed or padding not in ("same", "valid"):
            raise BadProblem(f"padding is '{padding}'; it is {'' if family.transposed else 'same, valid, or '}numbers")
        if padding == "valid":
            return (0, 0) * family.dimensions
        if any(s != 1 for s in stride):
            raise BadProblem(f"padding='same' with the stride {stride}; it is for a stride of 1")
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        return tuple(side for t in total for side in (t // 2, t - t // 2))
    if isinstance(padding, Sequence) and len(padding) == 2 * family.dimensions:
        return tuple(padding)
    return tuple(side for amount in _one_each(family, padding, "padding") for side in (amount, amount))


def output_shape(family, x_shape, w_shape, g):
    """N K and the image; raises where the filter does not fit."""
    image = []
    for i in range(family.dimensions):
        around, reach = g.padding[2 * i] + g.padding[2 * i + 1], g.dilation[i] * (w_shape[2 + i] - 1) + 1
        if family.transposed:
            image.append((x_shape[2 + i] - 1) * g.stride[i] + reach - around + g.output_padding[i])
        else:
            image.append((x_shape[2 + i] + around - reach) // g.stride[i] + 1)
        if image[-1] < 1:
            raise BadProblem(f"a filter of {tuple(w_shape[2:])} with the dilation {g.dilation} does not fit an image of "
                             f"{tuple(x_shape[2:])} with the padding {g.padding}")
    return [x_shape[0], family.channels(w_shape, g.groups)[1], *image]


def dense_strides(shape, layout):
    """In elements."""
    n, c, *image = shape
    strides, inner = [], c if layout == CHANNELS_LAST else 1
    for size in reversed(image):
        strides.insert(0, inner)
        inner = inner * size
    return (inner, 1, *strides) if layout == CHANNELS_LAST else (inner * c, inner, *strides)


def layout_of(shape, strides):
    """The layouts whose strides these are: both where the channels or the image are one, none where there are gaps."""
    return [layout for layout in (CONTIGUOUS, CHANNELS_LAST)
            if all(n == 1 or s == d for n, s, d in zip(shape, strides, dense_strides(shape, layout)))]


def common_layout(**arrays):
    """The layout of all of them; arrays by name as (shape, strides)."""
    left = [CONTIGUOUS, CHANNELS_LAST]
    for name, (shape, strides) in arrays.items():
        if 0 in shape:
            raise BadProblem(f"{name} has the shape {tuple(shape)}; each size must be at least 1")
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


def problem_text(direction, family, x_shape, w_shape, g, dtype, layout, math=None, bias=False, residual=False, activation=None,
                 pool=None, affine=None):
    """The problem in the grammar of docs/problem.md. bias: whether there is one, or "f32" where it is of that dtype beside tensors of 16 bits."""
    c, k = family.channels(w_shape, g.groups)
    if c != x_shape[1]:
        groups = "" if family.transposed else f" a group and there are {g.groups} groups, which makes {c}"
        raise BadProblem(f"w has {c if family.transposed else w_shape[1]} input channels{groups}; x has {x_shape[1]}")
    image = "".join(f"{letter}{size}" for letter, size in zip(_IMAGE[-family.dimensions:], x_shape[2:]))
    taps = "".join(f"{letter}{size}" for letter, size in zip(_FILTER[-family.dimensions:], w_shape[2:]))
    words = [direction, f"n{x_shape[0]}c{c}{image}k{k}{taps}"]
    words += ["transposed"] if family.transposed else []
    words += [f"{word}{'x'.join(map(str, value))}" for word, value in (("st", g.stride), ("dil", g.dilation))]
    words.append(f"pad{'.'.join(map(str, g.padding))}")
    words += [f"outpad{'x'.join(map(str, g.output_padding))}"] if any(g.output_padding) else []
    words += [f"g{g.groups}", dtype, layout]
    words += [f"math={math}"] if math else []
    words += [affine] if affine else []
    words += ["biasf32" if bias == "f32" else "bias"] if bias else []
    words += ["residual"] if residual else []
    words += [activation] if activation else []
    words += [pool] if pool else []
    return ":".join(words)
