"""What follows a convolution in a graph of torch.fx, and may be computed with it."""
import operator

import torch
import torch.nn.functional as F

ACTIVATIONS = {F.relu: "relu", torch.relu: "relu", "relu": "relu", F.relu6: "relu6", F.silu: "silu", F.hardswish: "hardswish",
               torch.sigmoid: "sigmoid", "sigmoid": "sigmoid"}
ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")
OPERATORS = ("call_function", "call_method", "call_module")


def argument(node, index, name, default=None):
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, default)


def changes_memory(node):
    """Whether an operator may write to what another made; of a module nothing is known."""
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__")
    if node.op != "call_function":
        return node.op == "call_module"
    name = getattr(node.target, "__name__", "")
    return (node.kwargs.get("inplace", False) or name.endswith("_") or name == "setitem" or "out" in node.kwargs
            or (len(name) > 3 and name[0] == "i" and node.target is getattr(operator, name, None) and name not in ("is_", "invert")))


class Chain:
    """A convolution and what one operator after the other follows it, each the only one that reads what is before it: batch norm,
    a residual, an activation. nodes: the convolution and those; last: the one whose value all of them make; norm and
    addition: nodes; residual: the node that is added; activation: the problem's word. What the graph's nodes are, subclasses say."""

    def __init__(self, conv):
        self.nodes, self.norm, self.addition, self.activation = [conv], None, None, ""

    def follow(self):
        user = self.reader()
        if user is not None and self.is_fixed_norm(user):
            self.norm, user = user, self._take(user)
        if user is not None and self._is_residual(user):
            self.addition, user = user, self._take(user)
        if user is not None and user.args[:1] == (self.last,) and self.activation_of(user):
            self.activation = self.activation_of(user)
            self._take(user)

    def is_fixed_norm(self, user):
        """Whether it is a batch norm of the last node, by statistics that this does not change."""
        raise NotImplementedError

    def fits(self, other):
        """Whether a node's value has the convolution's shape and dtype."""
        raise NotImplementedError

    def activation_of(self, user):
        """The word, or None."""
        return ACTIVATIONS.get(user.target) if user.op != "call_module" else None

    def changes_memory(self, node):
        return changes_memory(node)

    @property
    def residual(self):
        if self.addition is None:
            return None
        before = self.nodes[self.nodes.index(self.addition) - 1]
        return next(a for a in self.addition.args if a is not before)

    @property
    def last(self):
        return self.nodes[-1]

    def _take(self, user):
        """Returns what reads it."""
        self.nodes.append(user)
        return self.reader()

    def reader(self):
        """The only reader of the last node, if nothing that lies between the convolution and it may change the convolution's
        inputs, which are then read later."""
        if len(self.last.users) != 1:
            return None
        user = next(iter(self.last.users))
        if user.op not in OPERATORS:
            return None
        between = self.nodes[0].next
        while between is not user:
            if between not in self.nodes and self.changes_memory(between):
                return None
            between = between.next
        return user

    def _is_residual(self, user):
        if user.op == "call_module" or user.target not in ADDITIONS:
            return False
        others = [a for a in user.args if a is not self.last]
        in_place = user.target in (operator.iadd, "add_")
        if len(user.args) != 2 or user.kwargs or len(others) != 1 or (in_place and user.args[0] is not self.last):
            return False
        return isinstance(others[0], torch.fx.Node) and self.fits(others[0])
