"""A linear layer whose weights seldom change, with what follows it, as a convolution of 1x1 over all its rows."""
import math

import torch
import torch.nn.functional as F

from .. import _c
from .._geometry import Family, geometry_of
from . import _constant, _run
from ._activations import activation_of

FAMILY = Family(2, False)
GEOMETRY = geometry_of(FAMILY, (1, 1))
# activation(scale * (input weight^T + bias) + residual); scale has a value an output, in any shape.
SCHEMA = "(Tensor input, Tensor weight, Tensor? bias, Tensor? scale, Tensor? residual, str activation) -> Tensor"


def output_shape(x, weight, bias, scale, residual, activation):
    """Raises for what does not fit. Constants may be of another dtype than x."""
    activation_of(activation)
    if weight.dim() != 2 or x.dim() < 1 or x.shape[-1] != weight.shape[1]:
        raise _c.BadProblem(f"faltung: weight {tuple(weight.shape)} does not fit an input of {tuple(x.shape)}; it is K C, the input ... C")
    for name, constant in (("weight", weight), ("bias", bias), ("scale", scale)):
        if constant is not None:
            _run.check_alike(name, constant.new_empty(0, dtype=x.dtype), x)
    for name, constant in (("bias", bias), ("scale", scale)):
        if constant is not None and constant.numel() != weight.shape[0]:
            raise _c.BadProblem(f"faltung: {name} has the shape {tuple(constant.shape)}; weight has {weight.shape[0]} outputs")
    shape = [*x.shape[:-1], weight.shape[0]]
    if residual is not None:
        _run.check_alike("residual", residual, x)
        if list(residual.shape) != shape:
            raise _c.BadProblem(f"faltung: residual has the shape {tuple(residual.shape)}; it is added to {tuple(shape)}")
    return shape


def fake(x, weight, bias, scale, residual, activation):
    return x.new_empty(output_shape(x, weight, bias, scale, residual, activation))


def flops(x, weight, *rest, out_shape=None, **keywords):
    return 2 * math.prod(x) * weight[0]


def wanted(x, weight, has_bias, adds, activation, like):
    """What plan_for takes; x and weight: shapes."""
    image, filter = torch.Size((1, x[-1], 1, math.prod(x[:-1]))), torch.Size((*weight, 1, 1))
    return "fwd", FAMILY, image, filter, GEOMETRY, like, True, _run.made_bias(has_bias, like), adds, activation


def compute(operator, family, x, weight, bias, scale, residual, activation):
    shape = output_shape(x, weight, bias, scale, residual, activation)
    y = x.new_empty(shape)
    if y.numel() == 0:
        return y
    if x.is_cuda and x.dtype is torch.float32:  # what PyTorch allows products in TF32 is another setting than convolutions'
        return y.copy_(composed(x, weight, bias, scale, residual, (activation,)))
    made = _constant.made_of(operator, weight, (bias, scale, None, None, None), 0.0, None, x.dtype)
    plan = _run.plan_for(*wanted(x.shape, weight.shape, made.bias is not None, residual is not None, activation, x))
    w, packed, rests = made.pack(plan, True, x.device)
    read, b = [_run.dense(t, False) for t in (x, residual)], _run.dense(made.bias, False)
    _run.run(plan, read[0], w, y, b, read[1], packed)
    key = _run.remember(operator, (x, weight, bias, scale, residual, activation), plan, (x, residual), read, y, packed, w, b, rests)
    if key is not None:
        made.keys.append(key)
    return y


def composed(x, weight, bias, scale, residual, rest):
    """The same of operators that have gradients."""
    activate = activation_of(rest[0])
    y = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    if scale is not None:
        y = y * scale.to(x.dtype).flatten()
    return activate(y if residual is None else y + residual)
