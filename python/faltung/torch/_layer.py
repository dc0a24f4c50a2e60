"""A patched model's layer: a convolution with the batch norm and the activation that follow it, computed as one."""
import torch

from .. import _c
from .._geometry import Family, geometry_of
from . import _run
from ._backend import fold
from ._observe import activation_name

FAMILIES = {torch.nn.Conv1d: Family(1, False), torch.nn.Conv2d: Family(2, False), torch.nn.Conv3d: Family(3, False),
            torch.nn.ConvTranspose1d: Family(1, True), torch.nn.ConvTranspose2d: Family(2, True),
            torch.nn.ConvTranspose3d: Family(3, True)}


class Layer:
    """A convolution, the batch norm and the activation that alone follow it (or None), computed as one.

    It stands in for the convolution's forward. Where a gradient is needed, or batch norm is in training mode, the parts are
    computed one after the other, the convolution by the operator that has gradients."""

    def __init__(self, conv, norm=None, activation=None):
        self.conv, self.norm, self.activation = conv, norm, activation
        self.word = activation_name(activation) if activation is not None else ""
        self.family = FAMILIES[type(conv)]
        g = geometry_of(self.family, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups, conv.output_padding)
        self.geometry = (g.stride, g.padding, g.dilation, g.groups) + (g.output_padding,) * self.family.transposed
        self._begin()

    def _begin(self):
        self.forget()
        self._plain_op, self._fused_op = (getattr(torch.ops.faltung, self.family.name + suffix) for suffix in ("", "_fused"))

    def __getstate__(self):
        left_out = "_fast", "_packed", "_weight", "_bias", "_plain_op", "_fused_op"
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state):
        self.__dict__.update(state)  # the modules, which hold this layer in turn, may still be empty
        self._begin()

    def _tensors(self):
        # Not as attributes of the modules, which are found slowly.
        own = self.conv._parameters
        if self.norm is None:
            return own["weight"], own["bias"]
        norm, buffers = self.norm._parameters, self.norm._buffers
        return own["weight"], own["bias"], norm["weight"], norm["bias"], buffers["running_mean"], buffers["running_var"]

    def _constants(self):
        """Weight and bias with batch norm folded in; computed again when a tensor that they are made of changes."""
        made_of = [None if t is None else (t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype) for t in self._tensors()]
        if made_of != self._made_of:
            with torch.no_grad():
                self._weight, self._bias = folded(self.conv, self.norm)
            self._packed = {}
            self._fast = _c.Operator((0, 1, 3), 2, self._compute)  # of x, w, bias makes y
            self._made_of = made_of
        return self._weight, self._bias

    def forget(self):
        """Lets the constants be made again, and gives their memory back."""
        self._made_of = self._weight = self._bias = self._packed = self._fast = None

    def parts(self, x):
        """One after the other, with gradients."""
        conv = self.conv
        dtypes = {x.dtype, conv.weight.dtype}
        if (x.dim() == self.family.dimensions + 2 and dtypes <= _run.DTYPES.keys()
                and (len(dtypes) == 1 or torch.is_autocast_enabled(x.device.type))):
            y = self._plain_op(x, conv.weight, conv.bias, *self.geometry)
        else:
            y = type(conv).forward(conv, x)
        return self._rest(y)

    def needs_parts(self, x):
        if self.norm is not None and self.norm.training:
            return True
        if torch.is_autocast_enabled(x.device.type):
            return True
        if x.dtype is not self.conv._parameters["weight"].dtype or x.dtype not in _run.DTYPES or x.dim() != self.family.dimensions + 2:
            return True
        if not torch.is_grad_enabled():
            return False
        return x.requires_grad or any(t is not None and t.requires_grad for t in self._tensors())

    def __call__(self, x, *more, **named):
        if more or named:  # the size of a transposed convolution's output
            return self._rest(type(self.conv).forward(self.conv, x, *more, **named))
        if self.needs_parts(x):
            return self.parts(x)
        if torch.compiler.is_compiling():
            weight, bias = folded(self.conv, self.norm)
            return self._fused_op(x, weight, bias, None, *self.geometry, self.word)
        return self.fused(x)

    def _rest(self, y):
        """What stands after the convolution, by PyTorch."""
        if self.norm is not None:
            y = type(self.norm).forward(self.norm, y)
        return y if self.activation is None else type(self.activation).forward(self.activation, y)

    def plan(self, x, y, in_parts):
        """The plan that makes y of x."""
        x, w = x.to(y.dtype), self.conv.weight.to(y.dtype)
        bias = self.conv.bias is not None or (self.norm is not None and not in_parts)
        _, geometry = _run.shape_forward(self.family, x, w, None, None, self.geometry)
        return _run.plan_for("fwd", self.family, x.shape, w.shape, geometry, x, _run.wants_channels_last(x, w), bias, False,
                             "" if in_parts else self.word)

    def fused(self, x):
        weight, bias = self._constants()
        return self._fast.run(x, weight, bias)

    def _compute(self, x, weight, bias):
        """What _fast repeats."""
        shape, geometry = _run.shape_forward(self.family, x, weight, bias, None, self.geometry)
        last = _run.wants_channels_last(x, weight)
        y = _run.empty(shape, x, last)
        if y.numel() == 0:
            return y
        plan = _run.plan_for("fwd", self.family, x.shape, weight.shape, geometry, x, last, bias is not None, False, self.word)
        packed = self._packed.get((plan, last))
        if packed is None:
            dense = _run.dense(weight, last)
            stream = torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else None
            packed = self._packed[plan, last] = dense, plan.pack(dense.data_ptr(), stream) if plan.packed_weights_bytes else None
        w, weights = packed
        read = _run.dense(x, last), _run.dense(bias, last)
        _run.run(plan, read[0], w, y, read[1], None, weights)
        # Packed weights are read in place of the plain ones.
        _run.remember(self._fast, (x, weight, bias), plan, (x, bias, w if weights else weight), (*read, w), y, weights)
        return y


class Pass:
    """Stands in for the forward of a module whose work its convolution does."""

    def __call__(self, x):
        return x


def folded(conv, norm):
    """Weight and bias of the convolution, with batch norm's running statistics folded in."""
    if norm is None:
        return conv.weight, conv.bias
    groups = conv.groups if FAMILIES[type(conv)].transposed else None
    return fold(conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps, groups)
