"""torch.ops.faltung: the operators, their fake implementations, gradients, autocast and FLOP counts.

A convolution is linear in each of its arguments, and its gradients are convolutions of the same kind: conv2d,
conv2d_input_grad and conv2d_weight_grad are each other's gradients, so that any number of backward passes is exact.
"""
import torch
import torch.nn.functional as F
from torch.library import Library, register_autograd, register_fake, register_vmap
from torch.utils.flop_counter import conv_flop_count, register_flop_formula

from .. import _c
from . import _run

_GEOMETRY = "int[] stride, int[] padding, int[] dilation, int groups"
_SCHEMAS = {
    "conv2d": f"(Tensor input, Tensor weight, Tensor? bias, {_GEOMETRY}) -> Tensor",
    "conv2d_input_grad": f"(Tensor grad_output, Tensor weight, SymInt[] input_size, {_GEOMETRY}) -> Tensor",
    "conv2d_weight_grad": f"(Tensor grad_output, Tensor input, SymInt[] weight_size, {_GEOMETRY}) -> Tensor",
    # Without gradients of its own: where they are needed it is composed of conv2d and PyTorch's operators.
    "conv2d_fused": f"(Tensor input, Tensor weight, Tensor? bias, Tensor? residual, {_GEOMETRY}, str activation) -> Tensor",
}
ACTIVATIONS = {
    "": lambda y: y, "relu": F.relu, "relu6": F.relu6, "sigmoid": torch.sigmoid, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"), "hardswish": F.hardswish,
}

_library = Library("faltung", "DEF")
_tags = tuple(getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_exact_strides") if hasattr(torch.Tag, name))


def activation_of(name):
    """The activation as a function of PyTorch's."""
    if name.startswith("leaky_relu(") and name.endswith(")"):
        return lambda y: F.leaky_relu(y, float(name[len("leaky_relu("):-1]))
    if name not in ACTIVATIONS:
        raise _c.BadProblem(f"faltung: activation is '{name}'; it is one of leaky_relu(0.01), {', '.join(filter(None, ACTIVATIONS))}")
    return ACTIVATIONS[name]


_kernels = {
    "conv2d": lambda x, w, b, *geometry: _run.forward(x, w, b, None, *geometry, ""),
    "conv2d_input_grad": _run.input_grad,
    "conv2d_weight_grad": _run.weight_grad,
    "conv2d_fused": _run.forward,
}
for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema, tags=_tags)
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, _kernels[_name], _key)


# ------------------------------------------------------------------------------------------ fake tensors

@register_fake("faltung::conv2d", lib=_library)
def _(x, w, b, stride, padding, dilation, groups):
    _run.check(x, w, b, groups, stride, padding, dilation)
    return _run.empty(_run.output_shape(x.shape, w.shape, stride, padding, dilation), x, _run.wants_channels_last(x, w))


@register_fake("faltung::conv2d_fused", lib=_library)
def _(x, w, b, residual, stride, padding, dilation, groups, activation):
    _run.check(x, w, b, groups, stride, padding, dilation)
    return _run.empty(_run.output_shape(x.shape, w.shape, stride, padding, dilation), x, _run.wants_channels_last(x, w))


@register_fake("faltung::conv2d_input_grad", lib=_library)
def _(dy, w, input_size, stride, padding, dilation, groups):
    return _run.empty(list(input_size), dy, _run.wants_channels_last(dy, w))


@register_fake("faltung::conv2d_weight_grad", lib=_library)
def _(dy, x, weight_size, stride, padding, dilation, groups):
    return _run.empty(list(weight_size), x, _run.wants_channels_last(x, dy))


# --------------------------------------------------------------------------------------------- gradients

_ops = torch.ops.faltung


def _keep(count):
    """Saves the tensors of the inputs, and keeps what follows them: count of the leading ones are tensors."""
    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.rest = inputs[-4:]
        ctx.bias = count == 3 and inputs[2] is not None
    return setup


def _conv2d_backward(ctx, dy):
    x, w = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dx = _ops.conv2d_input_grad(dy, w, x.shape, *ctx.rest) if needs[0] else None
    dw = _ops.conv2d_weight_grad(dy, x, w.shape, *ctx.rest) if needs[1] else None
    db = dy.sum((0, 2, 3)) if ctx.bias and needs[2] else None
    return dx, dw, db, None, None, None, None


def _input_grad_backward(ctx, ddx):
    dy, w = ctx.saved_tensors
    needs = ctx.needs_input_grad
    ddy = _ops.conv2d(ddx, w, None, *ctx.rest) if needs[0] else None
    dw = _ops.conv2d_weight_grad(dy, ddx, w.shape, *ctx.rest) if needs[1] else None
    return ddy, dw, None, None, None, None, None


def _weight_grad_backward(ctx, ddw):
    dy, x = ctx.saved_tensors
    needs = ctx.needs_input_grad
    ddy = _ops.conv2d(x, ddw, None, *ctx.rest) if needs[0] else None
    dx = _ops.conv2d_input_grad(dy, ddw, x.shape, *ctx.rest) if needs[1] else None
    return ddy, dx, None, None, None, None, None


register_autograd("faltung::conv2d", _conv2d_backward, setup_context=_keep(3), lib=_library)
register_autograd("faltung::conv2d_input_grad", _input_grad_backward, setup_context=_keep(2), lib=_library)
register_autograd("faltung::conv2d_weight_grad", _weight_grad_backward, setup_context=_keep(2), lib=_library)


def _fused_autograd(x, w, b, residual, stride, padding, dilation, groups, activation):
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, w, b, residual)):
        y = _ops.conv2d(x, w, b, stride, padding, dilation, groups)
        return activation_of(activation)(y if residual is None else y + residual)
    with torch._C._AutoDispatchBelowAutograd():
        return _ops.conv2d_fused(x, w, b, residual, stride, padding, dilation, groups, activation)


_library.impl("conv2d_fused", _fused_autograd, "Autograd")


# ---------------------------------------------------------------------------------------------- autocast

def _autocast(name, device_type):
    op = getattr(_ops, name)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def kernel(*arguments):
        dtype = torch.get_autocast_dtype(device_type)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*(a.to(dtype) if isinstance(a, torch.Tensor) and a.dtype in _run.DTYPES else a for a in arguments))
    return kernel


for _name in ("conv2d", "conv2d_fused"):
    for _key, _type in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
        _library.impl(_name, _autocast(_name, _type), _key)


# --------------------------------------------------------------------------------------- what is counted

@register_flop_formula(_ops.conv2d)
def _(x_shape, w_shape, *rest, out_shape=None, **kwargs):
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=False)


@register_flop_formula(_ops.conv2d_fused)
def _(x_shape, w_shape, *rest, out_shape=None, **kwargs):
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=False)


@register_flop_formula(_ops.conv2d_input_grad)
def _(dy_shape, w_shape, *rest, out_shape=None, **kwargs):
    return conv_flop_count(out_shape, w_shape, dy_shape, transposed=False)


@register_flop_formula(_ops.conv2d_weight_grad)
def _(dy_shape, x_shape, *rest, out_shape=None, **kwargs):
    return conv_flop_count(x_shape, out_shape, dy_shape, transposed=False)


def _no_vmap(name):
    def declined(info, in_dims, *arguments):
        raise _c.Unsupported(f"faltung::{name} is not to be had under vmap; make the mapped dimension part of the batch "
                             f"(reshape N C H W), or use torch.nn.functional.conv2d there")
    return declined


for _name in _SCHEMAS:
    register_vmap(f"faltung::{_name}", _no_vmap(_name), lib=_library)
