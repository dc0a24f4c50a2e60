"""As torch.nn.functional, by faltung's kernels."""
import torch

from .._geometry import FAMILIES, geometry_of
from ._activations import activation_of

_DOC = """torch.nn.functional.{name}, and what follows it in one pass over memory: ``residual`` (of the output's shape) added, then
``activation`` (relu, relu6, leaky_relu(0.01), sigmoid, silu, gelu, gelu_tanh, hardswish, hardsigmoid(0.2), clip(-1,6)).

input: {x}{last}, float32, float16 or bfloat16; weight: {w}; bias: K. padding also takes two numbers for each dimension: before
and after. Returns the output{last_out}. Where a gradient is needed the activation and the residual are PyTorch's own operators."""


def _named(function, family):
    function.__name__ = function.__qualname__ = family.name
    two = family.dimensions > 1
    function.__doc__ = _DOC.format(name=family.name, x=family.image_sizes, w=family.filter_sizes,
                                   last=", contiguous or channels_last (others are copied)" if two else "",
                                   last_out=", channels_last if input or weight is" if two else "")
    return function


def _call(family, tensors, g, activation):
    geometry = (g.stride, g.padding, g.dilation, g.groups) + ((g.output_padding,) if family.transposed else ())
    if tensors[3] is None and not activation:
        return getattr(torch.ops.faltung, family.name)(*tensors[:3], *geometry)
    activation_of(activation or "")
    return getattr(torch.ops.faltung, family.name + "_fused")(*tensors, *geometry, activation or "")


def _plain(family):
    def function(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, residual=None, activation=None):
        g = geometry_of(family, tuple(weight.shape[2:]), stride, padding, dilation, groups)
        return _call(family, (input, weight, bias, residual), g, activation)
    return _named(function, family)


def _transposed(family):
    def function(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, *, residual=None,
                 activation=None):
        g = geometry_of(family, tuple(weight.shape[2:]), stride, padding, dilation, groups, output_padding)
        return _call(family, (input, weight, bias, residual), g, activation)
    return _named(function, family)


conv1d, conv2d, conv3d = map(_plain, FAMILIES[:3])
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, FAMILIES[3:])
