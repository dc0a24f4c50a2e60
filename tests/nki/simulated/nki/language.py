"""nki.language, as far as it is used: memories, types, and operators as functions of float32 arrays."""
import math

import numpy as np

from . import machine

sbuf, psum, hbm, private_hbm, shared_hbm = "sbuf", "psum", "hbm", "hbm", "hbm"
float32, float16, bfloat16 = "float32", "float16", "bfloat16"


def ndarray(shape, dtype, buffer=sbuf, name=""):
    return machine.Tensor.make(shape, dtype, buffer, name)


def shared_identity_matrix(n, dtype=float32):
    tensor = machine.Tensor.make((n, n), dtype, sbuf)
    tensor.write(np.eye(n, dtype=np.float32))
    return tensor


def _operator(function):
    """A name of an operation for the isa's `op`; not to be called in a kernel."""
    function.is_operator = True
    return function


def _elementwise(function):
    table = np.vectorize(function, otypes=[np.float64])
    return lambda x: table(x.astype(np.float64)).astype(np.float32)


@_operator
def add(a, b):
    return a + b


@_operator
def subtract(a, b):
    return a - b


@_operator
def multiply(a, b):
    return a * b


@_operator
def maximum(a, b):
    return np.maximum(a, b)


@_operator
def minimum(a, b):
    return np.minimum(a, b)


@_operator
def copy(x):
    return x


@_operator
def relu(x):
    return np.maximum(x, np.float32(0))


@_operator
def sigmoid(x):
    x = x.astype(np.float64)
    return (1 / (1 + np.exp(-x))).astype(np.float32)


@_operator
def silu(x):
    x = x.astype(np.float64)
    return (x / (1 + np.exp(-x))).astype(np.float32)


@_operator
def gelu(x):
    return _elementwise(lambda v: 0.5 * v * (1 + math.erf(v * math.sqrt(0.5))))(x)


@_operator
def gelu_apprx_tanh(x):
    x = x.astype(np.float64)
    return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))).astype(np.float32)


TENSOR_OPERATORS = (add, subtract, multiply, maximum, minimum)
ACTIVATIONS = (copy, relu, sigmoid, silu, gelu, gelu_apprx_tanh)
