"""Convolution and its gradients in NumPy's float64, tap by tap: independent of the library."""
import numpy as np


def _taps(x_shape, w_shape, stride, padding, dilation):
    """Each filter tap (r, s) with the slices of the padded image that it meets."""
    p = (x_shape[2] + 2 * padding[0] - dilation[0] * (w_shape[2] - 1) - 1) // stride[0] + 1
    q = (x_shape[3] + 2 * padding[1] - dilation[1] * (w_shape[3] - 1) - 1) // stride[1] + 1
    for r in range(w_shape[2]):
        for s in range(w_shape[3]):
            h, w = r * dilation[0], s * dilation[1]
            yield r, s, slice(h, h + stride[0] * p, stride[0]), slice(w, w + stride[1] * q, stride[1]), p, q


def _padded(x, padding):
    return np.pad(np.asarray(x, np.float64), [(0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2])


def conv2d(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    image, n, k = _padded(x, padding), x.shape[0], w.shape[0]
    grouped = np.asarray(w, np.float64).reshape(groups, k // groups, *w.shape[1:])
    y = 0
    for r, s, rows, columns, p, q in _taps(x.shape, w.shape, stride, padding, dilation):
        part = image[:, :, rows, columns].reshape(n, groups, -1, p, q)
        y = y + np.einsum("ngcpq,gkc->ngkpq", part, grouped[..., r, s]).reshape(n, k, p, q)
    return y


def input_grad(dy, w, x_shape, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    n, c, h, wide = x_shape
    image = np.zeros((n, c, h + 2 * padding[0], wide + 2 * padding[1]))
    grouped = np.asarray(w, np.float64).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    for r, s, rows, columns, p, q in _taps(x_shape, w.shape, stride, padding, dilation):
        part = np.asarray(dy, np.float64).reshape(n, groups, -1, p, q)
        image[:, :, rows, columns] += np.einsum("ngkpq,gkc->ngcpq", part, grouped[..., r, s]).reshape(n, c, p, q)
    return image[:, :, padding[0]:padding[0] + h, padding[1]:padding[1] + wide]


def weight_grad(x, dy, w_shape, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    image, n, k = _padded(x, padding), x.shape[0], w_shape[0]
    dw = np.zeros(w_shape)
    for r, s, rows, columns, p, q in _taps(x.shape, w_shape, stride, padding, dilation):
        part = image[:, :, rows, columns].reshape(n, groups, -1, p, q)
        from_y = np.asarray(dy, np.float64).reshape(n, groups, -1, p, q)
        dw[:, :, r, s] = np.einsum("ngcpq,ngkpq->gkc", part, from_y).reshape(k, -1)
    return dw


def integers(seed, *shape):
    """Small integers, of which every product and sum is exact in f32, and in f16 and bf16 as they are rounded."""
    return np.random.default_rng(seed).integers(-3, 4, shape)


# What the tests vary: C, H, W, K, R, S, stride, padding, dilation, groups.
SHAPES = [
    (3, 7, 9, 4, 3, 3, (1, 1), (1, 1), (1, 1), 1),
    (8, 6, 5, 16, 1, 1, (1, 1), (0, 0), (1, 1), 1),
    (4, 11, 8, 6, 3, 2, (2, 1), (1, 0), (1, 2), 2),
    (6, 9, 9, 6, 5, 5, (2, 2), (2, 2), (1, 1), 6),
]
