"""torch.ops.faltung: the operators, their fake implementations, autocast and FLOP counts. _autograd.py has their gradients."""
import torch
from torch.library import Library, register_fake, register_vmap
from torch.utils.flop_counter import conv_flop_count, register_flop_formula

from .. import _c
from . import _run
from ._autograd import COMPUTE, KERNELS

_GEOMETRY = "int[] stride, int[] padding, int[] dilation, int groups"
_SCHEMAS = {
    "conv2d": f"(Tensor input, Tensor weight, Tensor? bias, {_GEOMETRY}) -> Tensor",
    "conv2d_input_grad": f"(Tensor grad_output, Tensor weight, SymInt[] input_size, {_GEOMETRY}) -> Tensor",
    "conv2d_weight_grad": f"(Tensor grad_output, Tensor input, SymInt[] weight_size, {_GEOMETRY}) -> Tensor",
    # Without gradients of its own: where they are needed it is composed of conv2d and PyTorch's operators.
    "conv2d_fused": f"(Tensor input, Tensor weight, Tensor? bias, Tensor? residual, {_GEOMETRY}, str activation) -> Tensor",
}

_ops = torch.ops.faltung
_library = Library("faltung", "DEF")
_tags = tuple(getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_exact_strides") if hasattr(torch.Tag, name))


for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema, tags=_tags)
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, COMPUTE[_name], _key)
    _library.impl(_name, KERNELS[_name], "Autograd")


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
