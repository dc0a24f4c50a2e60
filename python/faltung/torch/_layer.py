"""A patched model's layer: a convolution with what follows it, computed as one."""
from operator import itemgetter

import torch
from torch.autograd import forward_ad

from .._geometry import Family, geometry_of
from . import _constant, _run, _together
from ._activations import activation_of
from ._autograd import OPERATORS
from ._forward import Forward
from ._norm import activated, normalized
from ._observe import activation_name
from ._passes import FORWARD, PASSES, Passes

FAMILIES = {torch.nn.Conv1d: Family(1, False), torch.nn.Conv2d: Family(2, False), torch.nn.Conv3d: Family(3, False),
            torch.nn.ConvTranspose1d: Family(1, True), torch.nn.ConvTranspose2d: Family(2, True),
            torch.nn.ConvTranspose3d: Family(3, True)}
# By name: layers are pickled.
OPS = {name: getattr(torch.ops.faltung, name) for name in OPERATORS}
FAST = {family.name: OPERATORS[family.name + "_layer"].fast.run for family in FAMILIES.values()}
_GEOMETRY = itemgetter("stride", "padding", "dilation", "groups", "padding_mode", "output_padding")
_SETTINGS = {torch.nn.LeakyReLU: itemgetter("negative_slope"), torch.nn.GELU: itemgetter("approximate"),
             torch.nn.Hardtanh: itemgetter("min_val", "max_val")}  # of activations


def _is_transformed():
    return (torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0
            or torch._C._is_tracing())


class Layer(Forward):
    """A convolution, the batch norm and the activation that alone follow it (or None), computed as one; adds: with a residual
    between the last two.

    It stands in for the convolution's forward, or is a part of a Block, by ``run``. Where a gradient is needed, or batch norm is in
    training mode, the parts are computed one after the other, the convolution by the operator that has gradients."""

    def __init__(self, conv, norm=None, activation=None, activation_is_shared=False, word="", adds=False):
        """word: the activation's, where it is a function."""
        self.activation_is_shared, self.adds = activation_is_shared, adds
        self.conv, self.norm, self.activation = conv, norm, activation
        self.word = activation_name(activation) if activation is not None else word
        self.family = FAMILIES[type(conv)]
        g = geometry_of(self.family, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, conv.output_padding)
        self.geometry = (g.stride, g.padding, g.dilation, g.groups) + (g.output_padding,) * self.family.transposed
        self.passes = Passes(self.family, self.geometry)  # with gradients
        self.fuses = False  # batch norm in training and the activation, by kernels of our own
        self.batches = None  # batch norm's counter when its statistics were last folded into the weights
        self.is_captured = False  # with gradients, in a CUDA graph, whose replays change weights and statistics that nothing counts
        self.rest = (*self.geometry, norm.eps if norm is not None else 0.0, self.word)  # of the operator's arguments
        self.taken, self.setting = _GEOMETRY(conv.__dict__), _SETTINGS.get(type(activation))
        self.taken_setting = self.setting and self.setting(activation.__dict__)
        self.is_whole = True  # as the last call found it: what stands in for the other modules goes by it

    def _tensors(self):
        # Not as attributes of the modules, which are found slowly.
        own = self.conv._parameters
        if self.norm is None:
            return own["weight"], own["bias"], None, None, None, None
        norm, buffers = self.norm._parameters, self.norm._buffers
        return own["weight"], own["bias"], norm["weight"], norm["bias"], buffers["running_mean"], buffers["running_var"]

    def is_as_it_was(self):
        """Whether the modules are what they were when they were patched, in what is no tensor: attributes, and hooks where this computes
        what they would see. If not, each of them computes its own part, by PyTorch."""
        conv, norm, activation = self.conv.__dict__, self.norm, self.activation
        if _GEOMETRY(conv) != self.taken or "weight" not in conv["_parameters"]:
            return False
        if norm is not None:
            own = norm.__dict__
            if (own["eps"] != self.rest[-2] or own["_buffers"]["running_mean"] is None or own["_forward_pre_hooks"] or own["_backward_hooks"]
                    or own["_backward_pre_hooks"] or own["_forward_hooks"]):
                return False
        elif activation is None:
            return True
        if activation is not None:
            own = activation.__dict__
            if self.setting is not None and self.setting(own) != self.taken_setting:
                return False
            if own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
                return False
        return not (conv["_forward_hooks"] or conv["_backward_hooks"] or conv["_backward_pre_hooks"])

    def forget(self):
        """Gives back what was made of the weights."""
        _constant.forget(self.conv.weight)

    def parts(self, x, residual=None):
        """One after the other, with gradients."""
        conv, own = self.conv, self.conv._parameters
        y = None
        if not torch.compiler.is_compiling():
            self.is_captured = self.is_captured or _run.is_captured(x)
            if self.fuses and residual is None:
                y, is_whole = _together.trained(self, x)
                if is_whole:
                    return self._told(y)
            if y is None:
                y = self.passes.trained(x, own["weight"], own["bias"])
        if y is None:
            y = self._convolved(x, own["weight"], own["bias"]) if self._is_ours(x, own["weight"]) else type(conv).forward(conv, x)
        if self.norm is None and residual is None and not self.word:
            return y
        return self._rest(y, residual)

    def _is_ours(self, x, weight):
        """Whether such tensors are computed here, which under a tracer or one of torch.func's transforms none are."""
        if not torch.compiler.is_compiling() and _is_transformed():
            return False
        if x.layout is not torch.strided or not (x.is_cpu or x.is_cuda) or x.dim() != self.family.dimensions + 2:
            return False
        if x.dtype not in _run.DTYPES or weight.dtype not in _run.DTYPES:
            return False
        return x.dtype is weight.dtype or _run.autocast_dtype(x) is not None

    def _convolved(self, x, weight, bias):
        """With gradients, where something looks at the call."""
        passes = self.passes
        if 0 < len(passes.ours) < len(PASSES) and not torch.compiler.is_compiling():
            return passes(x, weight, bias)
        if FORWARD not in passes.ours:
            return type(self.conv)._conv_forward(self.conv, x, weight, bias)
        return OPS[self.family.name](x, weight, bias, *self.geometry)

    def needs_parts(self, x, residual=None):
        weight = self.conv._parameters["weight"]
        if torch.is_grad_enabled() and (weight.requires_grad or x.requires_grad):
            return True
        if (self.norm is not None and self.norm.training) or self.is_captured or not self._is_ours(x, weight):
            return True
        if residual is not None and residual.dtype is not (_run.autocast_dtype(x) or x.dtype):
            return True
        if not torch.is_grad_enabled():
            return False
        return any(t is not None and t.requires_grad for t in (x, residual, *self._tensors()))

    def run(self, x, residual=None):
        """In a Block, where nothing else computes the activation."""
        return self.parts(x, residual) if self.needs_parts(x, residual) else self.fused(x, residual)

    def __call__(self, x, *more, **named):
        if not torch.compiler.is_compiling():
            self.is_whole = self.is_as_it_was()
            if not self.is_whole:
                return type(self.conv).forward(self.conv, x, *more, **named)
        if more or named:  # the size of a transposed convolution's output
            return self._rest(type(self.conv).forward(self.conv, x, *more, **named))
        if self.needs_parts(x):
            return self.parts(x)
        if torch.compiler.is_compiling():
            rest = (*self.rest[:-1], "") if self.activation_is_shared else self.rest  # a Shared computes it there
            return OPS[self.family.name + "_layer"](x, *self._tensors(), None, *rest)
        return self._told(self.fused(x))

    def _told(self, y):
        if self.activation_is_shared:
            y.faltung_activated = self.activation  # which is told that it is done
        return y

    def _rest(self, y, residual=None):
        """What stands after the convolution, by PyTorch; a Shared activation comes on its own."""
        if self.norm is not None:
            if residual is None and (self.activation is not None or not self.word):
                return activated(self.norm, self.activation, self.word, self.activation_is_shared, y, self.fuses)
            y = normalized(self.norm, y)
        if residual is not None:
            y = y + residual
        if self.activation is None:
            return activation_of(self.word)(y)
        return y if self.activation_is_shared else type(self.activation).forward(self.activation, y)

    def wanted(self, x, like, in_parts):
        """Of _run.plan_for, for the forward pass on what has x's shape and strides; like: of the dtype that is computed, on the
        device."""
        x, w = _run.likeness(x), _run.likeness(self.conv.weight)
        bias = self.conv.bias is not None if in_parts else _run.made_bias(self.conv.bias is not None or self.norm is not None, like)
        _, geometry = _run.shape_forward(self.family, x, w, None, None, self.geometry)
        return ("fwd", self.family, x.shape, w.shape, geometry, like, _run.wants_channels_last(x, w), bias, self.adds and not in_parts,
                "" if in_parts else self.word)

    def fused(self, x, residual=None):
        dtype = _run.autocast_dtype(x)
        if dtype is not None:
            x = x.to(dtype)
        if self.norm is not None and not torch.compiler.is_compiling():
            self._follow_statistics()
        return FAST[self.family.name](x, *self._tensors(), residual, *self.rest)

    def _follow_statistics(self):
        """Batch norm changes them without PyTorch's counting it as a change; of the batches it keeps count."""
        counter = self.norm._buffers["num_batches_tracked"]
        batches = None if counter is None or counter.is_inference() else counter._version
        if batches != self.batches:
            self.forget()
            self.batches = batches


class Pass(Forward):
    """Stands in for the forward of a module whose work another one does; layer: that one's, which may no longer do it."""

    def __init__(self, module, layer=None):
        self.module, self.layer = module, layer

    def __call__(self, x):
        if self.layer is None or self.layer.is_whole or torch.compiler.is_compiling():
            return x
        return type(self.module).forward(self.module, x)


class Shared(Forward):
    """Stands in for the forward of an activation that several layers share: what one of them has activated, it passes on."""

    def __init__(self, activation):
        self.activation = activation

    def __call__(self, x):
        if not torch.compiler.is_compiling() and x.__dict__.pop("faltung_activated", None) is self.activation:
            return x
        return type(self.activation).forward(self.activation, x)
