"""Attention of heads too deep for PyTorch's fast kernels, in a compiled graph where no gradient is needed: its two products by PyTorch's, with
scores in f32, and its softmax by inductor."""
import torch
import torch.nn.functional as F

from ._chain import argument

DEPTH = 256  # up to which there are such kernels
MOST_BYTES = 2 << 30  # of all scores
_DTYPES = (torch.float16, torch.bfloat16)

# The operator: products of a batch's rows of 16 bits with one another, in f32.
SCHEMA = "(Tensor query, Tensor key) -> Tensor"


def composed(query, key):
    return torch.bmm(query.float(), key.float().transpose(1, 2))


def fake(query, key):
    return query.new_empty((*query.shape[:2], key.shape[1]), dtype=torch.float32)


def compute(query, key):
    return torch.bmm(query, key.transpose(1, 2), out_dtype=torch.float32) if query.is_cuda else composed(query, key)


def _apply(function, *arguments):
    return function(*arguments)


def by_products(query, key, value, scale, call=_apply, like=None):
    """call: how a function is called; like: examples of the three where they are nodes of a graph."""
    q, k, v = like or (query, key, value)
    rows = [call(torch.reshape, t, (-1, *of.shape[-2:])) for t, of in ((query, q), (key, k), (value, v))]
    scores = call(torch.mul, call(torch.ops.faltung.scores.default, *rows[:2]), scale)
    shares = call(torch.Tensor.to, call(torch.softmax, scores, -1), v.dtype)
    return call(torch.reshape, call(torch.bmm, shares, rows[2]), (*q.shape[:-1], v.shape[-1]))


def by_pytorch(query, key, value, scale):
    return F.scaled_dot_product_attention(query, key, value, scale=scale)


def found(node, value_of, device_types):
    """by_products' arguments, of such an attention's node; None for other nodes."""
    if node.op != "call_function" or node.target is not F.scaled_dot_product_attention or not hasattr(torch.ops.aten.bmm, "dtype"):
        return None
    usual = (("attn_mask", None), ("dropout_p", 0.0), ("is_causal", False), ("scale", None), ("enable_gqa", False))
    *others, scale, grouped = (argument(node, i + 3, name, default) for i, (name, default) in enumerate(usual))
    tensors = [argument(node, i, name) for i, name in enumerate(("query", "key", "value"))]
    q, k, v = examples = [value_of(t) for t in tensors]
    if [*others, grouped] != [None, 0.0, False, False] or any(t is None or not _is_read(t, q, device_types) for t in examples):
        return None
    if not (q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]):
        return None
    if min(q.shape[-1], v.shape[-1]) <= DEPTH or 4 * q.shape[:-1].numel() * k.shape[-2] > MOST_BYTES:
        return None
    return *tensors, q.shape[-1] ** -0.5 if scale is None else float(scale)


def _is_read(t, like, device_types):
    return (t.device.type in device_types and t.dtype in _DTYPES and t.dtype is like.dtype and t.dim() == like.dim() >= 3
            and all(isinstance(n, int) and n > 0 for n in t.shape) and t.shape[-1] % 8 == 0)
