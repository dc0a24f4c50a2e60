"""nki_test.py FALTUNG: emitted NKI kernels in the simulator.

A list of problems and random ones: exact on small integers, within the bound on random data, and the work done is the work that the
prediction counts. Faults that are put into kernels are caught. FALTUNG_TEST_FULL=1 runs ten times as many random problems, and both chips
for all; FALTUNG_TEST_SEED draws others.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
from emitted import Emitter, load, wrong  # noqa: E402
import emitted  # noqa: E402
import rules  # noqa: E402
from problem import random_problem  # noqa: E402

FULL = bool(os.environ.get("FALTUNG_TEST_FULL"))
SEED = int(os.environ.get("FALTUNG_TEST_SEED", "1"))
LONGEST = 200  # lines that a kernel may have


def check(emit, text, *options):
    source, why = emit(text, *options)
    if source is None:
        return f"declined: {why}"
    if source.count("\n") >= LONGEST:
        return f"{source.count(chr(10))} lines"
    return wrong(source, text, target="trn1" if "trn1" in options else "trn2")


def listed(emit):
    failures = []
    problems = (HERE / "problems.txt").read_text().split()
    for i, text in enumerate(problems):
        for chip in ("trn2", "trn1") if FULL or i % 10 == 0 else ("trn2",):
            why = check(emit, text, "--target", chip)
            if why:
                failures.append(f"{text} on {chip}: {why}")
    print(f"listed: {len(problems)} problems")
    return failures


def drawn(emit):
    failures, declined = [], 0
    count = 400 if FULL else 40
    for i in range(count):
        text = random_problem(np.random.default_rng((SEED, i)))
        why = check(emit, text)
        if why.startswith("declined"):
            declined += 1
        elif why:
            failures.append(f"{text} (FALTUNG_TEST_SEED={SEED}, number {i}): {why}")
    print(f"drawn: {count} problems, {declined} declined")
    if declined * 10 > count:
        failures.append(f"{declined} of {count} random problems are declined")
    return failures


# Each: what is wrong, on which problem, and what of the kernel's text becomes what.
FAULTS = [
    ("no product accumulates", "fwd:n1c20h8w8k24r3s3:f32:nchw", r"accumulate=ct \+ r \+ s > 0", "accumulate=False"),
    ("the first product accumulates", "fwd:n1c20h8w8k24r3s3:f32:nchw", r"accumulate=ct \+ r \+ s > 0", "accumulate=True"),
    ("the accumulate flag is missing", "fwd:n1c5h120w40k8r3s3:f32:nchw", r", accumulate=ct \+ r \+ s > 0", ""),
    ("each tile of channels overwrites", "fwd:n1c150h8w8k24r3s3:f32:nchw", r"accumulate=ct \+ r", "accumulate=r"),
    ("the tail of the channels is forgotten", "fwd:n1c150h8w8k24r3s3:f32:nchw", r"ct in range\(\(cn \+ 127\) // 128\):\n( *ctn = [^\n]*\n *for r )",
     r"ct in range(cn // 128):\n\1"),
    ("the tail of the filters is forgotten", "fwd:n1c16h8w8k150r3s3:f32:nchw", r"for k in range\(0, kn, 128\):\n( *kw = min\(128, kn - k\)\n *out)", r"for k in range(0, kn - 127, 128):\n\1"),
    ("the tail of the filters is taken whole", "fwd:n1c16h8w8k150r3s3:f32:nchw", r"kw = min\(128, kn - k\)", "kw = 128"),
    ("the tail of the rows is forgotten", "fwd:n1c16h39w40k24r3s3:f32:nchw", r"range\(0, p1 - p0, GROUP_ROWS\)", "range(0, p1 - p0 - (p1 - p0) % GROUP_ROWS, GROUP_ROWS)"),
    ("a bank is used again too early", "fwd:n1c16h40w40k24r3s3:f32:nchw", r"banks\[bank % BANKS\]((?:.|\n)*?)finish\(", r"banks[bank // 2 % BANKS]\1(finish if bank % 2 else lambda *_: None)("),
    ("a bank is too small", "fwd:n1c16h40w40k24r3s3:f32:nchw", r"(GROUP_ROWS = \d+, \d+), ", r"\1, 2 * "),
    ("the taps are turned", "fwd:n1c16h9w9k16r3s3:f32:nchw", r"r \* S \+ s", "s * R + r"),
    ("the weights are not turned", "fwd:n1c24h8w8k24r1s1:f32:nchw", r"nisa.nc_transpose\(dst=(.*), data=data, engine=TENSOR\)", r"nisa.tensor_copy(dst=\1, src=data)"),
    ("channels and filters are exchanged", "fwd:n1c24h8w8k16r1s1:f32:nchw", r"four\[0:ctn, t, 0:kw\]", "four[0:kw, t, 0:ctn]"),
    ("the border is not cleared", "fwd:n1c8h8w8k8r3s3:pad1:f32:nchw", "if hb - ha < h1 - h0 or wb - wa < w1 - w0:", "if False:"),
    ("pixels of the image before stay", "fwd:n3c8h24w24k8r3s3:f32:nchw", r"load\(pixels, x, n,", "load(pixels, x, 0,"),
    ("the bias is another tile's", "fwd:n1c8h8w8k200r1s1:f32:nchw:bias", r"psum, biases\[0:kw, k // 128 : k // 128 \+ 1\]", "psum, biases[0:kw, 0:1]"),
    ("the pool's last row is forgotten", "fwd:n1c8h8w8k8r3s3:f32:nchw:maxpool2", r"range\(1, POOL_H \* POOL_W\)", "range(1, POOL_W)"),
    ("the average counts the padding", "fwd:n1c8h8w8k8r3s3:f32:nchw:avgpool3s2p1", "if share > 1:", "if False:"),
    ("NHWC's pixels are not turned back", "fwd:n1c16h4w4k16r1s1:f32:nhwc", r"nisa.nc_transpose\(dst=flat, data=data, engine=TENSOR\)", "nisa.tensor_copy(dst=flat, src=data.reshape_dim(1, (16, 1)) if False else data)"),
    ("SBUF is too small", "fwd:n1c128h64w64k128r3s3:f32:nchw", r"Y_BUFFERS, BANKS = .*", "Y_BUFFERS, BANKS = 40, 40, 40, 6"),
    ("PSUM is too small", "fwd:n1c16h8w8k16r3s3:f32:nchw", r"(Y_BUFFERS, BANKS = .*), 6", r"\1, 7"),
]


def faults(emit):
    failures = []
    for what, text, pattern, replacement in FAULTS:
        source, why = emit(text)
        assert source is not None, f"{text}: {why}"
        assert not wrong(source, text), f"{text} is wrong without the fault"
        changed, times = re.subn(pattern, replacement, source)
        if times == 0 or changed == source:
            failures.append(f"fault '{what}' no longer fits the kernel")
        elif not (caught := wrong(changed, text)) or caught.startswith("work: "):
            failures.append(f"fault '{what}' is not caught: {caught}")
        elif FULL:
            print(f"  {what}: {caught}")
    print(f"faults: {len(FAULTS)} put in")
    return failures


def plain(emit):
    """The kernels beside."""
    failures = []
    for text in ("add:300x5000:f16", "add:7x3:f32", "transpose:2x150x300:f32", "transpose:1x3x20000:bf16"):
        source, why = emit(text)
        assert source is not None, why
        name, sizes, dtype = text.split(":")
        shape = tuple(int(n) for n in sizes.split("x"))
        dtype = {"f16": "float16", "f32": "float32", "bf16": "bfloat16"}[dtype]
        draw = np.random.default_rng(SEED)
        arrays = [(draw.integers(-99, 99, shape).astype(np.float32), dtype) for _ in range(2 if name == "add" else 1)]
        result = emitted.nki.simulate(getattr(load(source), name))(*arrays)
        right = arrays[0][0] + arrays[1][0] if name == "add" else arrays[0][0].transpose(0, 2, 1)
        if not np.array_equal(result.astype(np.float32), right):
            failures.append(f"{text} is wrong")
    return failures


def refusals(emit):
    """What is declined says so in a line, with exit code 2, and names what works."""
    failures = []
    for text, *words in (("bwd_d:n1c8h8w8k8r3s3", "gradients", "forward"), ("fwd:n1c8d4h8w8k8t3r3s3", "three dimensions", "nearest"),
                         ("fwd:n1c8h8w8k8r3s3:transposed", "transposed", "nearest"), ("fwd:n1c8h8w8k8r3s3:f64", "f64"),
                         ("fwd:n1c60000h9w9k8r7s7:f32", "SBUF", "nearest"), ("add:0x4", "add:<rows>x<columns>"), ("transpose:4x4", "batch")):
        source, why = emit(text)
        if source is not None or not all(word in why for word in words):
            failures.append(f"{text}: {why or 'is not declined'}")
    for options, word in ((("-o", "/nowhere/kernel.py"), "/nowhere/kernel.py cannot be written"), (("--target", "trn9"), "nki:trn2"), (("--kernel", "direct_cpu/x"), "none of its kernels"),
                          (("--kernel", "implicit_gemm_nki/tp99x9x9_kb1"), "rows are 99")):
        source, why = emit("fwd:n1c8h8w8k8r3s3", *options)
        if source is not None or word not in why:
            failures.append(f"{options}: {why or 'is not refused'}")
    return failures


def real(emit):
    """The same with AWS's own simulator, where that is installed."""
    probe = "import nki, numpy; nki.simulate"
    if subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False, cwd="/").returncode != 0:
        print("AWS's package nki is not installed: its own simulator is left out")
        return []
    script = "import sys, numpy as n, pickle\nsource, arrays = pickle.load(open(sys.argv[1], 'rb'))\nscope = {}\nexec(compile(source, sys.argv[2], 'exec'), scope)\nn.save(sys.argv[3], scope['run'](*arrays))"
    import pickle
    import tempfile
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for text in [t for t in (HERE / "problems.txt").read_text().split() if ":bf16" not in t][::1 if FULL else 20]:
            problem = emitted.Problem(text)
            arrays = problem.data(SEED, False)
            path = pathlib.Path(folder, "kernel.py")
            path.write_text(emit(text)[0])
            stored = [a.astype(np.float16) if problem.dtype == "f16" else a for a in arrays]
            pathlib.Path(folder, "data").write_bytes(pickle.dumps((path.read_text(), stored)))
            done = subprocess.run([sys.executable, "-c", script, folder + "/data", str(path), folder + "/y.npy"], capture_output=True, text=True, check=False,
                                  env=os.environ | {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2"}, cwd="/")
            if done.returncode != 0:
                failures.append(f"{text} in AWS's simulator: {done.stderr.strip().splitlines()[-1:]}")
                continue
            value, bound = problem.expected(*arrays)
            if not (np.abs(problem.planes(np.load(folder + "/y.npy").astype(float)) - value) <= bound).all():
                failures.append(f"{text} in AWS's simulator is beyond the bound")
    return failures


def main():
    emit = Emitter(sys.argv[1])
    failures = []
    for part in (lambda _: rules.failures(), listed, drawn, faults, plain, refusals, real):
        begin = time.process_time()
        failures += part(emit)
        print(f"  {time.process_time() - begin:.1f} s", flush=True)
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


main()
