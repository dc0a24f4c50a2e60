"""CUDA kernels of faltung.torch compiled for the CPU, whose arithmetic tests run there."""
import ctypes
import pathlib
import shutil
import subprocess

import pytest

import faltung.torch._norm_kernels as norm_kernels

KERNELS = pathlib.Path(norm_kernels.__file__).parent
PROLOGUE = """
#define ACTIVATION %d
#include "%s"
#include "%s"
#include "%s"
"""


def libraries(folder, file, functions):
    """A function of the activation's word: the kernels of the file, and the C++ functions behind them that launch them, as a library made
    in the folder."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    made = {}

    def library(word):
        if word not in made:
            source = folder / f"kernels{len(made)}.cpp"
            source.write_text(PROLOGUE % (norm_kernels.ACTIVATIONS[word], pathlib.Path(__file__).with_name("cuda_on_cpu.hpp"),
                                          KERNELS / "_vectors.cu", KERNELS / file) + functions)
            subprocess.run(["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-o", source.with_suffix(".so"), source],
                           check=True)
            made[word] = ctypes.CDLL(str(source.with_suffix(".so")))
        return made[word]
    return library
