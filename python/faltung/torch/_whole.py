"""How many of a model's layers are kept: the whole model is timed as it runs, with what the host takes, which layers that are timed
on their own do not show."""
import statistics
import time

import torch

from .. import _c
from ._observe import run, tensors_of

SHARES = (0.0, 0.6, 0.9, 1.0)  # of what all layers save
ROUNDS, LEAST_ROUNDS = 5, 3
MOST_SECONDS = 5.0  # after the least rounds no other begins then


def leading(saved, share):
    """The fewest of {a layer: milliseconds that it saves} that save such a share of what all do."""
    wanted, leaders = share * sum(saved.values()), []
    for layer in sorted(saved, key=saved.get, reverse=True):
        if wanted <= 1e-12 * len(saved):
            break
        leaders.append(layer)
        wanted -= saved[layer]
    return frozenset(saved if share == 1.0 else leaders)


def _pass_of(model, example):
    """A function that runs the model, with gradients of its parameters where they are enabled and its result has some; None if it
    should have, and has none."""
    if not torch.is_grad_enabled():
        return lambda: run(model, example)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def both():
        torch.clear_autocast_cache()  # which a step of its own does not have, and which would save PyTorch alone its conversions
        results = [t for t in tensors_of(run(model, example)) if t.requires_grad]
        # Not backward(), which would add to the parameters' gradients and call what waits for those.
        torch.autograd.grad(results, parameters, [torch.randn_like(t) for t in results], allow_unused=True)
    return both if parameters and any(t.requires_grad for t in tensors_of(run(model, example))) else None


def _milliseconds(function, runs, device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for _ in range(runs):
        function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - begin) / runs


def time_whole(model, example, candidates, device, min_ms):
    """The median milliseconds of the model with each of the candidates put in place, in turn, as autocast and gradients are where
    this is called; None where it cannot be timed. candidates: functions that put one in place."""
    least = 3 if device.type == "cuda" else 1  # a step's first kernels wait for the host
    try:
        function = _pass_of(model, example)
        if function is None:
            return None
        times, begin = [[] for _ in candidates], time.perf_counter()
        for done in range(ROUNDS):
            if done >= LEAST_ROUNDS and time.perf_counter() - begin > MOST_SECONDS:
                break
            for put, own in zip(candidates, times):
                put()
                took = _milliseconds(function, 1, device)
                own.append(_milliseconds(function, max(least, int(min_ms / max(took, 1e-3))), device))
    except (_c.Error, RuntimeError):  # no memory for a backward pass, or one that the model declines
        return None
    return [statistics.median(own) for own in times]
