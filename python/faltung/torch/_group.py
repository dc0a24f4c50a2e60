"""Group norm where no gradient is needed, with the activation that follows it, by kernels on CUDA that read their input twice and write
once."""
import torch
import torch.nn.functional as F

from .. import _c
from . import _group_kernels
from ._activations import activation_of
from ._forward import Forward
from ._observe import activation_name


def fits(parameter, x):
    """Whether weight or bias is one that the kernels read."""
    return parameter is None or (parameter.dtype in (torch.float32, x.dtype) and parameter.shape == x.shape[1:2]
                                 and parameter.is_contiguous() and not parameter.is_neg() and parameter.device == x.device)


def computed(norm, x, word, last):
    """Both by the kernels; None where they do not compute it, or something would look at the call. last: whether channels-last tensors
    are computed, whose result is then channels-last, too, unlike PyTorch's on CUDA."""
    own, parameters = norm.__dict__, norm.__dict__["_parameters"]
    if torch.compiler.is_compiling() or "weight" not in parameters or "bias" not in parameters:
        return None
    weight, bias = parameters["weight"], parameters["bias"]
    if not _c.is_unseen(x, weight, bias) or not x.is_cuda or x.layout is not torch.strided or x.is_neg() or torch._C._is_tracing():
        return None
    if torch._C._len_torch_function_stack() or torch.is_autocast_enabled("cuda") or not (last or x.is_contiguous()):
        return None
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        return None
    if not fits(weight, x) or not fits(bias, x) or x.dim() < 3 or x.shape[1] != own["num_channels"]:
        return None
    launches = _group_kernels.launches_for(x, own["num_groups"], word)
    return None if launches is None else launches(x, weight, bias, float(own["eps"]))


# Of channels-last tensors the result is channels-last, too.
SCHEMA = "(Tensor input, int groups, Tensor? weight, Tensor? bias, float eps, str activation) -> Tensor"


def fake(x, groups, weight, bias, eps, activation):
    return torch.empty_like(x)


def composed(x, groups, weight, bias, eps, activation):
    return activation_of(activation)(F.group_norm(x, groups, weight, bias, eps))


def compute(x, groups, weight, bias, eps, activation):
    """As an operator, of tensors that are dense."""
    launches = _group_kernels.launches_for(x, groups, activation) if fits(weight, x) and fits(bias, x) and not x.is_neg() else None
    if launches is not None:
        return launches(x, weight, bias, eps)
    return torch.empty_like(x).copy_(composed(x, groups, weight, bias, eps, activation))


class Grouped(Forward):
    """Stands in for the forward of a group norm with the activation that alone reads its result (or None), or is a part of a Block, by
    ``run``, where that is a function of such a word."""

    def __init__(self, norm, activation=None, is_shared=False, word=""):
        self.norm, self.activation, self.is_shared, self.last = norm, activation, is_shared, False
        self.word = word if activation is None else activation_name(activation)

    def run(self, x):
        y = computed(self.norm, x, self.word, self.last)
        return activation_of(self.word)(type(self.norm).forward(self.norm, x)) if y is None else y

    def __call__(self, x):
        y = computed(self.norm, x, self.word, self.last)
        if y is None:
            y = type(self.norm).forward(self.norm, x)
            return y if self.activation is None or self.is_shared else type(self.activation).forward(self.activation, y)
        if self.is_shared:
            y.faltung_activated = self.activation  # which is told that it is done
        return y
