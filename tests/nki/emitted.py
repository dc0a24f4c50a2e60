"""Kernels as `faltung emit nki` writes them, loaded and run on the simulator."""
import pathlib
import re
import subprocess
import sys
import types

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "simulated"))
import nki  # noqa: E402  (the simulator, which stands where AWS's package would)
from nki.machine import RuleBroken, rounded  # noqa: E402
from problem import NAMES, Problem  # noqa: E402


class Emitter:
    def __init__(self, faltung):
        self.faltung = faltung

    def __call__(self, text, *options):
        """The kernel's source; None with the reason where it is declined."""
        done = subprocess.run([self.faltung, "emit", "nki", text, *options], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout, ""
        assert done.returncode == 2 and done.stderr.count("\n") == 1, f"{text}: exit code {done.returncode}: {done.stderr}"
        return None, done.stderr.strip()


def load(source, name="kernel.py"):
    module = types.ModuleType("kernel")
    exec(compile(source, name, "exec"), module.__dict__)  # pylint: disable=exec-used
    return module


def run(source, problem, arrays, target="trn2"):
    """The kernel's result in NCHW, and the machine it ran on."""
    kernel = nki.simulate(load(source).convolution, target)
    y = kernel(*[(a.astype(np.float16) if problem.dtype == "f16" else a, NAMES[problem.dtype]) for a in arrays])
    return problem.planes(np.asarray(y, np.float64)), kernel.machine


def wrong(source, text, seed=1, target="trn2"):
    """What is wrong with a kernel, in words, or an empty text: exact on small integers, then within the bound."""
    problem = Problem(text)
    for integers in (True, False):
        arrays = problem.data(seed, integers)
        try:
            y, machine = run(source, problem, arrays, target)
        except RuleBroken as broken:
            return f"rule: {broken}"
        value, bound = problem.expected(*arrays)
        if y.shape != value.shape:
            return f"shape {y.shape}, not {value.shape}"
        if integers and problem.is_exact():
            exact = np.asarray(rounded(value, NAMES[problem.dtype]), np.float64)
            if not np.array_equal(exact, y):
                at = tuple(np.argwhere(exact != y)[0])
                return f"not exact on integers: {y[at]} at {at}, not {exact[at]}"
        else:
            over = np.where(np.isfinite(y), np.abs(y - value) / bound, np.inf)
            if over.max() > 1:
                at = np.unravel_index(over.argmax(), over.shape)
                return f"{over.max():.3g} times the bound at {at}: {y[at]}, not {value[at]}"
    return miscounted(source, machine)


def said(source):
    """What the docstring predicts: for each engine its instructions and amount, and the bytes of SBUF."""
    text = " ".join(source.split())
    engines = {m[1]: (int(m[2]), int(m[3])) for m in re.finditer(r"(tensor|vector|scalar|dma in|dma out|turning)[^,:]*? (\d+) instr. (\d+) ", text)}
    return engines, int(re.search(r"SBUF (\d+) of", text)[1])


def miscounted(source, machine):
    """Whether the kernel did what its prediction is about."""
    engines, sbuf = said(source)
    count = machine.count
    pairs = [(sbuf, machine.peak["sbuf"], "bytes of SBUF")]
    for engine in ("tensor", "vector", "scalar", "turning"):
        predicted = engines.get(engine, (0, 0))
        pairs += [(predicted[0], count[engine + " instructions"], engine + " instructions"), (predicted[1], count[engine + " elements"], engine + " amount")]
    pairs += [(engines["dma in"][i] + engines["dma out"][i], count[what], what) for i, what in enumerate(("dma copies", "dma bytes"))]
    different = [f"{what}: predicted {predicted}, done {done}" for predicted, done, what in pairs if predicted != done]
    return "work: " + "; ".join(different) if different else ""
