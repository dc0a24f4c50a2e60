"""The simulator's rules: each has a kernel that breaks it, whose line and rule are told; and the same kernel without the break passes."""
import numpy as np

import emitted  # noqa: F401  (puts the simulator where `import nki` finds it)
import nki
from nki.machine import RuleBroken

HEAD = """import nki
import nki.isa as nisa
import nki.language as nl
def tile(*shape, dtype=nl.float32, buffer=nl.sbuf, value=1.0):
    made = nl.ndarray(shape, dtype, buffer)
    if value is not None:
        nisa.memset(dst=made, value=value)
    return made
@nki.jit
def kernel(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=x)
"""
# A kernel's lines, the last of which breaks the rule that is told so.
RULES = [
    ("t = nl.ndarray((129, 4), nl.float32, nl.sbuf)", "129 partitions"),
    ("t = nl.ndarray((8,), nl.float16, nl.sbuf)", "a partition and a free dimension"),
    ("t = nl.ndarray((8, 60000), nl.float32, nl.sbuf)", "of a partition of SBUF are in use"),
    ("p = [nl.ndarray((128, 512), nl.float32, nl.psum) for _ in range(8)]; q = nl.ndarray((128, 1), nl.float32, nl.psum)", "9 banks of PSUM"),
    ("t = tile(8, 8, value=None)\n    nisa.tensor_copy(dst=tile(8, 8), src=t)", "were never written"),
    ("nisa.tensor_copy(dst=tile(8, 8), src=tile(4, 16))", "4 partitions are written to 8"),
    ("nisa.tensor_copy(dst=tile(8, 8), src=tile(8, 9))", "9 elements of a partition"),
    ("nisa.tensor_copy(dst=tile(8, 8), src=tile(8, 8), engine=nisa.engine.tensor)", "does not run on the tensor engine"),
    ("t = tile(8, 8)[0:8, 0:9]", "0:9 is taken of dimension 1"),
    ("t = tile(64, 8)\n    nisa.tensor_copy(dst=tile(20, 8), src=t[10:30, 0:8])", "starts at 10"),
    ("t = tile(4, 4, 4, 4, 4)\n    nisa.tensor_copy(dst=tile(4, 16), src=t[:, 0:2, 0:2, 0:2, 0:2])", "free dimensions that do not lie together"),
    ("nisa.dma_copy(dst=y, src=tile(4, 5))", "is copied to"),
    ("nisa.dma_copy(dst=y, src=nl.ndarray((4, 4), nl.float32, nl.psum))", "in psum; both are in HBM or SBUF"),
    ("nisa.nc_matmul(dst=tile(8, 8), stationary=tile(4, 8), moving=tile(4, 8), accumulate=False)", "it must be in psum"),
    ("nisa.nc_matmul(dst=tile(8, 8, buffer=nl.psum, value=None), stationary=tile(4, 8), moving=tile(5, 8), accumulate=False)", "4 partitions and moving 5"),
    ("nisa.nc_matmul(dst=tile(8, 600, buffer=nl.psum, value=None), stationary=tile(4, 8), moving=tile(4, 600), accumulate=False)", "600 free elements, at most 512"),
    ("nisa.nc_matmul(dst=tile(128, 8, buffer=nl.psum, value=None), stationary=tile(4, 129), moving=tile(4, 8), accumulate=False)", "129 free elements, at most 128"),
    ("nisa.nc_matmul(dst=tile(8, 8, buffer=nl.psum, dtype=nl.float16, value=None), stationary=tile(4, 8), moving=tile(4, 8), accumulate=False)", "sums are float32"),
    ("nisa.nc_matmul(dst=tile(8, 8, buffer=nl.psum, value=None), stationary=tile(4, 8), moving=tile(4, 8, dtype=nl.float16), accumulate=False)", "float32 goes with float32"),
    ("p = tile(8, 1024, buffer=nl.psum, value=None)\n    nisa.nc_matmul(dst=p[0:8, 400:600], stationary=tile(4, 8), moving=tile(4, 200), accumulate=False)", "more than one bank"),
    ("nisa.nc_matmul(dst=tile(8, 8, buffer=nl.psum, value=None), stationary=tile(4, 8), moving=tile(4, 8), accumulate=True)", "no product with accumulate=False began"),
    ("nisa.nc_matmul(dst=tile(8, 8, buffer=nl.psum), stationary=tile(4, 8), moving=tile(4, 8), accumulate=True)", "no product with accumulate=False began"),
    ("p = tile(8, 8, buffer=nl.psum, value=None)\n    nisa.nc_matmul(dst=p, stationary=tile(4, 8), moving=tile(4, 8), accumulate=False)\n    nisa.nc_matmul(dst=p, stationary=tile(4, 8), moving=tile(4, 8), accumulate=False)", "before anybody read them"),
    ("p = tile(8, 8, buffer=nl.psum, value=None)\n    nisa.nc_matmul(dst=p, stationary=tile(4, 8), moving=tile(4, 8))\n    nisa.tensor_copy(dst=tile(8, 8), src=p)\n    nisa.nc_matmul(dst=p, stationary=tile(4, 8), moving=tile(4, 8))", "already taken from the bank"),
    ("nisa.nc_transpose(dst=tile(8, 4, buffer=nl.psum, dtype=nl.float16, value=None), data=tile(4, 8), engine=nisa.engine.tensor)", "is turned into float16"),
    ("nisa.nc_transpose(dst=tile(4, 8, buffer=nl.psum, value=None), data=tile(4, 8), engine=nisa.engine.tensor)", "is no transpose"),
    ("p = tile(8, 8, buffer=nl.psum)\n    nisa.tensor_tensor(dst=tile(8, 8), data1=p, data2=p, op=nl.add)", "both inputs are in PSUM"),
    ("nisa.tensor_scalar(dst=tile(8, 8), data=tile(8, 8), op0=nl.add, operand0=tile(8, 1, dtype=nl.float16))", "is not float32"),
    ("nisa.tensor_scalar(dst=tile(8, 8), data=tile(8, 8), op0=nl.add, operand0=tile(8, 2))", "it must be (8, 1)"),
    ("nisa.activation(dst=tile(8, 8), op=nl.add, data=tile(8, 8))", "is no operator of it"),
    ("nisa.memset(dst=tile(8, 8, buffer=nl.psum), value=0.0, engine=nisa.engine.gpsimd)", "does not reach PSUM"),
    ("y = nl.ndarray((4, 4), nl.float32, nl.shared_hbm)", "16 elements of the result were never written"),
]


def failures():
    found = []
    for body, rule in RULES:
        source = HEAD + "    " + body + "\n    return y\n"
        try:
            nki.simulate(emitted.load(source, "rule.py").kernel)(np.ones((4, 4), np.float32))
            found.append(f"nothing is said against: {body}")
        except RuleBroken as broken:
            line = source[:source.index(body)].count("\n") + 1 + body.count("\n")
            if rule not in str(broken) or (broken.line != line and "of the result" not in rule):
                found.append(f"'{body}' should break '{rule}' in line {line}: {broken}")
    y = nki.simulate(emitted.load(HEAD + "    return y\n", "rule.py").kernel)(np.ones((4, 4), np.float32))
    if not (y == 1).all():
        found.append("a kernel that breaks no rule is wrong")
    print(f"rules: {len(RULES)} broken, one by one")
    return found
