"""Which of a model's group norms are computed by kernels of our own, and with which activation."""
import copy

import torch
from torch import nn

from . import _group, _norm_kernels
from ._activations import activation_of
from ._group import Grouped
from ._observe import activation_name
from ._patched import Row
from ._time import time_in_turn

DEVICES, DTYPES = ("cuda",), (torch.float16, torch.bfloat16)  # that there are kernels for


def grouped(norm, observation):
    activation = observation.sole_reader(norm)
    if activation is None or activation in observation.foreign_hooks or activation_name(activation) not in _norm_kernels.ACTIVATIONS:
        return Grouped(norm)
    return Grouped(norm, activation, observation.is_shared(activation))


def refusal(norm, calls, observation):
    """Why a group norm is left to PyTorch, or None."""
    if type(norm) is not nn.GroupNorm:
        return f"it is a {type(norm).__name__}, not torch.nn's own class"
    if "forward" in norm.__dict__:
        return "its forward was replaced already"
    if not calls:
        return "it did not run"
    if norm in observation.foreign_hooks:
        return "it has hooks"
    if any(call is None or call.dtype not in DTYPES for call in calls):
        return "its input is not one tensor of float16 or bfloat16"
    return None


def measure(norm, word, call, name, min_ms, at_least):
    """The row of a group norm with such an activation, from random data of the observed shape, dtype and strides."""
    x = torch.empty_strided(call.shape, call.strides, dtype=call.dtype, device=call.device)
    x.copy_(torch.rand(call.shape, device=call.device) * 2 - 1)
    row, activation = Row(name, "+".join(["norm"] + [word] * bool(word))), activation_of(word)

    def theirs():
        return activation(type(norm).forward(norm, x))
    try:
        y = _group.computed(norm, x, word, True)
        if y is None:
            row.why = "its input is one that is not computed"
            return row
        exact = copy.deepcopy(norm).double()
        exact = activation(type(exact).forward(exact, x[:1].double()))
        scale = exact.abs().max().clamp_min(1e-30)
        row.error, row.torch_error = (((t[:1].double() - exact).abs().max() / scale).item() for t in (y, theirs()))
        del exact, y
        row.problem = f"{tuple(call.shape)} in {norm.num_groups} groups"
        row.kernel = "group_norm_planes" if x.is_contiguous() else "group_norm_rows"
        row.ms, row.torch_ms = time_in_turn([lambda: _group.computed(norm, x, word, True), theirs], call.device, min_ms)
    except RuntimeError as refused:
        row.why = str(refused).split("\n")[0]
        return row
    if row.speedup < at_least:
        row.why = "PyTorch is faster" if row.speedup < 1 else f"less than {at_least} times PyTorch's speed"
    return row


class Groups:
    """A model's group norms. rows: one each; kept: {norm: the Grouped that stands in for it}, where ours is faster."""

    def __init__(self, observation, are_computed):
        self.rows, self.kept, self._observation = [], {}, observation
        for norm, calls in observation.calls.items() if are_computed else ():
            if isinstance(norm, nn.GroupNorm) and (not calls or calls[0] is None or calls[0].device.type in DEVICES):
                why = refusal(norm, calls, observation)
                self.rows.append(Row(observation.names[norm], why=why or ""))
                if why is None:
                    self.kept[norm] = grouped(norm, observation)

    def measure(self, blocks, min_ms, at_least):
        """blocks: as _block.find has them."""
        calls, known, rows = self._observation.calls, {}, {row.name: i for i, row in enumerate(self.rows)}
        inside = {part.norm: part for parts in blocks.values() for part in parts.values() if isinstance(part, Grouped)}
        for norm, stand_in in list(self.kept.items()):
            call, name, word = calls[norm][0], self._observation.names[norm], inside.get(norm, stand_in).word
            key = (call.shape, call.strides, call.dtype, norm.num_groups, word, *(None if p is None else p.dtype for p in norm._parameters.values()))
            if key in known:
                row = copy.copy(known[key])
                row.name = name
            else:
                row = known[key] = measure(norm, word, call, name, min_ms, at_least)
            self.rows[rows[name]] = row
            if not row.kept:
                del self.kept[norm]
        # Where one gives channels-last results the next is given them, which PyTorch's had made contiguous when it was observed.
        last = any(row.kept and row.kernel == "group_norm_rows" for row in self.rows)
        for norm, stand_in in self.kept.items():
            stand_in.last = inside.get(norm, stand_in).last = last
        return len(known)

    def try_in(self, model, example, forwards):
        """Lets the model run with them, which may not take results that are channels-last, and shows what the convolutions are given."""
        if not self.kept:
            return
        try:
            forwards.put()
            self._observation.look_again(model, example)
        except RuntimeError as refused:
            self.drop(f"the model does not run with it: {str(refused).splitlines()[0]}")
        finally:
            forwards.take_back()

    def drop(self, why):
        for row in self.rows:
            row.why = row.why or why
        self.kept = {}
