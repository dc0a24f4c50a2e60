"""Batch norm in training, without what its module looks up in every call; on CUDA, where it fuses, with the activation that follows it,
by kernels that pass over memory eight times instead of thirteen."""
import torch

from .. import _c
from . import _norm_kernels
from ._activations import activation_of
from ._autograd import quick_apply
from ._forward import Forward
from ._observe import activation_name

_DIMENSIONS = {torch.nn.BatchNorm1d: (2, 3), torch.nn.BatchNorm2d: (4,), torch.nn.BatchNorm3d: (5,)}


class _Trained(torch.autograd.Function):
    """Of an input, batch norm's weight and bias."""

    @staticmethod
    def forward(ctx, x, weight, bias, mean, variance, batches, momentum, eps, launches):
        y, ctx.save = launches.forward(x, weight, bias, mean, variance, batches, momentum, eps)
        ctx.save_for_backward(x, weight, bias)
        ctx.launches, ctx.eps = launches, eps
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return (None,) * 9
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # what is done here is differentiated, too
            y = activation_of(ctx.launches.word)(torch.batch_norm(x, weight, bias, None, None, True, 0.0, ctx.eps, False))
            needed = [t for t in (x, weight, bias) if t.requires_grad]
            made = iter(torch.autograd.grad(y, needed, dy, create_graph=True))
            return (*(next(made) if t.requires_grad else None for t in (x, weight, bias)), *(None,) * 6)
        return (*ctx.launches.backward(_norm_kernels.dense(dy), x, ctx.save, weight), *(None,) * 6)


_train = quick_apply(_Trained)  # without transforms, of which there are none where this is called


def parts_of(norm):
    """Of a batch norm that may be computed by the kernels its weight, bias, mean, variance, counter of batches, momentum and eps; None of
    any other."""
    own = norm.__dict__
    momentum, buffers, parameters = own["momentum"], own["_buffers"], own["_parameters"]
    batches, weight, bias = buffers["num_batches_tracked"], parameters["weight"], parameters["bias"]
    if not own["training"] or batches is None or momentum is None or weight is None or bias is None:
        return None
    return weight, bias, buffers["running_mean"], buffers["running_var"], batches, float(momentum), float(own["eps"])


def _fused(norm, x, word):
    """Both by the kernels; None where they do not compute it, or something would look at the call."""
    parts = None if torch.compiler.is_compiling() else parts_of(norm)
    # In every call: the modules' tensors may have become others, or of another dtype.
    if parts is None or not _c.fit_channels(x, *parts[:5]):
        return None
    launches = _norm_kernels.launches_for(x, word)
    if launches is None:
        return None
    y = _train(x, *parts, launches)
    torch._C._increment_version(parts[2:5])
    return y


def normalized(norm, x):
    """As type(norm).forward(norm, x), bit for bit."""
    own = norm.__dict__
    momentum, buffers, parameters = own["momentum"], own["_buffers"], own["_parameters"]
    counter = buffers["num_batches_tracked"]
    if (not own["training"] or not own["track_running_stats"] or counter is None or momentum is None
            or torch.compiler.is_compiling()):
        return type(norm).forward(norm, x)
    if x.dim() not in _DIMENSIONS.get(type(norm), ()) or x.numel() == x.shape[1]:  # which is refused, in its words
        return type(norm).forward(norm, x)
    counter.add_(1)
    return torch.batch_norm(x, parameters["weight"], parameters["bias"], buffers["running_mean"], buffers["running_var"], True, momentum,
                            own["eps"], torch._C._get_cudnn_enabled())


def activated(norm, activation, word, is_shared, x, fuses):
    """Batch norm in training and the module that alone reads its result (or None), of such a word. is_shared: others' results are that
    one's input, too, and it is told what it need not do."""
    if fuses and word in _norm_kernels.ACTIVATIONS:
        y = _fused(norm, x, word)
        if y is not None:
            if is_shared:
                y.faltung_activated = activation
            return y
    y = normalized(norm, x)
    return y if activation is None or is_shared else type(activation).forward(activation, y)


class Quick(Forward):
    """Stands in for the forward of a batch norm in training; where it fuses, of the activation that alone reads its result, too."""

    def __init__(self, norm, activation=None, is_shared=False):
        self.norm, self.activation, self.is_shared, self.fuses = norm, activation, is_shared, False
        self.word = "" if activation is None else activation_name(activation)

    def __call__(self, x):
        return activated(self.norm, self.activation, self.word, self.is_shared, x, True) if self.fuses else normalized(self.norm, x)
