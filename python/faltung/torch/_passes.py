"""A convolution in training, each of whose three passes is faltung's or PyTorch's, whichever is faster."""
import functools
import math

import torch

from .. import _c
from .._geometry import FAMILIES
from . import _autograd, _run
from ._time import in_backward, time_in_turn

FORWARD, INPUT_GRAD, WEIGHT_GRAD = PASSES = range(3)
_GRADIENTS = frozenset((INPUT_GRAD, WEIGHT_GRAD))
WORDS = ("fwd", "bwd_d", "bwd_w")  # of problems
# By name: layers are pickled.
_SEEN = {family.name: [_autograd.OPERATORS[family.name + suffix].fast for suffix in ("", "_input_grad", "_weight_grad")]
         for family in FAMILIES}
_BELOW = {name: [operator.run for operator in operators] for name, operators in _SEEN.items()}  # where nothing would look at the call


class Passes:
    """family, geometry: of the operators. ours: which of PASSES are faltung's."""

    def __init__(self, family, geometry, ours=frozenset(PASSES)):
        self.family, self.geometry, self.ours = family, tuple(geometry), frozenset(ours)
        stride, padding, dilation, groups, *more = geometry
        before, after = (padding[::2], padding[1::2]) if len(padding) == 2 * family.dimensions else (padding, padding)
        self.is_symmetric = tuple(before) == tuple(after)  # else PyTorch's own operator has no such convolution
        self.torchs = stride, before, dilation, family.transposed, more[0] if more else (0,) * family.dimensions, groups

    def forward(self, who, x, w, bias=None, is_unseen=False):
        """who: self.ours, or another choice. is_unseen: whether nothing would look at the call."""
        if FORWARD in who:
            return (_BELOW if is_unseen else _SEEN)[self.family.name][FORWARD](x, w, bias, *self.geometry)
        return torch.convolution(x, w, bias, *self.torchs)

    def gradients(self, who, x, w, dy, needs_x=True, needs_w=True, is_unseen=False):
        """Of x and w, None where it is not needed."""
        dx, dw, ours = None, None, (_BELOW if is_unseen else _SEEN)[self.family.name]
        if is_unseen and who >= _GRADIENTS:
            both = _autograd.OPERATORS[self.family.name].both(dy, x, w, (needs_x, needs_w, False), self.geometry)
            dx, dw = both[:2]
        else:
            if needs_x and INPUT_GRAD in who:
                dx = ours[INPUT_GRAD](dy, w, x.shape, *self.geometry)
            if needs_w and WEIGHT_GRAD in who:
                dw = ours[WEIGHT_GRAD](dy, x, w.shape, *self.geometry)
        if dw is not None:
            if is_unseen and dw.stride() != w.stride() and dw.is_contiguous() and w.is_contiguous():
                dw = dw.as_strided(w.shape, w.stride())  # the same memory, or it is copied to become the parameter's gradient
        mask = [needs_x and dx is None, needs_w and dw is None, False]
        if any(mask):
            theirs = torch.ops.aten.convolution_backward.default(dy, x, w, None, *self.torchs, mask)
            dx, dw = theirs[0] if mask[0] else dx, theirs[1] if mask[1] else dw
        return dx, dw

    def __call__(self, x, w, bias):
        """With gradients, and as autocast has it."""
        return _operator(self.family, self.ours).fast(x, w, bias, *self.geometry)

    def trained(self, x, w, bias):
        """The same; None where something would look at the call, or what it is of is not computed."""
        alike = _c.fit(x, w, bias, self.family.dimensions + 2)
        if alike is None:
            return None
        operator, dtype = _operator(self.family, self.ours), _run.autocast_dtype(x)
        if dtype is not None:
            return operator.casting(x if x.dtype is dtype else x.to(dtype), w, bias, self.geometry, dtype)
        return operator.record(x, w, bias, self.geometry) if alike else None

    def time(self, which, x, w, min_ms):
        """Milliseconds of a pass by faltung, infinite where nothing computes it, and by PyTorch."""
        if not self.is_symmetric:
            raise _c.Unsupported("its padding differs from side to side, of which PyTorch has no passes to be timed")
        dy = None if which == FORWARD else torch.rand_like(self.forward((), x, w))

        def run_by(who):
            if which == FORWARD:
                return lambda: self.forward(who, x, w)
            return lambda: self.gradients(who, x, w, dy, which == INPUT_GRAD, which == WEIGHT_GRAD)

        def timed():
            try:
                return time_in_turn([run_by(PASSES), run_by(())], x.device, min_ms)
            except _c.Error:
                return math.inf, *time_in_turn([run_by(())], x.device, min_ms)
        searches = torch.backends.cudnn.benchmark or not x.is_cuda
        return in_backward(timed, x.device) if which != FORWARD and searches else timed()

    def wanted(self, which, x, w, like):
        """Of _run.plan_for, for a pass of ours on what has their shapes and strides; like: of the dtype, on the device."""
        x, w = _run.likeness(x), _run.likeness(w)
        _, geometry = _run.shape_forward(self.family, x, w, None, None, self.geometry)
        return WORDS[which], self.family, x.shape, w.shape, geometry, like, _run.wants_channels_last(x, w)


_of = functools.lru_cache(4096)(Passes)


@functools.cache
def _operator(family, ours):
    """As torch.ops.faltung's, which stands in where something would look at the call, by the passes' choice."""
    def by_torch(operator, family, x, w, bias, *geometry):
        return _of(family, geometry).forward((), x, w, bias)

    def backward(ctx, x, w, dy, is_quick):
        needs = ctx.needs_input_grad
        is_unseen = is_quick and not torch.is_grad_enabled() and _c.is_unseen(dy, x, w)
        dx, dw = _of(family, ctx.rest).gradients(ours, x, w, dy, needs[0], needs[1], is_unseen)
        return dx, dw, dy.sum((0, *range(2, dy.dim()))) if needs[2] else None, None
    return _autograd.convolution(family, None if FORWARD in ours else by_torch, backward)
