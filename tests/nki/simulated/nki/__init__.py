"""NKI's operations on NumPy, as far as faltung's kernels use them, with the language's documented rules as errors.

It stands in for AWS's package `nki` in tests: `import nki` finds it where tests/nki/simulated is on the path. Operations run one after the
other, eagerly. What breaks a rule raises `RuleBroken`, which names the kernel's line and the rule, with the public guide's section that has it.
"""
from . import machine
from .machine import RuleBroken


def jit(function):
    """A kernel: NumPy arrays become tensors in HBM, and what it returns becomes one again."""
    return function


def simulate(kernel, target="trn2"):
    """A function on arrays that runs the kernel on a fresh machine; its `machine` then has the counts."""
    def run(*arrays):
        run.machine = machine.start(target)
        inputs = [machine.Tensor.of_array(a, dtype) for a, dtype in (a if isinstance(a, tuple) else (a, None) for a in arrays)]
        return kernel(*inputs).array()
    return run
