"""patch(model, example): faltung's kernels in a model, where they are faster."""
import copy

import torch

from .. import _c
from . import _block, _run
from ._activations import activation_of
from ._forwards import Forwards
from ._groups import Groups
from ._layer import FAMILIES, Layer
from ._norm import Quick
from ._observe import NORMS, Observation, activation_name, fork_rng, run, tensors_of
from ._order import Order
from ._passes import PASSES, WORDS
from ._patched import Patch, Row, difference
from ._time import Phases, time_in_turn
from ._whole import SHARES, leading, time_whole

ABOUT = 0.95  # of PyTorch's time that ours may not reach
MIXED_MS = 0.05  # that a layer of both libraries must save on CUDA: what it costs the host more, which often sets the pace


def refusal(conv, calls, observation):
    """Why a convolution is left to PyTorch, or None."""
    if type(conv) not in FAMILIES:
        return f"it is a {type(conv).__name__}, not one of torch.nn's own classes"
    if "forward" in conv.__dict__:
        return "its forward was replaced already"
    if torch.nn.utils.parametrize.is_parametrized(conv) or "weight" not in conv._parameters:
        return "its weight is computed by a parametrization"
    if not calls:
        return "it did not run"
    if len(calls) > 1:
        return f"it ran {len(calls)} times: it is reused"
    if conv in observation.foreign_hooks:
        return "it has hooks"
    if conv.padding_mode != "zeros":
        return f"its padding mode is {conv.padding_mode}"
    call = calls[0]
    family = FAMILIES[type(conv)]
    if call is None or len(call.shape) != family.dimensions + 2:
        return f"its input is not one tensor {family.image_sizes}"
    mixed = call.dtype != conv.weight.dtype and not torch.is_autocast_enabled(call.device.type)
    if mixed or not {call.dtype, conv.weight.dtype} <= _run.DTYPES.keys():
        return f"its input is {call.dtype}, its weight {conv.weight.dtype}"
    return None


def runs_in_parts(conv):
    """Whether a gradient keeps the convolution from being fused."""
    return torch.is_grad_enabled() and conv.weight.requires_grad


def layer_of(conv, observation):
    """The convolution with what may be fused to it."""
    norm = observation.sole_reader(conv)
    if type(norm) not in NORMS:
        activation, norm = norm, None
    elif norm.running_mean is None or norm in observation.foreign_hooks or observation.is_shared(norm):
        return Layer(conv)
    elif norm.training and not runs_in_parts(conv):
        return Layer(conv)
    else:
        activation = observation.sole_reader(norm)
    if activation is None or activation_name(activation) is None or activation in observation.foreign_hooks:
        return Layer(conv, norm)
    return Layer(conv, norm, activation, observation.is_shared(activation))


def quick(norm, observation):
    """Batch norm in training with the activation that alone reads its result."""
    if norm not in observation.calls or len(observation.calls[norm]) != 1 or norm in observation.foreign_hooks:
        return Quick(norm)
    activation = observation.sole_reader(norm)
    if activation is None or activation_name(activation) is None or activation in observation.foreign_hooks:
        return Quick(norm)
    return Quick(norm, activation, observation.is_shared(activation))


def layer_outside(conv, observation, inside):
    """The same of a convolution in a block, for the block's own forward: inside, the block's layer, may end sooner, and what it has not
    must be itself still where the block runs it."""
    layer = layer_of(conv, observation)
    if layer.norm is not inside.norm:
        return Layer(conv)
    return layer if layer.activation is inside.activation else Layer(conv, layer.norm)


def reference_errors(layer, x, residual, results):
    """The largest difference of each from float64, relative to the largest result, on the first image."""
    y = x[:1].double()
    with torch.backends.cudnn.flags(benchmark=False):
        for module in (layer.conv, layer.norm):
            if module is not None:
                exact = copy.deepcopy(module).double()
                y = type(exact).forward(exact, y)
    y = activation_of(layer.word)(y if residual is None else y + residual[:1].double())
    return [((result[:1].double() - y).abs().max() / y.abs().max().clamp_min(1e-30)).item() for result in results]


def faster_passes(times, at_least, on_cuda):
    """Which passes are faltung's, of {pass: (ms, PyTorch's ms)}, and if none is, why: those that are at least so many times as fast.
    Beside one that is, so is one of about PyTorch's time, and on CUDA any, where a layer of both libraries would save too little more
    than one of ours alone."""
    slack = ABOUT if any(torch_ms >= at_least * ms for ms, torch_ms in times.values()) else 1.0
    ours = frozenset(which for which, (ms, torch_ms) in times.items() if torch_ms >= slack * at_least * ms)
    if not ours:
        return ours, "PyTorch is faster in every pass"
    if not on_cuda or len(ours) == len(times):
        return ours, ""
    both, alone = (sum(times[which][1] - at_least * times[which][0] for which in some) for some in (ours, times))
    if alone >= 0 and both - alone < MIXED_MS:
        return frozenset(times), ""
    if both < MIXED_MS:
        return frozenset(), f"the passes that are faster save less than {1e3 * MIXED_MS:.0f} us, which a layer of both libraries costs the host"
    return ours, ""


@torch.no_grad()
def choose_passes(layer, row, x, needs_x, min_ms, at_least):
    """Of a layer in training: each pass is timed on its own, and is faltung's or PyTorch's."""
    passes, w, kernels = layer.passes, layer.conv.weight.to(x.dtype), []
    needed = (True, needs_x, layer.conv.weight.requires_grad)
    times = {which: passes.time(which, x, w, min_ms / sum(needed)) for which in filter(needed.__getitem__, PASSES)}
    ours, row.why = faster_passes(times, at_least, x.is_cuda)
    for which, (ms, torch_ms) in times.items():
        is_ours = which in ours
        row.ms, row.torch_ms = row.ms + (ms if is_ours else torch_ms), row.torch_ms + torch_ms
        kernels.append(f"{WORDS[which]} {_run.plan_for(*passes.wanted(which, x, w, x)).kernel if is_ours else 'PyTorch'} {ms:.4f}/{torch_ms:.4f}")
    passes.ours, row.kernel = ours, ", ".join(kernels)


def plan_ahead(layers):
    """The plans that measure will ask for, of (layer, call) in any number, made at once. Returns how many."""
    wanted, device = [], None
    for layer, call in layers:
        device, training = call.device, runs_in_parts(layer.conv)
        autocast = torch.is_autocast_enabled(device.type)
        like = torch.empty(0, dtype=torch.get_autocast_dtype(device.type) if autocast else call.dtype, device=device)
        x, w = torch.empty_strided(call.shape, call.strides, device="meta"), layer.conv.weight
        wanted.append(layer.wanted(x, like, training))
        if training and layer.passes.is_symmetric:
            wanted += [layer.passes.wanted(which, x, w, like) for which in PASSES]
    return _run.plan_ahead(device, wanted) if wanted else 0


def measure(layer, call, name, min_ms, at_least, between):
    """The row of a layer, from random data of the observed shape, dtype and strides. between: see time_in_turn."""
    conv = layer.conv
    training = runs_in_parts(conv)
    if training:  # when each pass is timed on its own: what follows is PyTorch's then
        passes = layer.passes
        layer = Layer(conv)
        layer.passes = passes
    x = torch.empty_strided(call.shape, call.strides, dtype=call.dtype, device=call.device)
    x.copy_(torch.rand(call.shape, device=call.device) * 2 - 1)
    fused = "+".join(["conv"] + ["bn"] * (layer.norm is not None) + ["add"] * layer.adds + [layer.word] * bool(layer.word))
    residual = None
    ours = (lambda: layer.parts(x)) if training else (lambda: layer.fused(x, residual))

    def theirs():
        y = type(conv).forward(conv, x)
        if layer.norm is not None:
            y = type(layer.norm).forward(layer.norm, y)
        return activation_of(layer.word)(y if residual is None else y.add_(residual))

    try:
        with torch.no_grad():
            if layer.adds:
                residual = torch.rand_like(theirs())
            result = ours()
            error, torch_error = reference_errors(layer, x, residual, (result, theirs()))
            plan = _run.plan_for(*layer.wanted(x, result, training))
        row = Row(name, fused, plan.problem, plan.kernel, error=error, torch_error=torch_error)
        if not training:
            row.ms, row.torch_ms = time_in_turn([ours, theirs], call.device, min_ms, between)
        else:
            choose_passes(layer, row, x.to(result.dtype), call.requires_grad, min_ms, at_least)
    except (_c.Error, RuntimeError) as refused:
        return Row(name, fused, why=str(refused).split("\n")[0])
    if not training and row.speedup < at_least:
        row.why = "PyTorch is faster" if row.speedup < 1 else f"less than {at_least} times PyTorch's speed"
    return row


def _kind(layer, call):
    """What layers of the same times have in common."""
    weight = layer.conv.weight
    return (call.shape, call.strides, call.dtype, tuple(weight.shape), weight.stride(), layer.geometry, layer.family,
            layer.conv.bias is None, layer.norm is None, layer.adds, layer.word, runs_in_parts(layer.conv))


def _fastest(model, example, everything, blocks, norms, saved, device, min_ms):
    """The Forwards with which the whole model takes the least, and what Patch.whole has; everything where nothing can be timed.
    everything: the Forwards of all layers, blocks and norms of either kind; saved: milliseconds by convolution."""
    groups = everything.groups
    candidates = {"in PyTorch alone": Forwards({}, {})}
    for share in SHARES:
        chosen = leading(saved, share)
        ways = ["called directly"] if norms else [""]
        if norms and device.type == "cuda":
            ways = ["and its activation by faltung"] + ways * (share in (0.0, 1.0))
        for how in ways:
            name = f"with {len(chosen)} layers of faltung's" + f", batch norm {how}" * bool(how)
            some = {conv: layer for conv, layer in everything.layers.items() if conv in chosen}
            if chosen or norms:
                candidates[name] = Forwards(some, blocks, norms, how == "and its activation by faltung")
            if groups and (chosen or share == 0.0):
                candidates[name + f" and {len(groups)} group norms"] = Forwards(some, blocks, groups=groups)

    def putting(candidate):
        def put():
            everything.take_back()
            candidate.put()
        return put
    try:
        times = time_whole(model, example, list(map(putting, candidates.values())), device, min_ms)
    finally:
        everything.take_back()
    if times is None:
        return everything, {}
    whole = dict(zip(candidates, times))
    return candidates[min(whole, key=whole.get)], whole


def patch(model, example, *, at_least=1.0, min_time=40.0, memory_format=torch.preserve_format):
    """Replaces the model's convolutions (``torch.nn.Conv1d`` to ``ConvTranspose3d``) by faltung's where they are faster, with the
    batch norm (in eval mode) and the activation that follow where the forward pass of ``example`` (the input, or a tuple of them)
    shows that nothing else reads what is between. Each layer is timed beside PyTorch's own, in turn, for min_time milliseconds
    each, on CUDA without what the host takes; it is kept where ours is at least ``at_least`` times as fast. Then the whole model is
    timed as it runs, in training with the gradients of its result, without faltung and with those layers that save most: the fastest
    is kept (at_least=0 keeps all that is computed). Returns a :class:`Patch`.

    Parameters, state_dict and hooks stay as they are; the modules' ``forward`` is replaced, and ``undo`` takes that back. Weights
    are read again when they change, but for changes that PyTorch does not count, through ``.data`` or of weights that were made in
    inference mode: patch again after those.

    memory_format: ``torch.channels_last`` (or its ``_3d``) puts the convolutions' weights into that order first, so that from the
    first convolution on all is, as PyTorch's own ``model.to(memory_format=...)`` does; ``undo`` takes that back, too. Times are then
    of either library in that order."""
    order = Order(model, memory_format)
    try:
        return _patch(model, example, order, at_least, min_time)
    except BaseException:
        order.undo()
        raise


def _patch(model, example, order, at_least, min_time):
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()]  # that a forward pass in training mode moves
    try:
        return _choose(model, example, order, at_least, min_time)
    finally:
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)


def _choose(model, example, order, at_least, min_time):
    training = torch.is_grad_enabled() and model.training
    tensors = (*model.parameters(), *model.buffers(), *tensors_of(example))
    took = Phases()
    with torch.set_grad_enabled(training), fork_rng(*tensors):
        observation = Observation(model, example)
        why_not = {conv: refusal(conv, calls, observation) for conv, calls in observation.calls.items()
                   if isinstance(conv, tuple(FAMILIES))}
        groups = Groups(observation, not training)
        blocks = {} if model.training else _block.find(model, observation, lambda conv: why_not[conv] is None, groups.kept)
        took.end("for a pass of the model")
        if groups.kept:
            measured = groups.measure(blocks, min_time, at_least)
            groups.try_in(model, example, Forwards({}, blocks, groups=groups.kept))
            took.end(f"for the times of {measured} kinds of group norms")
        in_blocks = {layer.conv: layer for inside in blocks.values() for layer in inside.values() if isinstance(layer, Layer)}
        rows, layers, known = [], {}, {}
        between = sum(t.numel() * t.element_size() for t in model.parameters())
        candidates = {conv: in_blocks.get(conv) or layer_of(conv, observation) for conv, why in why_not.items() if why is None}
        kinds = {conv: _kind(layer, observation.calls[conv][0]) for conv, layer in candidates.items()}
        one_of_each = {kind: conv for conv, kind in kinds.items()}.values()
        planned = plan_ahead([(candidates[conv], observation.calls[conv][0]) for conv in one_of_each])
        took.end(f"for {planned} plans")
        for conv, why in why_not.items():
            name, call = observation.names[conv], observation.calls[conv][:1]
            if why is not None:
                rows.append(Row(name, why=why))
                continue
            layer, same = candidates[conv], kinds[conv]
            if same in known:
                row, layer.passes = copy.copy(known[same][0]), known[same][1]
                row.name = name
            else:
                row = measure(layer, call[0], name, min_time, at_least, between)
                known[same] = row, layer.passes
            rows.append(row)
            if row.kept:  # a block's own forward runs layers, too, where the block does not
                layers[conv] = layer_outside(conv, observation, layer) if conv in in_blocks else layer
            else:
                layer.forget()
        took.end(f"for the times of {len(known)} kinds of layers")
        observation.forget()
        norms = [quick(norm, observation) for norm in model.modules() if type(norm) in NORMS and "forward" not in norm.__dict__
                 ] if training else []
        forwards, whole = Forwards(layers, blocks, norms, groups=groups.kept), {}
        if (layers or groups.kept) and at_least > 0:
            saved = {conv: row.torch_ms - row.ms for conv, row in zip(why_not, rows) if conv in layers}
            device = observation.calls[next(iter(layers or groups.kept))][0].device
            forwards, whole = _fastest(model, example, forwards, blocks, norms, saved, device, min_time)
            took.end("for the times of all together")
        for conv, row in zip(why_not, rows):
            if conv in layers and conv not in forwards.layers:
                row.why = "the whole model is faster without it"
                layers[conv].forget()
        if not forwards.groups:
            groups.drop("the whole model is faster without it")
        forwards.put()
        patched = Patch(rows, forwards, observation.overflows_in, order, whole, took, groups.rows)
        if not model.training and patched.overflows_in is None:
            with torch.no_grad():
                patched.difference = difference(observation.results, tensors_of(run(model, example)))
    return patched
