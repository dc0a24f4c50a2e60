"""A module that adds to a convolution's result, as a residual network's blocks do: its forward as a straight line, in which the
addition, and the activation after it, are the convolution's."""
import operator

import torch
from torch import nn

from . import _norm_kernels
from ._chain import ACTIVATIONS, Chain
from ._forward import Forward
from ._group import Grouped
from ._layer import FAMILIES, Layer
from ._observe import NORMS, activation_name

# Modules that write to nothing but their result, out of training.
_PURE = (*FAMILIES, *NORMS, nn.Linear, nn.LayerNorm, nn.GroupNorm, nn.Identity, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d)
# What an attribute may be that a trace takes as it was: it is compared with what it was in every call, as an object.
_PLAIN = (bool, int, float, str, bytes, type(None), tuple, torch.dtype, torch.Tensor, type, type(len), type(lambda: 0))


class _Chain(Chain):
    """In the graph of a module's forward, where modules of torch.nn are nodes."""

    def __init__(self, conv, module, adds_alike, taken):
        """adds_alike: of a chain, whether what is added to its last value has that one's shape and dtype. taken: the nodes of other
        chains, to which this one's are added: of two convolutions whose sum is computed, the first adds."""
        super().__init__(conv)
        self.module, self.taken, self.fits = module, taken, lambda other: adds_alike(self)
        self.follow()
        taken.update(self.nodes)

    def reader(self):
        user = super().reader()
        return None if user in self.taken else user

    def layer(self):
        norm = None if self.norm is None else self.module_of(self.norm)
        activation = self.module_of(self.last) if self.activation else None  # None if it is a function
        return Layer(self.module_of(self.nodes[0]), norm, activation, word=self.activation, adds=self.residual is not None)

    def module_of(self, node):
        """None for other operators."""
        return self.module.get_submodule(node.target) if node.op == "call_module" else None

    def is_fixed_norm(self, user):
        norm = self.module_of(user)
        return (type(norm) in NORMS and not norm.training and norm.running_mean is not None and user.args == (self.last,)
                and not user.kwargs)

    def activation_of(self, user):
        return activation_name(self.module_of(user)) if user.op == "call_module" else super().activation_of(user)

    def changes_memory(self, node):
        module = self.module_of(node)
        if module is None:
            return super().changes_memory(node)
        return type(module) not in _PURE and (activation_name(module) is None or getattr(module, "inplace", False))


class _Proxy(torch.fx.Proxy):
    """Which tells ``x += y`` from ``x = x + y``, as torch.fx's own does not."""


def _in_place(function):
    return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})


for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor", "ilshift", "irshift"):
    setattr(_Proxy, f"__{_name}__", _in_place(getattr(operator, _name)))


class _Tracer(torch.fx.Tracer):
    def proxy(self, node):
        return _Proxy(node, self)


def _traced(module):
    """The graph of the module's forward, down to modules of torch.nn; None if it is no straight line of such, or leaves a trace
    of its own in the modules, which is taken back."""
    before = [(vars(inner), dict(vars(inner))) for inner in _containers(module)]
    try:
        graph = _Tracer().trace(module)
    except Exception:  # of whatever the model's own code raises, given no tensors
        graph = None
    for own, values in before:
        if own.keys() != values.keys() or any(own[name] is not value for name, value in values.items()):
            own.clear(), own.update(values)
            graph = None
    return graph


def _chains(graph, module, adds_alike):
    """{the convolution's name: its chain}, of those that run once."""
    convolutions = [node for node in graph.nodes if node.op == "call_module" and type(module.get_submodule(node.target)) in FAMILIES]
    names, taken = [node.target for node in convolutions], set()
    return {node.target: _Chain(node, module, adds_alike, taken) for node in convolutions
            if names.count(node.target) == 1 and len(node.args) == 1 and not node.kwargs}


def _activated(graph, module):
    """{the name of a group norm that runs once: (its node, the function's that alone reads it, that one's word)}."""
    norms = [node for node in graph.nodes if node.op == "call_module" and type(module.get_submodule(node.target)) is nn.GroupNorm]
    names, found = [node.target for node in norms], {}
    for node in norms:
        user = next(iter(node.users), None)
        if names.count(node.target) != 1 or len(node.args) != 1 or node.kwargs or len(node.users) != 1 or user.args[:1] != (node,):
            continue
        word = ACTIVATIONS.get(user.target) if user.op in ("call_function", "call_method") else None
        if word in _norm_kernels.ACTIVATIONS and "out" not in user.kwargs:
            found[node.target] = node, user, word
    return found


def _hooks(module):
    return [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks]


def find(model, observation, may_be_fused, groups=()):
    """The innermost modules that add to a convolution's result, each with a Layer for every convolution that it runs, as
    {module: {the convolution's name in it: Layer}}; in these, and in other modules, a Grouped for every one of the group norms that
    an activation follows that is a function."""
    blocks = {}
    for module, graph in _graphs(model, blocks, FAMILIES):
        chains = _chains(graph, module, lambda chain: observation.adds_alike(chain.module_of(chain.last)))
        layers = {name: chain.layer() for name, chain in chains.items() if may_be_fused(chain.module_of(chain.nodes[0]))}
        if any(layer.adds for layer in layers.values()):
            blocks[module] = layers | _grouped(graph, module, groups)
    if groups:
        for module, graph in _graphs(model, blocks, (nn.GroupNorm,)):
            blocks[module] = _grouped(graph, module, groups)
            if not blocks[module]:
                del blocks[module]
    return blocks


def _grouped(graph, module, groups):
    named = {name: (module.get_submodule(name), word) for name, (_, _, word) in _activated(graph, module).items()}
    return {name: Grouped(norm, word=word) for name, (norm, word) in named.items() if norm in groups}


def _graphs(model, blocks, kinds):
    """Modules that hold some of the kinds, the innermost first, and their graphs: those that neither hold one of the blocks nor are part
    of one when they are asked for."""
    for module in reversed(list(model.modules())):
        if type(module).__module__.startswith("torch.nn.") or any(inner in blocks for inner in module.modules()):
            continue
        if "forward" in module.__dict__ or not any(type(inner) in kinds for inner in module.modules()):
            continue
        if any(module is inner for block in blocks for inner in block.modules()):
            continue
        if any(hooks for inner in module.modules() if inner is not module for hooks in _hooks(inner)) or not _is_plain(module):
            continue
        graph = _traced(module)
        if graph is not None:
            yield module, graph


def _containers(module):
    """The modules whose code a trace goes through."""
    tracer = _Tracer()
    return [module] + [inner for name, inner in module.named_modules() if name and not tracer.is_leaf_module(inner, name)]


def _is_plain(module):
    return all(isinstance(value, _PLAIN) for inner in _containers(module) for name, value in vars(inner).items() if name[0] != "_")


class Block(Forward):
    """Stands in for a module's forward. What the trace took as given is compared in every call: the modules in it, their attributes
    and hooks; if something is no longer what it was, or the call is another, the module's own forward computes it."""

    def __init__(self, module, layers):
        self.module, self.layers, self.run = module, layers, None

    def prepare(self):
        self.run = ()  # as long as there is nothing to run: the module's own forward
        graph = _traced(self.module)
        chains = {} if graph is None else _chains(graph, self.module, lambda chain: chain.nodes[0].target in self.layers
                                                  and self.layers[chain.nodes[0].target].adds)
        functions = {} if graph is None else _activated(graph, self.module)
        for name, layer in self.layers.items():
            if isinstance(layer, Grouped):
                if name not in functions or functions[name][2] != layer.word:
                    return
                node, user, _ = functions[name]
                with graph.inserting_before(node):
                    user.replace_all_uses_with(graph.call_function(layer.run, node.args))
                graph.erase_node(user), graph.erase_node(node)
                continue
            chain = chains.get(name)
            if chain is None or (chain.norm is None, chain.residual is None, chain.activation) != (
                    layer.norm is None, not layer.adds, layer.word):
                return
            with graph.inserting_before(chain.last):
                new = graph.call_function(layer.run, (*chain.nodes[0].args, *[chain.residual] * layer.adds))
            chain.last.replace_all_uses_with(new)
            for dead in reversed(chain.nodes):
                graph.erase_node(dead)
        for node in graph.nodes:
            if node.op == "call_module":  # found by name in every call otherwise
                node.op, node.target = "call_function", _Function(self.module.get_submodule(node.target)).run
        code = graph.python_code("self")
        scope = dict(code.globals)
        exec(compile(code.src, f"<{type(self.module).__name__} by faltung>", "exec"), scope)
        self.inputs = sum(node.op == "placeholder" for node in graph.nodes)
        self.hooks = [hooks for inner in self.module.modules() if inner is not self.module for hooks in _hooks(inner)]
        self.given = [values for inner in _containers(self.module) for values in (vars(inner), inner._modules)]
        self.taken = [list(values.values()) for values in self.given]
        self.fused = [layer for layer in self.layers.values() if isinstance(layer, Layer)]
        self.run = scope["forward"]

    def is_as_it_was(self):
        for values, taken in zip(self.given, self.taken):
            if len(values) != len(taken) or not all(map(operator.is_, values.values(), taken)):
                return False
        return not any(self.hooks) and all(layer.is_as_it_was() for layer in self.fused)

    def __call__(self, *inputs, **named):
        if not torch.compiler.is_compiling():
            if self.run is None:
                self.prepare()
            if (self.run and not named and len(inputs) == self.inputs and all(isinstance(x, torch.Tensor) for x in inputs)
                    and self.is_as_it_was()):
                return self.run(self.module, *inputs)
        return type(self.module).forward(self.module, *inputs, **named)

    def __getstate__(self):
        return {"module": self.module, "layers": self.layers, "run": None}  # the rest is made again


class _Function:
    """A module as a function, under a name that a graph's code may have."""

    def __init__(self, module):
        self.module = module

    def run(self, *arguments, **named):
        return self.module(*arguments, **named)
