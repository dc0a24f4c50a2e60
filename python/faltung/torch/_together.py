"""A convolution in training with the batch norm and the activation that follow it, as one of autograd's nodes: each node in Python takes
the host some 10 us a step."""
import torch

from .. import _c
from . import _norm_kernels, _run
from ._activations import activation_of
from ._autograd import OPERATORS, Converted, quick_apply
from ._norm import parts_of


def _differentiated(ctx, x, made, norm, dz):
    """The gradients of x, the weight, batch norm's weight and bias, where what is done is differentiated, too."""
    layer, w = ctx.layer, made if ctx.given is None else Converted.apply(ctx.given, made)
    z = OPERATORS[layer.family.name].fast(x, w, None, *layer.geometry)
    if norm:
        z = activation_of(layer.word)(torch.batch_norm(z, *norm[:2], None, None, True, 0.0, ctx.eps, False))
    tensors = x, w, *norm[:2]
    gradients = iter(torch.autograd.grad(z, [t for t in tensors if t.requires_grad], dz, create_graph=True))
    return [next(gradients) if t.requires_grad else None for t in tensors]


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, weight, bias, layer, rest, dtype, done):
        """rest: of parts_of, behind weight and bias. done: a list that is not empty afterwards if batch norm is done; else the result is
        the convolution's."""
        made, passes = w if w.dtype is dtype else w.to(dtype), layer.passes
        y = passes.forward(passes.ours, x, made, is_unseen=True)
        launches = _norm_kernels.launches_for(y, layer.word) if _c.fit_channels(y, weight, bias, *rest[:3]) else None
        ctx.layer, ctx.launches, ctx.given, ctx.eps = layer, launches, None if made is w or not w.requires_grad else w, rest[4]
        ctx.set_materialize_grads(False)
        if launches is None:
            ctx.save_for_backward(x, made)
            return y
        z, ctx.save = launches.forward(y, weight, bias, *rest)
        ctx.save_for_backward(x, made, weight, bias, y)
        done.append(True)
        return z

    @staticmethod
    def backward(ctx, dz):
        if dz is None:
            return (None,) * 8
        x, made, *norm = ctx.saved_tensors
        of_norm = None, None
        if torch.is_grad_enabled():
            gradients = _differentiated(ctx, x, made, norm, dz)
            return (*gradients, *(None,) * (8 - len(gradients)))
        if norm:
            dz, *of_norm = ctx.launches.backward(_norm_kernels.dense(dz), norm[2], ctx.save, norm[0])
        passes, needs = ctx.layer.passes, ctx.needs_input_grad
        of_conv = passes.gradients(passes.ours, x, made, dz, needs[0], needs[1], _c.is_unseen(dz, x, made))
        return (*of_conv, *of_norm, None, None, None, None)


_train = quick_apply(_Together)


def trained(layer, x):
    """The result of a Layer in training, and whether batch norm and activation are in it; None where something would look at the calls,
    or what they are of is not computed."""
    parameters = layer.conv._parameters
    w, norm = parameters["weight"], None
    if layer.norm is not None and parameters["bias"] is None and layer.word in _norm_kernels.ACTIVATIONS:
        norm = parts_of(layer.norm)
    alike = None if norm is None else _c.fit(x, w, None, layer.family.dimensions + 2)
    dtype = None if alike is None else _run.autocast_dtype(x) or (x.dtype if alike else None)
    if dtype is None or not (w.is_leaf or w.dtype is dtype):  # see _autograd._casting
        return None, False
    weight, bias, *rest = norm
    done = []
    y = _train(x if x.dtype is dtype else x.to(dtype), w, weight, bias, layer, rest, dtype, done)
    if done:
        torch._C._increment_version(tuple(rest[:3]))
    return y, bool(done)
