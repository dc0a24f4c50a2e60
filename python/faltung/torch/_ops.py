"""torch.ops.faltung: the operators' schemas, fake implementations, autocast and FLOP counts. _autograd.py has what they compute."""
import torch
from torch.library import Library, register_fake, register_vmap
from torch.utils.flop_counter import conv_flop_count, register_flop_formula

from .. import _c
from .._geometry import FAMILIES
from . import _attention, _average, _excite, _group, _linear, _run
from ._activations import activation_and_pool_of, activation_of, pooled
from ._autograd import OPERATORS, READS_KEYS, Packet

_ops = torch.ops.faltung
_library = Library("faltung", "DEF")
_tags = tuple(getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "needs_exact_strides") if hasattr(torch.Tag, name))


def _schemas(family):
    geometry = "int[] stride, int[] padding, int[] dilation, int groups" + ", int[] output_padding" * family.transposed
    return {
        "": f"(Tensor input, Tensor weight, Tensor? bias, {geometry}) -> Tensor",
        "_input_grad": f"(Tensor grad_output, Tensor weight, SymInt[] input_size, {geometry}) -> Tensor",
        "_weight_grad": f"(Tensor grad_output, Tensor input, SymInt[] weight_size, {geometry}) -> Tensor",
        # Without gradients of its own: where they are needed it is composed of the convolution and PyTorch's operators.
        "_fused": f"(Tensor input, Tensor weight, Tensor? bias, Tensor? residual, {geometry}, str activation) -> Tensor",
        # The same with a batch norm in between, if there is a mean, and weights that seldom change.
        "_layer": f"(Tensor input, Tensor weight, Tensor? bias, Tensor? scale, Tensor? shift, Tensor? mean, Tensor? variance, "
                  f"Tensor? residual, {geometry}, float eps, str activation) -> Tensor",
    }


def _fakes(family):
    """What comes out of fake tensors; the same is refused as of real ones."""
    def forward(x, w, b, *geometry):
        return _run.empty(_run.shape_forward(family, x, w, b, None, geometry)[0], x, _run.wants_channels_last(x, w))

    def fused(x, w, b, residual, *rest):
        activation_of(rest[-1])
        return _run.empty(_run.shape_forward(family, x, w, b, residual, rest[:-1])[0], x, _run.wants_channels_last(x, w))

    def layer(x, w, b, scale, shift, mean, variance, residual, *rest):
        activation_and_pool_of(rest[-1])
        like = x.new_empty(w.shape)  # the constants may be of another dtype
        shape, _ = _run.shape_forward(family, x, like, None, residual, rest[:-2])
        return _run.empty(pooled(shape, rest[-1]), x, _run.wants_channels_last(x, w))

    def input_grad(dy, w, size, *geometry):
        return _run.empty(list(size), dy, _run.wants_channels_last(dy, w))

    def weight_grad(dy, x, size, *geometry):
        return _run.empty(list(size), x, _run.wants_channels_last(x, dy))
    return {"": forward, "_input_grad": input_grad, "_weight_grad": weight_grad, "_fused": fused, "_layer": layer}


def _autocast(operator, device_type):
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def kernel(*arguments):
        converted = operator.convert(arguments, device_type)  # before the keys are excluded, by which autocast is off
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator.dispatch(*converted)
    return kernel


def _flops(family, suffix):
    """Of the shapes of two tensors and the result: which of them are x, w and y."""
    def formula(first, second, *rest, out_shape=None, **keywords):
        x, w, y = {"_input_grad": (out_shape, second, first), "_weight_grad": (second, out_shape, first)}.get(
            suffix, (first, second, out_shape))
        return conv_flop_count(x, w, y, transposed=family.transposed)
    return formula


def _no_vmap(name):
    def declined(info, in_dims, *arguments):
        raise _c.Unsupported(f"faltung::{name} is not to be had under vmap; make the mapped dimension part of the batch "
                             f"(reshape N C H W), or use PyTorch's own convolution there")
    return declined


def _register(name, schema, fake, flops):
    operator = OPERATORS[name]
    _library.define(name + schema, tags=_tags)
    for key in ("CPU", "CUDA"):
        _library.impl(name, operator.fast.run, key)
    _library.impl(name, operator.fast.differentiable, "Autograd")
    packet = getattr(_ops, name)
    packet.__class__, packet.fast = Packet, operator.fast
    if READS_KEYS:
        operator.fast.overload, packet.default._op = packet.default._op, operator.fast.enter_overload
    register_fake(f"faltung::{name}", fake, lib=_library)
    register_vmap(f"faltung::{name}", _no_vmap(name), lib=_library)
    register_flop_formula(packet)(flops)
    if operator.converted:
        for key, device_type in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
            _library.impl(name, _autocast(operator, device_type), key)


for _family in FAMILIES:
    _fake = _fakes(_family)
    for _suffix, _schema in _schemas(_family).items():
        _register(_family.name + _suffix, _schema, _fake[_suffix], _flops(_family, _suffix))
_register("linear_layer", _linear.SCHEMA, _linear.fake, _linear.flops)


def _register_composed(name, module):
    """An operator that has no gradient: where one is needed it is composed of PyTorch's."""
    packet = getattr(_ops, name)

    def differentiable(*arguments):
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments):
            return module.composed(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return packet.default(*arguments)
    for key, function in (("CPU", module.compute), ("CUDA", module.compute), ("Autograd", differentiable)):
        _library.impl(name, function, key)
    register_fake(f"faltung::{name}", module.fake, lib=_library)
    register_vmap(f"faltung::{name}", _no_vmap(name), lib=_library)


for _name, _module in (("average", _average), ("excite", _excite), ("group_norm", _group), ("scores", _attention)):
    _library.define(_name + _module.SCHEMA, tags=_tags)
    _register_composed(_name, _module)
