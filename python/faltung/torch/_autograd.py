"""The operators and their gradients. A convolution, its gradient of the input and its gradient of the weights are linear in each of
their two tensors and are each other's gradients, so that any number of backward passes is exact.

The kernels of the Autograd key are autograd functions of our own, entered from C where a gradient is needed, which skips the
dispatcher where nothing in it would look at the call: that halves what a call costs the host beside
torch.library.register_autograd."""
import functools
from operator import attrgetter

import torch
from torch._ops import OpOverloadPacket
from torch.autograd import forward_ad

from .. import _c
from .._geometry import FAMILIES
from . import _constant, _linear, _run
from ._activations import activation_of

_X, _W, _Y, _BIAS, _RESIDUAL = range(5)  # as the library numbers tensors
_CONSTANT = -1

_INSIDE = (torch._C._len_torch_dispatch_stack, torch._C._functorch.maybe_current_level)
_OUTSIDE = (torch._C._is_tracing, functools.partial(torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch))
_BEFORE = (torch._C._len_torch_function_stack, torch._C._autograd._profiler_enabled)


def _reads_keys():
    """Whether C reads which keys this thread's dispatcher adds and leaves out, of which there is no quick question: each function costs
    about a microsecond where the caches are cold, as they are between a model's layers."""
    key = torch._C.DispatchKey.PreDispatch
    seen = [_c.dispatch_keys()]
    with torch._C._IncludeDispatchKeyGuard(key):
        seen.append(_c.dispatch_keys())
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
        seen.append(_c.dispatch_keys())
    seen.append(_c.dispatch_keys())
    return None not in seen and [(added != 0, left_out != 0) for added, left_out in seen] == [(False, False), (True, False), (False, True),
                                                                                              (False, False)]


READS_KEYS = _reads_keys()
ASKED = (torch.Tensor, torch.nn.Parameter, _INSIDE, _OUTSIDE, _BEFORE, torch._C._is_any_autocast_enabled, torch.is_grad_enabled,
         torch.get_num_threads, _run.allows_tf32, forward_ad)
_c.use_torch(*ASKED, READS_KEYS)


class Operator:
    """torch.ops.faltung.<name>. ``compute`` takes the part in C, the family and the arguments; set_gradient says the rest."""

    def __init__(self, name, family, slots, result, compute, others):
        """others: arguments that are neither tensors nor the geometry; a linear layer (family None) has none."""
        self.name, self.tensors = name, len(slots)
        geometry = 0 if family is None else 5 if family.transposed else 4
        self.fast = _c.Operator(slots, result, len(slots) + geometry + others, lambda *arguments: compute(self.fast, family, *arguments), self.differentiate,
                                self.dispatch, self.autocast)
        self.converted, self.casting = (), None

    def set_gradient(self, function, quick, casting=None):
        """All are called with the tensors and, as one, the other arguments, where a gradient is needed; quick and casting where
        nothing would look at the call. casting: also with the dtype of autocast, which the first tensor has."""
        self.gradient, self.record, self.casting = function, quick, casting
        self.fast.record = quick

    def dispatch(self, *arguments, **keywords):
        return OpOverloadPacket.__call__(getattr(torch.ops.faltung, self.name), *arguments, **keywords)

    def autocast(self, *arguments):
        """Where autocast is on, for some device, and nothing would look at the call: with the tensors and, as one, the other arguments."""
        (x, *others), rest = arguments[:-1], arguments[-1]
        dtype = _run.autocast_dtype(x)
        if dtype is None or self.casting is None or not all(t is None or t.dtype in _run.DTYPES for t in arguments[:-1]):
            return self.fast.differentiable(*self.convert((x, *others, *rest), _run.device_type(x)))
        return self.casting(x if x.dtype is dtype else x.to(dtype), *others, rest, dtype)

    def convert(self, arguments, device_type):
        """As autocast converts them; converted: which of them it does."""
        if not self.converted or not torch.is_autocast_enabled(device_type):
            return arguments
        dtype, converted = torch.get_autocast_dtype(device_type), list(arguments)
        for i in self.converted:
            given = converted[i]
            if given is not None and given.dtype is not dtype and given.dtype in _run.DTYPES:
                converted[i] = given.to(dtype)
        return converted

    def below(self, *arguments):
        """Below autograd."""
        with torch._C._AutoDispatchBelowAutograd():
            return self.dispatch(*arguments)

    def differentiate(self, *arguments):
        """At autograd's place, for what is not done in C."""
        tensors, rest = arguments[:self.tensors], arguments[self.tensors:]
        needed = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
        return self.gradient(*tensors, rest) if needed or forward_ad._current_level >= 0 else self.below(*arguments)


class Packet(OpOverloadPacket):
    """torch.ops.faltung.<name>, which is entered without the dispatcher where nothing in it would look at the call: its boxed
    arguments cost more than all the rest. Where anything may look, or by .default, it is an operator like any other."""

    __call__ = property(attrgetter("fast"))  # a function would be a frame of Python's in every call


def _forward(operator, family, x, w, b, *geometry):
    return _run.forward(operator, family, (x, w, b, *geometry), (x, w, b, None), geometry)


def _fused(operator, family, x, w, b, residual, *rest):
    activation_of(rest[-1])  # refused in the same words where a gradient is needed, and where not
    return _run.forward(operator, family, (x, w, b, residual, *rest), (x, w, b, residual), rest[:-1], rest[-1])


def _input_grad(operator, family, dy, w, size, *geometry):
    return _run.input_grad(operator, family, (dy, w, size, *geometry), dy, w, size, geometry)


def _weight_grad(operator, family, dy, x, size, *geometry):
    return _run.weight_grad(operator, family, (dy, x, size, *geometry), dy, x, size, geometry)


def _differentiate(operator, backward, both=None):
    """Gives a convolution (of x, w and b) its gradient, or a gradient (of two tensors) its own. backward: of ctx, the first two tensors,
    the gradient that comes in and whether the call went past the dispatcher, makes what autograd takes: the tensors' gradients,
    and None for the other arguments. both: what does so in C, with a forward there too, where the call goes past the dispatcher."""
    def function_of(compute, is_quick):
        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, a, b, *more):
                # Not by setup_context, for which PyTorch looks at the signature in every call: ten times the rest.
                ctx.save_for_backward(a, b)
                ctx.rest = more[-1]
                ctx.set_materialize_grads(False)
                return compute(a, b, *more[:-1], *more[-1])

            @staticmethod
            def backward(ctx, gradient):
                if gradient is None:
                    return (None,) * (operator.tensors + 1)
                return backward(ctx, *ctx.saved_tensors, gradient, is_quick)
        return Function
    quick = function_of(operator.fast.run, True)
    quick_backward = quick.backward
    if both is not None:
        quick.forward, both.differentiated, quick_backward = operator.fast.saving, quick.backward, both
    quick = quick_apply(quick, quick_backward)
    operator.set_gradient(function_of(operator.below, False).apply, quick, _casting(operator, backward) if operator.tensors == 3 else None)


def quick_apply(function, backward=None):
    """The function's apply without what Function's own asks for, transforms and tensors out of them, which were asked for in C; and its
    backward, or the one given, without the look-up, in every call, of which of two names it has."""
    function._backward_cls.apply = backward or function.backward
    return super(torch.autograd.Function, function).apply


class Converted(torch.autograd.Function):
    """What was made of a tensor in another dtype, with that one's gradient, even if its values have changed since."""

    @staticmethod
    def forward(ctx, given, made):
        return made.detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def _casting(operator, backward):
    """A convolution whose weight and bias autocast converts: inside, which saves a node of autograd's for each, since its engine
    converts gradients to what they are of. Of a weight that is computed there would be no way back to the values it had, once it is
    changed in place: it is converted outside."""
    run = operator.fast.run

    class Casting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b, rest, dtype):
            made, ctx.given = (w, None) if w.dtype is dtype else (w.to(dtype), w if w.requires_grad else None)
            ctx.save_for_backward(x, made)
            ctx.rest = rest
            ctx.set_materialize_grads(False)
            return run(x, made, b if b is None or b.dtype is dtype else b.to(dtype), *rest)

        @staticmethod
        def backward(ctx, gradient):
            if gradient is None:
                return None, None, None, None, None
            x, made = ctx.saved_tensors
            if ctx.given is not None and torch.is_grad_enabled():  # what is done here is differentiated, too
                made = Converted.apply(ctx.given, made)
            return (*backward(ctx, x, made, gradient, True), None)
    apply = quick_apply(Casting)

    def convert_and_run(x, w, b, rest, dtype):
        if w.is_leaf:
            return apply(x, w, b, rest, dtype)
        return operator.record(x, w.to(dtype), b if b is None else b.to(dtype), rest)
    return convert_and_run


def convolution(family, compute, backward, both=None):
    """The operator of a convolution. compute: None for faltung's. backward, both: as _differentiate has them."""
    conv = Operator(family.name, family, (_X, _W, _BIAS), _Y, compute or _forward, 0)
    conv.converted, conv.both = (0, 1, 2), both
    _differentiate(conv, backward, both)
    return conv


def _operators(family):
    """The five of a family."""
    input_grad = Operator(f"{family.name}_input_grad", family, (_Y, _W), _X, _input_grad, 1)
    weight_grad = Operator(f"{family.name}_weight_grad", family, (_Y, _X), _W, _weight_grad, 1)
    fused = Operator(f"{family.name}_fused", family, (_X, _W, _BIAS, _RESIDUAL), _Y, _fused, 1)
    layer = Operator(f"{family.name}_layer", family, (_X, *[_CONSTANT] * 6, _RESIDUAL), _Y, _constant.compute, 2)
    not_channels = (0, *range(2, family.dimensions + 2))
    both = _c.Gradients(input_grad.fast, weight_grad.fast, not_channels)

    def of_forward(ctx, x, w, dy, is_quick):
        needs, rest = ctx.needs_input_grad, ctx.rest
        gradients = both(dy, x, w, needs, rest) if is_quick else None
        if gradients is not None:
            return gradients
        if not is_quick and _run.wants_channels_last(x, w):  # as PyTorch's has it: or a compiler has all that follows in the other order
            dy = dy.contiguous(memory_format=_run.FORMATS[dy.dim()])
        return (input_grad.fast(dy, w, x.shape, *rest) if needs[0] else None, weight_grad.fast(dy, x, w.shape, *rest) if needs[1] else None,
                dy.sum(not_channels) if needs[2] else None, None)

    def of_input_grad(ctx, dy, w, ddx, is_quick):
        needs, rest = ctx.needs_input_grad, ctx.rest[1:]
        return (conv.fast(ddx, w, None, *rest) if needs[0] else None, weight_grad.fast(dy, ddx, w.shape, *rest) if needs[1] else None, None)

    def of_weight_grad(ctx, dy, x, ddw, is_quick):
        needs, rest = ctx.needs_input_grad, ctx.rest[1:]
        return (conv.fast(x, ddw, None, *rest) if needs[0] else None, input_grad.fast(dy, ddw, x.shape, *rest) if needs[1] else None, None)

    def composed(x, w, b, residual, rest):
        activate, y = activation_of(rest[-1]), conv.fast(x, w, b, *rest[:-1])
        return activate(y if residual is None else y + residual)

    conv = convolution(family, None, of_forward, both)
    _differentiate(input_grad, of_input_grad)
    _differentiate(weight_grad, of_weight_grad)
    fused.set_gradient(composed, composed)
    layer.set_gradient(*[_constant.composed(conv.fast)] * 2)
    fused.converted, layer.converted = (0, 1, 2, 3), (0, 7)  # not what seldom changes
    return conv, input_grad, weight_grad, fused, layer


def _linear_layer():
    layer = Operator("linear_layer", None, (_X, *[_CONSTANT] * 3, _RESIDUAL), _Y, _linear.compute, 1)
    layer.set_gradient(_linear.composed, _linear.composed)
    layer.converted = (0, 4)
    return layer


OPERATORS = {operator.name: operator for family in FAMILIES for operator in _operators(family)}
OPERATORS["linear_layer"] = _linear_layer()
