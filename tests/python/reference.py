"""Convolution, its transpose and their gradients in NumPy's float64, tap by tap and in any number of dimensions: independent of the
library. A geometry is (stride, padding, dilation, groups), the first three a number a dimension."""
import itertools

import numpy as np


def output_size(image, kernel, stride, padding, dilation):
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(image, kernel, stride, padding, dilation)]


def _taps(image, kernel, stride, padding, dilation):
    """Each filter tap with the slices of the padded image that it meets."""
    out = output_size(image, kernel, stride, padding, dilation)
    for tap in itertools.product(*map(range, kernel)):
        yield tap, tuple(slice(t * d, t * d + s * q, s) for t, d, s, q in zip(tap, dilation, stride, out))


def _padded(x, padding):
    return np.pad(np.asarray(x, np.float64), [(0, 0), (0, 0), *((p, p) for p in padding)])


def _grouped(array, groups, axis):
    """With the channels of a group apart."""
    array = np.asarray(array, np.float64)
    return array.reshape(*array.shape[:axis], groups, -1, *array.shape[axis + 1:])


def conv(x, w, stride, padding, dilation, groups=1):
    image, filters, y = _padded(x, padding), _grouped(w, groups, 0), 0
    for tap, where in _taps(x.shape[2:], w.shape[2:], stride, padding, dilation):
        part = np.einsum("ngc...,gkc->ngk...", _grouped(image[(..., *where)], groups, 1), filters[(slice(None),) * 3 + tap])
        y = y + part.reshape(part.shape[0], -1, *part.shape[3:])
    return y


def conv_input_grad(dy, w, x_shape, stride, padding, dilation, groups=1):
    n, c, *image = x_shape
    padded, filters = _padded(np.zeros(x_shape), padding), _grouped(w, groups, 0)
    for tap, where in _taps(image, w.shape[2:], stride, padding, dilation):
        part = np.einsum("ngk...,gkc->ngc...", _grouped(dy, groups, 1), filters[(slice(None),) * 3 + tap])
        padded[(..., *where)] += part.reshape(n, c, *part.shape[3:])
    return padded[(..., *(slice(p, p + size) for p, size in zip(padding, image)))]


def conv_weight_grad(x, dy, w_shape, stride, padding, dilation, groups=1):
    image, dw, letters = _padded(x, padding), np.zeros(w_shape), "uvw"[:len(w_shape) - 2]
    for tap, where in _taps(x.shape[2:], w_shape[2:], stride, padding, dilation):
        part = np.einsum(f"ngc{letters},ngk{letters}->gkc", _grouped(image[(..., *where)], groups, 1), _grouped(dy, groups, 1))
        dw[(..., *tap)] = part.reshape(w_shape[0], w_shape[1])
    return dw


def conv2d(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    return conv(x, w, stride, padding, dilation, groups)


# The transpose is the gradient of a convolution's input, whose filter it shares: (C, K/groups, ...).

def conv_transpose(x, w, y_shape, *geometry):
    return conv_input_grad(x, w, y_shape, *geometry)


def conv_transpose_input_grad(dy, w, *geometry):
    return conv(dy, w, *geometry)


def conv_transpose_weight_grad(x, dy, w_shape, *geometry):
    return conv_weight_grad(dy, x, w_shape, *geometry)


def integers(seed, *shape):
    """Small integers, of which every product and sum is exact in f32, and in f16 and bf16 as they are rounded."""
    return np.random.default_rng(seed).integers(-3, 4, shape)


# What the tests vary: C, the image, K, the filter, stride, padding, dilation, groups.
SHAPES = [
    (3, (7, 9), 4, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    (8, (6, 5), 16, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (4, (11, 8), 6, (3, 2), (2, 1), (1, 0), (1, 2), 2),
    (6, (9, 9), 6, (5, 5), (2, 2), (2, 2), (1, 1), 6),
    (4, (20,), 6, (5,), (2,), (2,), (1,), 2),
    (8, (9,), 4, (3,), (1,), (2,), (2,), 1),
    (4, (4, 5, 6), 8, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
    (4, (5, 7, 6), 6, (2, 3, 1), (2, 1, 2), (1, 0, 0), (1, 2, 1), 2),
]
# And of transposed convolutions the output's padding.
TRANSPOSED = [
    (3, (5, 6), 4, (3, 3), (2, 2), (1, 1), (1, 1), 1, (1, 0)),
    (4, (6, 5), 6, (4, 2), (2, 1), (1, 0), (1, 2), 2, (0, 0)),
    (6, (9,), 4, (4,), (2,), (1,), (1,), 2, (0,)),
    (4, (3, 4, 5), 4, (2, 2, 3), (2, 2, 1), (0, 0, 1), (1, 1, 1), 1, (1, 0, 0)),
]


def shapes_of(shape):
    """Of x, w and y with a batch of 2, the geometry, and whether it is transposed."""
    c, image, k, kernel, stride, padding, dilation, groups, *more = shape
    x = (2, c, *image)
    if not more:
        return x, (k, c // groups, *kernel), (2, k, *output_size(image, kernel, stride, padding, dilation)), shape[4:], None
    out = [(n - 1) * s + d * (f - 1) + 1 - 2 * p + o
           for n, f, s, p, d, o in zip(image, kernel, stride, padding, dilation, more[0])]
    return x, (c, k // groups, *kernel), (2, k, *out), shape[4:8], more[0]
