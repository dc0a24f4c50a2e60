"""Batch norm in training, without what its module looks up in every call: a third of what it costs the host."""
import torch


def normalized(norm, x):
    """As type(norm).forward(norm, x), bit for bit."""
    own = norm.__dict__
    momentum, buffers, parameters = own["momentum"], own["_buffers"], own["_parameters"]
    counter = buffers["num_batches_tracked"]
    if (not own["training"] or not own["track_running_stats"] or counter is None or momentum is None
            or torch.compiler.is_compiling()):
        return type(norm).forward(norm, x)
    if x.dim() not in _DIMENSIONS.get(type(norm), ()) or x.numel() == x.shape[1]:  # which is refused, in its words
        return type(norm).forward(norm, x)
    counter.add_(1)
    return torch.batch_norm(x, parameters["weight"], parameters["bias"], buffers["running_mean"], buffers["running_var"], True, momentum,
                            own["eps"], torch._C._get_cudnn_enabled())


_DIMENSIONS = {torch.nn.BatchNorm1d: (2, 3), torch.nn.BatchNorm2d: (4,), torch.nn.BatchNorm3d: (5,)}


class Quick:
    """Stands in for the forward of a batch norm in training."""

    def __init__(self, norm):
        self.norm = norm

    def __call__(self, x):
        return normalized(self.norm, x)
