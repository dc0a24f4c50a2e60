"""Linear layers of a compiled graph where no gradient is needed: what follows each, in whatever order its dimensions are put, is computed
with it."""
import operator

import torch
import torch.nn.functional as F

from . import _choice
from ._chain import Chain, argument

_PERMUTATIONS = (torch.permute, "permute")
_PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
MOST_ROWS_ALONE = 256
_GELUS = {"none": "gelu", "tanh": "gelu_tanh"}


class LinearChain(Chain):
    """A linear layer and, each its predecessor's only reader, an activation; or permutations, a product with a tensor of the model's own
    that has a value an output, and a residual. order: of the linear layer's dimensions, as the last node has them. value, is_given: of
    a node, its example and whether it is one of the model's own tensors."""

    def __init__(self, linear, value, is_given):
        super().__init__(linear)
        self.value, self.is_given, self.scale = value, is_given, None
        self.order = list(range(value(linear).dim()))

    def follow(self):
        user = self.reader()
        if user is not None and user.args[:1] == (self.last,) and self.activation_of(user):
            self.activation = self.activation_of(user)
            self._take(user)
            return
        orders = [self.order]  # of each node
        while user is not None:
            if self._is_permutation(user):
                self.order = [self.order[d] for d in self._dimensions(user)]
            elif self.scale is None and (scale := self._scale_of(user)) is not None:
                self.scale = scale
            elif self._is_residual(user):
                self.addition = user
                self._take(user)
                break
            else:
                break
            orders.append(self.order)
            user = self._take(user)
        # What is only put in another order costs a compiler nothing.
        while self.last is not self.addition and self._is_permutation(self.last):
            self.nodes.pop()
            orders.pop()
            self.order = orders[-1]

    def activation_of(self, user):
        if user.target is F.gelu:
            return _GELUS.get(argument(user, 1, "approximate", "none"))
        return super().activation_of(user)

    def fits(self, other):
        """Whether it may be read row by row, too."""
        there, own = self.value(other), self.value(self.nodes[0])
        if there is None or there.dim() != own.dim() or there.dtype is not own.dtype:
            return False
        rows = there.permute(self.back())
        return rows.shape == own.shape and rows.is_contiguous()

    def back(self):
        """The permutation to the linear layer's own order."""
        return [self.order.index(d) for d in range(len(self.order))]

    def _dimensions(self, node):
        dimensions = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], (list, tuple)) else node.args[1:]
        return [d % len(self.order) for d in dimensions]

    def _is_permutation(self, node):
        dimensions = node.args[1:2] if node.target is torch.permute else node.args[1:]
        return node.target in _PERMUTATIONS and not node.kwargs and len(dimensions) > 0 and len(self._dimensions(node)) == len(self.order)

    def _scale_of(self, user):
        """The model's own tensor that it multiplies every output by a value of, or None."""
        others = [a for a in user.args if a is not self.last]
        if user.target not in _PRODUCTS or user.kwargs or len(user.args) != 2 or len(others) != 1 or not self.is_given(others[0]):
            return None
        own, scale = self.value(self.nodes[0]), self.value(others[0])
        sizes = [1] * len(self.order)
        sizes[self.order.index(len(sizes) - 1)] = own.shape[-1]  # where the outputs are now
        given = [1] * (len(sizes) - scale.dim()) + list(scale.shape) if scale is not None else None
        return others[0] if given == sizes and scale.dtype is own.dtype else None


def _is_row_by_row(node, value, is_given):
    """Whether a graph's node is a linear layer that may be replaced."""
    if node.op != "call_function" or node.target is not F.linear:
        return False
    x, w, bias = (argument(node, i, name) for i, name in enumerate(("input", "weight", "bias")))
    examples = [value(node), value(x), value(w)]
    if None in examples or not is_given(w) or not is_given(bias) or examples[2].dim() != 2 or examples[1].dim() < 2:
        return False
    dtypes = (torch.float16, torch.bfloat16, *[torch.float32] * (not examples[0].is_cuda))
    if len({t.dtype for t in examples}) != 1 or examples[0].dtype not in dtypes:
        return False
    return examples[1].is_contiguous() and all(isinstance(n, int) and n > 0 for n in (*examples[1].shape, *examples[2].shape))


def _is_alone_worth(chain):
    """Of few rows, as behind a network of convolutions, which products for many do not suit."""
    return chain.value(chain.nodes[0]).shape[:-1].numel() <= MOST_ROWS_ALONE


def chains(graph, value, is_given, is_measured=False):
    """A LinearChain each, of those that are followed by something that is computed with them; if is_measured of some others, too."""
    found = []
    for node in graph.graph.nodes:
        if _is_row_by_row(node, value, is_given):
            chain = LinearChain(node, value, is_given)
            chain.follow()
            if len(chain.nodes) > 1 or (is_measured and _is_alone_worth(chain)):
                found.append(chain)
    return found


def question(chain):
    """What _choice.is_faster_linear takes."""
    node = chain.nodes[0]
    return (chain.value(node.args[0]), chain.value(argument(node, 1, "weight")), argument(node, 2, "bias") is not None,
            chain.scale is not None, chain.residual is not None, chain.activation)


def replace(graph, value, is_given, is_measured):
    """Puts torch.ops.faltung.linear_layer into a graph, if is_measured where it is faster; returns how often."""
    found = chains(graph, value, is_given, is_measured)
    if is_measured:
        found = [chain for chain in found if _choice.is_faster_linear(*question(chain))]
    for chain in found:
        _put(graph.graph, chain)
    return len(found)


def _put(graph, chain):
    x, w, bias = (argument(chain.nodes[0], i, name) for i, name in enumerate(("input", "weight", "bias")))
    is_as_it_was = chain.order == sorted(chain.order)
    with graph.inserting_before(chain.last):
        residual = chain.residual
        if residual is not None and not is_as_it_was:
            residual = graph.call_method("permute", (residual, *chain.back()))
        new = graph.call_function(torch.ops.faltung.linear_layer.default, (x, w, bias, chain.scale, residual, chain.activation))
        if not is_as_it_was:
            new = graph.call_method("permute", (new, *chain.order))
    new.meta = dict(chain.last.meta)
    chain.last.replace_all_uses_with(new)
    for dead in reversed(chain.nodes):
        graph.erase_node(dead)
