"""A kernel of tests/lanes/ on the CPU, compiled for each case and run: it ends well where its results are exactly those of plain loops."""
import collections
import functools
import os
import pathlib
import random
import subprocess
import tempfile

TREE = pathlib.Path(__file__).resolve().parent.parent
COMPILE = ["g++", "-std=c++20", "-O1", "-w", "-pthread", f"-I{TREE}/tests/lanes", f"-I{TREE}"]


@functools.cache
def precompiled():
    """The folder that has what every case includes, for as long as this process lives."""
    folder = tempfile.TemporaryDirectory()
    subprocess.run([*COMPILE, "-x", "c++-header", f"{TREE}/tests/lanes/precompiled.hpp", "-o", f"{folder.name}/precompiled.hpp.gch"], check=True)
    return folder


def drawn(cases):
    """Half of each kind, which is what a case has in words (direction, dtype, layout), as tests/sampling.hpp draws."""
    if os.environ.get("FALTUNG_TEST_FULL"):
        return cases
    kinds, seed = collections.defaultdict(list), os.environ.get("FALTUNG_TEST_SEED", "1")
    for case in cases:
        kinds[tuple(part for part in case if isinstance(part, str))].append(case)
    taken = [case for kind, those in kinds.items() for case in random.Random(f"{seed} {kind}").sample(those, (len(those) + 1) // 2)]
    print(f"{len(taken)} of {len(cases)} drawn by FALTUNG_TEST_SEED={seed}; FALTUNG_TEST_FULL=1 runs all", flush=True)
    return taken


def expect_exact(test, kernel, cases, constants, opencl=None):
    """test: a unittest.TestCase; kernel: a file of tests/lanes/, without .cpp; constants: what the host would define for a case, by name;
    opencl: a file of kernels/gpu/ that clang compiles as OpenCL C beside it."""
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(drawn(cases)):
            program = pathlib.Path(folder) / f"case{number}"
            # Defined behind what is compiled once, which has some of their names: K, V.
            defines = pathlib.Path(f"{program}.h")
            defines.write_text("".join(f"#define {name} {value}\n" for name, value in constants(case).items()))
            objects = []
            if opencl is not None:
                objects = [f"{program}.o"]
                subprocess.run(["clang-19", "-x", "cl", "-cl-std=CL1.2", "-D__OPENCL_VERSION__=120", "-target", "x86_64-linux-gnu", "-O1", "-w",
                                f"-I{TREE}/tests/lanes", f"-I{TREE}", "-include", defines, "-include", f"{TREE}/kernels/gpu/opencl.h", "-c",
                                f"{TREE}/kernels/gpu/{opencl}", "-o", *objects], check=True)
            subprocess.run([*COMPILE, "-include", f"{precompiled().name}/precompiled.hpp", "-include", defines,
                            f"{TREE}/tests/lanes/{kernel}.cpp", *objects, "-o", program], check=True)
            ran = subprocess.run([program], capture_output=True, text=True, timeout=300)
            with test.subTest(case=case):
                test.assertEqual(ran.returncode, 0, ran.stdout)
