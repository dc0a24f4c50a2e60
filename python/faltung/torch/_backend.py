"""torch.compile(model, backend="faltung"): convolutions by faltung's operators, where no gradient is needed fused with batch
norm, residual and activation; the rest by inductor."""
import copy
import functools
import operator

import torch
import torch.nn.functional as F

from .._geometry import FAMILIES, geometry_of
from . import _choice, _islands, _linears, _run
from ._activations import with_pool
from ._chain import Chain, argument

_CONVOLUTIONS = {function: family for family in FAMILIES for function in (getattr(torch, family.name), getattr(F, family.name))}
_POOLS = (F.max_pool2d, torch.max_pool2d)
_PLAIN = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))  # a convolution's arguments behind its tensors
_TRANSPOSED = (("stride", 1), ("padding", 0), ("output_padding", 0), ("groups", 1), ("dilation", 1))


# Of the operators' arguments, from the second on.
_CONSTANTS_END = {getattr(torch.ops.faltung, family.name + "_layer").default: 7 for family in FAMILIES}
_CONSTANTS_END[torch.ops.faltung.linear_layer.default] = 4
_MEASURES = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "benchmark_fusion")  # settings by which inductor does as it compiles
MOST_PLACES = 4  # in memory, of a graph's inputs, at each of which they are read by a recorded graph of its own


def compile_graph(graph, example_inputs, *, mode=None, options=None):
    """The backend: puts faltung's operators into a torch.fx graph and has it compiled by inductor, whose mode and options these are.
    On CUDA, where no gradient is needed, it runs as a CUDA graph unless the options say otherwise (triton.cudagraphs), for as long
    as the weights stay what they were."""
    from torch._inductor import config, list_mode_options
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    with_gradients, on_cuda = torch.is_grad_enabled(), _is_on_cuda(example_inputs)
    if on_cuda:
        _start_compilers()
    ahead = _choice.Ahead(_with_examples(graph) if with_gradients else ())
    replace(graph, with_gradients, is_measured=True)
    moving, is_in_place = None if with_gradients else _moving(graph, example_inputs), []

    def inner_compile(inner, inputs, **keywords):
        ahead.wait()
        _choice.choose_passes(inner)
        ahead.begin_gradients()
        try:
            if any(getattr(config, name) for name in _MEASURES):
                ahead.wait()
            return compile_chosen(inner, inputs, **keywords)
        finally:
            ahead.wait()

    def compile_chosen(inner, inputs, **keywords):
        if moving and _reads_alone(inner) and not _returns_inputs() and keywords.get("cudagraphs") and "static_input_idxs" in keywords:
            keywords["static_input_idxs"] = list(range(len(inputs)))  # which are copied otherwise, in every call
            is_in_place.append(True)
        return compile_fx_inner(inner, inputs, **keywords)

    def compile_by(graph, given, patches):
        with torch._functorch.config.patch(enable_autograd_cache=False):  # which holds what was chosen in another process
            return compile_fx(graph, given, inner_compile, config_patches=patches)
    chosen = {"triton.cudagraphs": on_cuda and not with_gradients} | (list_mode_options(mode) if mode else {}) | (options or {})
    if not chosen["triton.cudagraphs"] or with_gradients:
        return compile_by(graph, example_inputs, chosen)
    # Dynamo's own graph knows which inputs lie still, and is used up; a copy serves if it must be compiled once more.
    other, plain = copy.deepcopy(graph), chosen | {"triton.cudagraphs": False}
    run = compile_by(graph, example_inputs, chosen)
    return _Recorded(other, run, lambda inputs: compile_by(other, inputs, plain), moving if is_in_place else ())


def _is_on_cuda(inputs):
    return any(isinstance(t, torch.Tensor) and t.is_cuda for t in inputs)


def _start_compilers():
    """Inductor's processes for Triton's kernels, which take seconds to start and without which it compiles one kernel after another: they
    start while layers are measured."""
    from torch._inductor import async_compile
    getattr(async_compile, "maybe_warm_pool", lambda: None)()  # an older one starts them as it is imported


def _moving(graph, example_inputs):
    """Which of a graph's inputs may lie elsewhere in every call, being none of the model's own tensors; None unless all those are tensors on
    CUDA that a copy can stand in for."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    which = [i for i, node in enumerate(inputs) if not _is_given(node)]
    tensors = [example_inputs[i] for i in which]
    fits = len(inputs) == len(example_inputs) and all(_choice.is_static(t) and t.is_cuda and 0 not in t.stride() for t in tensors)
    return which if fits and torch._dynamo.config.inline_inbuilt_nn_modules else None  # else no graph may be recorded again


def _reads_alone(graph):
    """Whether a graph behind autograd, in which whatever changes memory is an operator that says so, leaves its inputs as they were."""
    operators = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    return not any(getattr(operator, "_schema", None) is not None and operator._schema.is_mutable for operator in operators)


def _returns_inputs():
    """Whether results of what is being compiled are its inputs, or views of them: those must not be of copies."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return True
    return any("input" in output.output_type.name for output in context.fw_metadata.output_info)


class _Recorded:
    """A compiled graph that is replayed, and with it what was made of the weights before: when those change, which PyTorch counts,
    it is compiled again to be run each time. moving: the inputs that it reads where they lie, though that changes: it is recorded once for
    each of the first places, and what lies elsewhere is copied."""

    def __init__(self, graph, run, compile_again, moving=()):
        self.run, self.compile_again = run, compile_again
        self.moving, self.places, self.copies = moving, set(), None
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        layers = [node for node in graph.graph.nodes if node.target in _CONSTANTS_END]
        constants = {a for node in layers for a in node.args[1:_CONSTANTS_END[node.target]] if a is not None}
        self.which = [i for i, node in enumerate(inputs) if node in constants]
        self.held = [operator.attrgetter(node.target)(graph) for node in constants if node.op == "get_attr"]
        self.versions = None

    def __call__(self, *inputs):
        if self.compile_again is not None:
            versions = [0 if t.is_inference() else t._version for t in (*self.held, *map(inputs.__getitem__, self.which))]
            if self.versions not in (None, versions):
                self.run, self.compile_again, self.copies = self.compile_again(list(inputs)), None, None
            self.versions = versions
        return self.run(*inputs) if self.compile_again is None else self.run(*self._placed(inputs))

    def _placed(self, inputs):
        """The inputs where a graph is recorded for, or may be: copies of them where neither is so."""
        place = tuple(inputs[i].data_ptr() for i in self.moving)
        if place not in self.places and len(self.places) < MOST_PLACES and not any(address % _run.ALIGNMENT for address in place):
            self.places.add(place)
        if not place or place in self.places:
            return inputs
        given, inputs = [inputs[i] for i in self.moving], list(inputs)
        if self.copies is None:
            with torch.inference_mode(False):  # or they could not be written to outside of it
                self.copies = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) for t in given]
        torch._foreach_copy_(self.copies, given)
        for i, copied in zip(self.moving, self.copies):
            inputs[i] = copied
        return inputs


def replace(graph, with_gradients, is_measured=False):
    """Puts torch.ops.faltung in place of a graph's convolutions; without gradients, with what follows them, and if is_measured where
    that is faster; then of linear layers, too, that something follows. Returns how many were replaced, and how many of them fused."""
    replaced = fused = 0 if with_gradients else _islands.replace(graph, _value, _is_given, is_measured)
    convolutions = _convolutions(graph)
    if is_measured and not with_gradients:
        _choice.plan_ahead([_question(_followed(node), geometry) for node, geometry in convolutions.items()],
                           map(_linears.question, _linears.chains(graph, _value, _is_given, is_measured)))
    for node, geometry in convolutions.items():
        family = _CONVOLUTIONS[node.target]
        chain = _Chain(node) if with_gradients else _followed(node)
        if is_measured and not with_gradients and not _choice.is_faster_fused(*_question(chain, geometry)):
            if not chain.leave_pool() or not _choice.is_faster_fused(*_question(chain, geometry)):
                continue
        x, w, bias = _tensors(node)
        constants = [w, bias] + [None] * 4
        eps = 0.0
        if chain.norm is not None:
            mean, variance, scale, shift = (argument(chain.norm, i + 1, name) for i, name in enumerate(
                ("running_mean", "running_var", "weight", "bias")))
            constants, eps = [w, bias, scale, shift, mean, variance], argument(chain.norm, 7, "eps", 1e-5)
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
    if not with_gradients:
        linear = _linears.replace(graph, _value, _is_given, is_measured)
        replaced, fused = replaced + linear, fused + linear
    graph.recompile()
    return replaced, fused


def _convolutions(graph):
    """{node: its geometry}"""
    return {node: geometry for node in graph.graph.nodes if (geometry := _geometry(node)) is not None}


def _with_examples(graph):
    """What _choice.Ahead takes."""
    return [(_CONVOLUTIONS[node.target], geometry, *map(_value, (*_tensors(node)[:2], node))) for node, geometry in _convolutions(graph).items()]


def _followed(node):
    chain = _Chain(node)
    chain.follow()
    return chain


def _tensors(node):
    return [argument(node, i, name) for i, name in enumerate(("input", "weight", "bias"))]


def _question(chain, geometry):
    """What is_faster_fused takes."""
    x, w, bias = _tensors(chain.nodes[0])
    return (_CONVOLUTIONS[chain.nodes[0].target], _value(x), _value(w), bias is not None or chain.norm is not None, geometry,
            chain.residual is not None, chain.activation, len(chain.nodes) > 1)


def _is_given(node):
    """Whether it is one of the model's own tensors, and neither computed in every call nor an argument, of which a CUDA graph reads a copy."""
    if node is None:
        return True
    return isinstance(node, torch.fx.Node) and (node.op == "get_attr" or "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {}))


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
    x, w = (_value(argument(node, i, name)) for i, name in enumerate(("input", "weight")))
    # Of two dtypes, since it has run, it is under autocast, which sees our operators, too.
    if x is None or w is None or x.dim() != family.dimensions + 2 or not {x.dtype, w.dtype} <= _run.DTYPES.keys():
        return None
    named = {name: argument(node, i + 3, name, default)
             for i, (name, default) in enumerate(_TRANSPOSED if family.transposed else _PLAIN)}
    g = geometry_of(family, tuple(w.shape[2:]), **named)
    return [list(g.stride), list(g.padding), list(g.dilation), g.groups] + [list(g.output_padding)] * family.transposed


def _pool(node):
    """Window, stride and padding of a maximum over squares; None for others."""
    window = argument(node, 1, "kernel_size")
    named = (("stride", window), ("padding", 0), ("dilation", 1), ("ceil_mode", False), ("return_indices", False))
    stride, padding, dilation, *others = (argument(node, i + 2, name, usual) for i, (name, usual) in enumerate(named))
    numbers = [v[0] if isinstance(v, (tuple, list)) and len(set(v)) == 1 else v for v in (window, window if stride in (None, []) else stride, padding)]
    fits = dilation in (1, (1, 1), [1, 1]) and not any(others) and all(isinstance(v, int) for v in numbers)
    return numbers if fits and numbers[0] > 0 and 2 * numbers[2] <= numbers[0] else None


class _Chain(Chain):
    """In the graph that Dynamo captured: functions, whose tensors have examples. unpooled: the activation before a pool, which ends the
    chain; None where there is none."""
    unpooled = None

    def is_fixed_norm(self, user):
        if user.target not in (F.batch_norm, torch.batch_norm):
            return False
        statistics = [argument(user, i, name) for i, name in ((1, "running_mean"), (2, "running_var"))]
        constants = statistics + [argument(user, i, name) for i, name in ((3, "weight"), (4, "bias"))]
        constants += [argument(self.nodes[0], i, name) for i, name in ((1, "weight"), (2, "bias"))]
        return (user.target is F.batch_norm and argument(user, 0, "input") is self.last and None not in statistics
                and not argument(user, 5, "training", False) and all(map(_is_given, constants)))

    def follow(self):
        super().follow()
        user = self.reader()
        if user is not None and user.target in _POOLS and not _CONVOLUTIONS[self.nodes[0].target].transposed and (pool := _pool(user)) and argument(user, 0, "input") is self.last:
            constants = [argument(self.nodes[0], i, name) for i, name in ((1, "weight"), (2, "bias"))]
            if _value(self.nodes[0]) is not None and _value(self.nodes[0]).dim() == 4 and all(map(_is_given, constants)):
                self.unpooled, self.activation = self.activation, with_pool(self.activation, *pool)
                self._take(user)

    def leave_pool(self):
        """Whether there was one."""
        if self.unpooled is None:
            return False
        self.activation, self.unpooled = self.unpooled, None
        self.nodes.pop()
        return True

    def fits(self, other):
        there, own = _value(other), _value(self.nodes[0])
        return there is not None and own is not None and there.shape == own.shape and there.dtype == own.dtype
