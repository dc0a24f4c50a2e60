"""Gradients. conv2d, conv2d_input_grad and conv2d_weight_grad are linear in each of their arguments and are each other's
gradients, so that any number of backward passes is exact.

The kernels of the Autograd key stand here as autograd functions of our own, and call the computation itself where nothing
between would look at the call: that halves what a call costs the host beside torch.library.register_autograd."""
import torch

from . import _run
from ._activations import activation_of

_PLAIN = (torch.Tensor, torch.nn.Parameter)
COMPUTE = {
    "conv2d": lambda x, w, b, *geometry: _run.forward(x, w, b, None, *geometry, ""),
    "conv2d_input_grad": _run.input_grad,
    "conv2d_weight_grad": _run.weight_grad,
    "conv2d_fused": _run.forward,
}


def _nothing_between(x, w):
    """Whether the dispatcher would only find the kernel for the CPU or CUDA: no tensor subclass, mode or transform sees the call."""
    return (type(x) in _PLAIN and type(w) in _PLAIN and (x.is_cpu or x.is_cuda) and torch._C._len_torch_dispatch_stack() == 0
            and torch._C._functorch.maybe_current_level() is None)


def below(name, *arguments):
    """The operator below autograd."""
    if _nothing_between(*arguments[:2]):
        return COMPUTE[name](*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.faltung, name)(*arguments)


def call(name, *arguments):
    """The operator, with its gradient."""
    if _nothing_between(*arguments[:2]):
        return KERNELS[name](*arguments)
    return getattr(torch.ops.faltung, name)(*arguments)


def _keep(ctx, a, b, rest):
    ctx.save_for_backward(a, b)
    ctx.rest = rest
    ctx.set_materialize_grads(False)


# Not by setup_context, for which PyTorch looks at the signature in every call: ten times the rest.


class Conv2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, *geometry):
        _keep(ctx, x, w, geometry)
        return below("conv2d", x, w, b, *geometry)

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return (None,) * 7
        x, w = ctx.saved_tensors
        needs = ctx.needs_input_grad
        dx = call("conv2d_input_grad", dy, w, x.shape, *ctx.rest) if needs[0] else None
        dw = call("conv2d_weight_grad", dy, x, w.shape, *ctx.rest) if needs[1] else None
        return dx, dw, dy.sum((0, 2, 3)) if needs[2] else None, None, None, None, None


class InputGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dy, w, size, *geometry):
        _keep(ctx, dy, w, geometry)
        return below("conv2d_input_grad", dy, w, size, *geometry)

    @staticmethod
    def backward(ctx, ddx):
        if ddx is None:
            return (None,) * 7
        dy, w = ctx.saved_tensors
        needs = ctx.needs_input_grad
        ddy = call("conv2d", ddx, w, None, *ctx.rest) if needs[0] else None
        dw = call("conv2d_weight_grad", dy, ddx, w.shape, *ctx.rest) if needs[1] else None
        return ddy, dw, None, None, None, None, None


class WeightGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dy, x, size, *geometry):
        _keep(ctx, dy, x, geometry)
        return below("conv2d_weight_grad", dy, x, size, *geometry)

    @staticmethod
    def backward(ctx, ddw):
        if ddw is None:
            return (None,) * 7
        dy, x = ctx.saved_tensors
        needs = ctx.needs_input_grad
        ddy = call("conv2d", x, ddw, None, *ctx.rest) if needs[0] else None
        dx = call("conv2d_input_grad", dy, ddw, x.shape, *ctx.rest) if needs[1] else None
        return ddy, dx, None, None, None, None, None


def _kernel(name, function):
    """The operator with its gradient; without one where none is needed."""
    def kernel(a, b, *rest):
        if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad
                                        or (isinstance(rest[0], torch.Tensor) and rest[0].requires_grad)):
            return function.apply(a, b, *rest)
        return below(name, a, b, *rest)
    return kernel


def fused(x, w, b, residual, stride, padding, dilation, groups, activation):
    """Composed of conv2d and PyTorch's operators where a gradient is needed."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, w, b, residual)):
        y = torch.ops.faltung.conv2d(x, w, b, stride, padding, dilation, groups)
        return activation_of(activation)(y if residual is None else y + residual)
    return below("conv2d_fused", x, w, b, residual, stride, padding, dilation, groups, activation)


KERNELS = {"conv2d": _kernel("conv2d", Conv2d), "conv2d_input_grad": _kernel("conv2d_input_grad", InputGrad),
           "conv2d_weight_grad": _kernel("conv2d_weight_grad", WeightGrad), "conv2d_fused": fused}
