"""torch.compile(model, backend="faltung"): convolutions by faltung's operators, where no gradient is needed fused with batch
norm, residual and activation; the rest by inductor."""
import functools
import operator

import torch
import torch.nn.functional as F

from .._geometry import FAMILIES, geometry_of
from . import _run

_CONVOLUTIONS = {function: family for family in FAMILIES for function in (getattr(torch, family.name), getattr(F, family.name))}
_PLAIN = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))  # a convolution's arguments behind its tensors
_TRANSPOSED = (("stride", 1), ("padding", 0), ("output_padding", 0), ("groups", 1), ("dilation", 1))
_ACTIVATIONS = {F.relu: "relu", torch.relu: "relu", "relu": "relu", F.relu6: "relu6", F.silu: "silu", F.hardswish: "hardswish",
                torch.sigmoid: "sigmoid", "sigmoid": "sigmoid"}
_ADDITIONS = (operator.add, operator.iadd, torch.add)


def compile_graph(graph, example_inputs, **options):
    """The backend: puts faltung's operators into a torch.fx graph and has it compiled by inductor."""
    from torch._inductor.compile_fx import compile_fx
    replace(graph, torch.is_grad_enabled())
    return compile_fx(graph, example_inputs, **options)


def replace(graph, with_gradients):
    """Puts torch.ops.faltung in place of a graph's convolutions; without gradients, with what follows them. Returns how many
    were replaced, and how many of them fused."""
    replaced = fused = 0
    for node in list(graph.graph.nodes):
        geometry = _geometry(node)
        if geometry is None:
            continue
        family = _CONVOLUTIONS[node.target]
        chain = _Chain(node, with_gradients)
        x, w, bias = (_argument(node, i, name) for i, name in enumerate(("input", "weight", "bias")))
        constants = [w, bias] + [None] * 4
        eps = 0.0
        if chain.norm is not None:
            mean, variance, scale, shift = (_argument(chain.norm, i + 1, name) for i, name in enumerate(
                ("running_mean", "running_var", "weight", "bias")))
            constants, eps = [w, bias, scale, shift, mean, variance], _argument(chain.norm, 7, "eps", 1e-5)
        op = functools.partial(getattr, torch.ops.faltung)
        with graph.graph.inserting_before(chain.last):
            if with_gradients:
                call = op(family.name).default, (x, w, bias, *geometry)
            elif chain.norm is not None or all(_is_given(t) for t in constants):
                call = op(family.name + "_layer").default, (x, *constants, chain.residual, *geometry, eps, chain.activation)
            else:
                call = op(family.name + "_fused").default, (x, w, bias, chain.residual, *geometry, chain.activation)
            new = graph.graph.call_function(*call)
        fused += len(chain.nodes) > 1
        new.meta = dict(chain.last.meta)
        chain.last.replace_all_uses_with(new)
        for dead in reversed(chain.nodes):
            graph.graph.erase_node(dead)
        replaced += 1
    graph.recompile()
    return replaced, fused


def _argument(node, index, name, default=None):
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, default)


def _is_given(node):
    """Whether it is one of the model's own tensors, or an argument, and not computed in every call."""
    return node is None or (isinstance(node, torch.fx.Node) and node.op in ("placeholder", "get_attr"))


def _value(node):
    """The example of a node's tensor, or None."""
    value = node.meta.get("example_value", node.meta.get("val")) if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _geometry(node):
    """stride, padding, dilation, groups, and of a transposed one output_padding, of a convolution that faltung computes; None for
    any other node."""
    if node.op != "call_function" or node.target not in _CONVOLUTIONS:
        return None
    family = _CONVOLUTIONS[node.target]
    x, w = (_value(_argument(node, i, name)) for i, name in enumerate(("input", "weight")))
    # Of two dtypes, since it has run, it is under autocast, which sees our operators, too.
    if x is None or w is None or x.dim() != family.dimensions + 2 or not {x.dtype, w.dtype} <= _run.DTYPES.keys():
        return None
    named = {name: _argument(node, i + 3, name, default)
             for i, (name, default) in enumerate(_TRANSPOSED if family.transposed else _PLAIN)}
    g = geometry_of(family, tuple(w.shape[2:]), **named)
    return [list(g.stride), list(g.padding), list(g.dilation), g.groups] + [list(g.output_padding)] * family.transposed


def _changes_memory(node):
    """Whether it may write to what another node made."""
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__")
    if node.op != "call_function":
        return node.op == "call_module"
    name = getattr(node.target, "__name__", "")
    return (node.kwargs.get("inplace", False) or name.endswith("_") or name == "setitem" or "out" in node.kwargs
            or (len(name) > 3 and name[0] == "i" and node.target is getattr(operator, name, None) and name not in ("is_", "invert")))


class _Chain:
    """A convolution and what one operator after the other follows it, each the only one that reads what is before it. nodes: the
    convolution and those; last: the one whose value all of them make."""

    def __init__(self, node, with_gradients):
        self.nodes, self.norm, self.residual, self.activation = [node], None, None, ""
        if with_gradients:
            return
        user = self._user()
        if user is not None and user.target in (F.batch_norm, torch.batch_norm) and self._is_fixed_norm(user):
            self.norm = user
            self.nodes.append(user)
            user = self._user()
        if user is not None and user.target in _ADDITIONS and self._is_residual(user):
            self.residual = next(a for a in user.args if a is not self.last)
            self.nodes.append(user)
            user = self._user()
        if user is not None and user.args[0] is self.last and user.target in _ACTIVATIONS:
            self.activation = _ACTIVATIONS[user.target]
            self.nodes.append(user)

    @property
    def last(self):
        return self.nodes[-1]

    def _user(self):
        """The only reader of the last node, if nothing that lies between the convolution and it may change the convolution's
        inputs, which are then read later."""
        if len(self.last.users) != 1:
            return None
        user = next(iter(self.last.users))
        if user.op not in ("call_function", "call_method"):
            return None
        between = self.nodes[0].next
        while between is not user:
            if between not in self.nodes and _changes_memory(between):
                return None
            between = between.next
        return user

    def _is_fixed_norm(self, user):
        statistics = [_argument(user, i, name) for i, name in ((1, "running_mean"), (2, "running_var"))]
        constants = statistics + [_argument(user, i, name) for i, name in ((3, "weight"), (4, "bias"))]
        constants += [_argument(self.nodes[0], i, name) for i, name in ((1, "weight"), (2, "bias"))]
        return (user.target is F.batch_norm and _argument(user, 0, "input") is self.last and None not in statistics
                and not _argument(user, 5, "training", False) and all(map(_is_given, constants)))

    def _is_residual(self, user):
        others = [a for a in user.args if a is not self.last]
        if len(user.args) != 2 or user.kwargs or len(others) != 1 or (user.target is operator.iadd and user.args[0] is not self.last):
            return False
        other, own = _value(others[0]), _value(self.nodes[0])
        return other is not None and own is not None and other.shape == own.shape and other.dtype == own.dtype
