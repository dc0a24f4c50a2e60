"""nki.isa, as far as it is used. Each operation checks what its page of the guide says, computes in float32 and counts its work."""
from enum import Enum

import numpy as np

from . import language as nl
from . import machine
from .machine import require


class engine(Enum):
    unknown, tensor, vector, scalar, gpsimd = range(5)


def _operand(tensor, what, buffers, operation):
    """Rules of every operand of an engine."""
    require(isinstance(tensor, machine.Tensor), f"{operation}: {what} is no tensor")
    require(tensor.buffer in buffers, f"{operation}: {what} is in {tensor.buffer}; it must be in {' or '.join(buffers)} (nki.isa.{operation}, Memory types)")
    n, (start, _) = tensor.shape[0], tensor.offset()
    allowed = (0,) if n > 64 else (0, 64) if n > 32 else (0, 32, 64, 96)
    require(start in allowed, f"{operation}: {what} has {n} partitions and starts at {start}; it must start at {allowed} (architecture guide, Accessing SBUF/PSUM tensors)")
    require(tensor.patterns() <= 3, f"{operation}: {what} has {tensor.patterns()} free dimensions that do not lie together; most instructions take 3 (access patterns, Hardware Capability)")


def _free(tensor):
    return int(np.prod(tensor.shape[1:]))


def _alike(operation, dst, *sources):
    for source in sources:
        require(source.shape[0] == dst.shape[0], f"{operation}: {source.shape[0]} partitions are written to {dst.shape[0]} (nki.isa.{operation}, Tile size)")
        require(_free(source) == _free(dst), f"{operation}: {_free(source)} elements of a partition are written to {_free(dst)} (nki.isa.{operation}, Tile size)")


def _work(which, instructions, elements):
    machine.current.count[which + " instructions"] += instructions
    machine.current.count[which + " elements"] += elements


def _pick(chosen, allowed, operation):
    require(chosen in allowed, f"{operation} does not run on the {chosen.name} engine (nki.isa.{operation})")
    return "vector" if chosen == engine.unknown else chosen.name


def dma_copy(dst, src):
    for tensor, what in ((dst, "dst"), (src, "src")):
        require(tensor.buffer in ("hbm", "sbuf"), f"dma_copy: {what} is in {tensor.buffer}; both are in HBM or SBUF (nki.isa.dma_copy, Memory types)")
    squeezed = [tuple(n for n in t.shape if n > 1) for t in (dst, src)]
    require(squeezed[0] == squeezed[1], f"dma_copy: {src.shape} is copied to {dst.shape} (nki.isa.dma_copy, Tile size)")
    dst.write(src.read().reshape(dst.shape))
    machine.current.count["dma copies"] += 1
    hbm = src if src.buffer == "hbm" else dst
    machine.current.count["dma bytes"] += hbm.values.size * machine.SIZES[hbm.dtype]


def memset(dst, value, engine=engine.unknown):
    _operand(dst, "dst", ("sbuf", "psum"), "memset")
    which = _pick(engine, (globals()["engine"].unknown, globals()["engine"].vector, globals()["engine"].gpsimd), "memset")
    require(which != "gpsimd" or dst.buffer == "sbuf", "memset: the GpSimd engine does not reach PSUM (nki.isa.tensor_copy)")
    dst.write(np.full(dst.shape, value, np.float32))
    _work(which, 1, _free(dst))


def nc_matmul(dst, stationary, moving, accumulate=None):
    _operand(dst, "dst", ("psum",), "nc_matmul")
    _operand(stationary, "stationary", ("sbuf",), "nc_matmul")
    _operand(moving, "moving", ("sbuf",), "nc_matmul")
    for tensor, what in ((stationary, "stationary"), (moving, "moving")):
        require(tensor.shape[0] <= 128, f"nc_matmul: {what} has {tensor.shape[0]} partitions, at most 128 (nki.isa.nc_matmul, Tile size)")
    require(stationary.shape[0] == moving.shape[0], f"nc_matmul: stationary has {stationary.shape[0]} partitions and moving {moving.shape[0]}; they are the sum's terms (nki.isa.nc_matmul, Tile size)")
    require(_free(stationary) <= 128, f"nc_matmul: stationary has {_free(stationary)} free elements, at most 128 (nki.isa.nc_matmul, Tile size)")
    require(_free(moving) <= 512, f"nc_matmul: moving has {_free(moving)} free elements, at most 512 (nki.isa.nc_matmul, Tile size)")
    require(dst.dtype == "float32", f"nc_matmul: dst is {dst.dtype}; sums are float32 (nki.isa.nc_matmul, Data types)")
    require((stationary.dtype == "float32") == (moving.dtype == "float32"), f"nc_matmul: {stationary.dtype} with {moving.dtype}; float32 goes with float32 (nki.isa.nc_matmul, Data types)")
    require(dst.shape[0] == _free(stationary) and dst.shape[1:] == moving.shape[1:], f"nc_matmul: {stationary.shape} and {moving.shape} make no {dst.shape} (nki.isa.nc_matmul, Layout)")
    _one_bank(dst, "nc_matmul")
    if accumulate is None:  # inferred, as documented: what was written before is added to
        accumulate = bool(dst.summed.any())
    if accumulate:
        require(dst.summed.all(), "nc_matmul: accumulates where no product with accumulate=False began (nki.isa.nc_matmul, Accumulation mode)")
        require(dst.unread.all(), "nc_matmul: accumulates onto sums that were already taken from the bank: its first product must have accumulate=False")
    else:
        require(not dst.unread.any(), "nc_matmul: overwrites a bank's sums before anybody read them: the bank is used again too early, or accumulate=True is missing")
    a = stationary.read().reshape(stationary.shape[0], -1)
    b = moving.read().reshape(moving.shape[0], -1)
    sums = (a.T @ b).reshape(dst.shape)
    dst.write(dst.read() + sums if accumulate else sums)
    dst.summed[...] = True
    dst.unread[...] = True
    _work("tensor", 1, _free(moving))


def _one_bank(dst, operation):
    size = machine.SIZES[dst.dtype]
    first = dst.offset()[1] * size
    reach = sum((n - 1) * s for n, s in zip(dst.shape[1:], dst.values.strides[1:])) // dst.values.itemsize
    last = first + reach * size + size - 1
    require(first // machine.PSUM_BANK_BYTES == last // machine.PSUM_BANK_BYTES, f"{operation}: dst lies in more than one bank of PSUM, of {machine.PSUM_BANK_BYTES} bytes a partition (architecture guide, Near-memory accumulation)")


def nc_transpose(dst, data, engine=engine.unknown):
    _operand(data, "data", ("sbuf",), "nc_transpose")
    _operand(dst, "dst", ("psum",), "nc_transpose")
    require(engine == globals()["engine"].tensor, "nc_transpose: the tensor engine's is all that is simulated")
    require(data.shape[0] <= 128 and _free(data) <= 128, f"nc_transpose: {data.shape}; at most 128 x 128 (nki.isa.nc_transpose, Tile size)")
    require(dst.dtype == data.dtype, f"nc_transpose: {data.dtype} is turned into {dst.dtype} (nki.isa.nc_transpose, Data types)")
    require(dst.shape[0] == _free(data) and _free(dst) == data.shape[0], f"nc_transpose: {data.shape} is no transpose of {dst.shape} (nki.isa.nc_transpose, Layout)")
    _one_bank(dst, "nc_transpose")
    require(not dst.unread.any(), "nc_transpose: overwrites a bank's results before anybody read them")
    dst.write(data.read().reshape(data.shape[0], -1).T.reshape(dst.shape))
    dst.unread[...] = True
    _work("turning", 1, data.shape[0])


def tensor_copy(dst, src, engine=engine.unknown):
    _operand(dst, "dst", ("sbuf", "psum"), "tensor_copy")
    _operand(src, "src", ("sbuf", "psum"), "tensor_copy")
    _alike("tensor_copy", dst, src)
    engines = globals()["engine"]
    which = _pick(engine, (engines.unknown, engines.vector, engines.gpsimd) + ((engines.scalar,) if machine.current.target != "trn1" else ()), "tensor_copy")
    require(which != "gpsimd" or "psum" not in (dst.buffer, src.buffer), "tensor_copy: the GpSimd engine does not reach PSUM (nki.isa.tensor_copy)")
    dst.write(src.read().reshape(dst.shape))
    _work(which, 1, _free(dst))


def _operator(op, allowed, operation):
    require(op in allowed, f"{operation}: {getattr(op, '__name__', op)} is no operator of it (API common fields)")


def _scalar(value, data, operation):
    """An operand that is one number for each partition, or one."""
    if not isinstance(value, machine.Tensor):
        return np.float32(value)
    _operand(value, "an operand", ("sbuf", "psum"), operation)
    require(value.shape[0] == data.shape[0] and _free(value) == 1, f"{operation}: an operand has the shape {value.shape}; it must be ({data.shape[0]}, 1) (nki.isa.{operation})")
    return value.read().reshape(-1, *(1,) * (len(data.shape) - 1))


def tensor_tensor(dst, data1, data2, op, engine=engine.unknown):
    for tensor, what in ((dst, "dst"), (data1, "data1"), (data2, "data2")):
        _operand(tensor, what, ("sbuf", "psum"), "tensor_tensor")
    _alike("tensor_tensor", dst, data1, data2)
    _operator(op, nl.TENSOR_OPERATORS, "tensor_tensor")
    require(not data1.buffer == data2.buffer == "psum", "tensor_tensor: both inputs are in PSUM (nki.isa.tensor_tensor)")
    engines = globals()["engine"]
    which = _pick(engine, (engines.unknown, engines.vector, engines.gpsimd), "tensor_tensor")
    dst.write(op(data1.read().reshape(dst.shape), data2.read().reshape(dst.shape)))
    _work(which, 1, _free(dst))


def tensor_scalar(dst, data, op0, operand0, op1=None, operand1=None, engine=engine.unknown):
    _operand(dst, "dst", ("sbuf", "psum"), "tensor_scalar")
    _operand(data, "data", ("sbuf", "psum"), "tensor_scalar")
    _alike("tensor_scalar", dst, data)
    engines = globals()["engine"]
    which = _pick(engine, (engines.unknown, engines.vector), "tensor_scalar")
    value = data.read()
    for op, operand in ((op0, operand0), (op1, operand1)):
        if op is None:
            continue
        _operator(op, nl.TENSOR_OPERATORS, "tensor_scalar")
        require(not isinstance(operand, machine.Tensor) or operand.dtype == "float32", "tensor_scalar: an operand is not float32 (nki.isa.tensor_scalar)")
        value = op(value, _scalar(operand, data, "tensor_scalar"))
    dst.write(value.reshape(dst.shape))
    _work(which, 1, _free(dst))


def scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1):
    for tensor, what in ((dst, "dst"), (data, "data"), (operand1, "operand1")):
        _operand(tensor, what, ("sbuf", "psum"), "scalar_tensor_tensor")
    _alike("scalar_tensor_tensor", dst, data, operand1)
    for op in (op0, op1):
        _operator(op, nl.TENSOR_OPERATORS, "scalar_tensor_tensor")
    require(not data.buffer == operand1.buffer == "psum", "scalar_tensor_tensor: data and operand1 are both in PSUM (nki.isa.scalar_tensor_tensor, Memory types)")
    first = op0(data.read(), _scalar(operand0, data, "scalar_tensor_tensor"))
    dst.write(op1(first.reshape(dst.shape), operand1.read().reshape(dst.shape)))
    _work("vector", 1, _free(dst))


def activation(dst, op, data, bias=None, scale=1.0):
    _operand(dst, "dst", ("sbuf", "psum"), "activation")
    _operand(data, "data", ("sbuf", "psum"), "activation")
    _alike("activation", dst, data)
    _operator(op, nl.ACTIVATIONS, "activation")
    require(bias is None or isinstance(bias, machine.Tensor) or machine.current.target != "trn1", "activation: on NeuronCore-v2 the bias is a vector (nki.isa.activation, Layout)")
    value = data.read() * np.float32(scale)
    if bias is not None:
        value = value + _scalar(bias, data, "activation")
    dst.write(op(value).reshape(dst.shape))
    _work("scalar", 1, _free(dst))
