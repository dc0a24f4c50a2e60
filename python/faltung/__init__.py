"""faltung: an open convolution engine.

Convolutions of neural networks, with what surrounds them (bias, residual, activation, pooling), on CPUs and on CUDA,
for NumPy arrays and for every tensor that has ``__dlpack__``; nothing is copied::

    y = faltung.conv2d(x, w, b, padding=1, activation="relu")

Letters are those of the documentation: N, C, D, H, W batch, channels, depth, height and width of the input (L its length in
one dimension); K output channels; T, R, S depth, height and width of the filter; Z, P, Q of the output. Times are in
milliseconds, memory in bytes. ``faltung.torch`` brings the same to PyTorch, with gradients; it is imported on its own.
"""
from ._c import (BadFile, BadProblem, Cancelled, DeviceError, Error, InternalError, OutOfMemory, Plan, Unsupported, Weights)
from ._c import version as _version
from ._engine import Choice, Device, FaltungWarning, Report, devices, explain, find, plan
from ._functional import (channels_last, conv1d, conv1d_input_grad, conv1d_weight_grad, conv2d, conv2d_input_grad, conv2d_weight_grad,
                          conv3d, conv3d_input_grad, conv3d_weight_grad, conv_transpose1d, conv_transpose1d_input_grad,
                          conv_transpose1d_weight_grad, conv_transpose2d, conv_transpose2d_input_grad, conv_transpose2d_weight_grad,
                          conv_transpose3d, conv_transpose3d_input_grad, conv_transpose3d_weight_grad)

__version__ = _version()
__all__ = ["BadFile", "BadProblem", "Cancelled", "Choice", "Device", "DeviceError", "Error", "FaltungWarning",
           "InternalError", "Network", "OutOfMemory", "Plan", "Report", "Unsupported", "Weights", "bench", "channels_last", "command",
           "devices", "doctor", "emit", "explain", "find", "plan", "verify",
           *(f"conv{kind}{dimensions}d{gradient}" for kind in ("", "_transpose") for dimensions in (1, 2, 3)
             for gradient in ("", "_input_grad", "_weight_grad"))]


def __getattr__(name):
    """What is needed rarely is imported when it is asked for."""
    if name in ("bench", "verify", "doctor", "emit", "command"):
        from . import _command
        return getattr(_command, name)
    if name == "Network":
        from .network import Network
        return Network
    if name == "report":
        import importlib
        return importlib.import_module(".report", __name__)
    raise AttributeError(f"module 'faltung' has no attribute '{name}'")


def __dir__():
    return sorted(__all__)
