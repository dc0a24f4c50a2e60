"""What is asked of CUDA's driver itself."""
import contextlib
import ctypes
from functools import lru_cache


@lru_cache(maxsize=None)
def driver():
    """The library; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def is_capturing(stream):
    """Whether what is submitted to that stream (its address) is not run, but recorded into a graph."""
    status = ctypes.c_int(0)
    return driver().cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status)) == 0 and status.value != 0


@contextlib.contextmanager
def same_context(device):
    """What works on the device makes its context the thread's; others, such as PyTorch, find what they left."""
    cuda = driver() if device.startswith("cuda:") else None
    if cuda is None:
        yield
        return
    context = ctypes.c_void_p()
    cuda.cuCtxGetCurrent(ctypes.byref(context))  # null before anybody has begun
    try:
        yield
    finally:
        cuda.cuCtxSetCurrent(context)
