"""Convolutions and their gradients on NumPy arrays: exact, in both layouts, without copies; and what is refused, in words."""
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import faltung
import reference
from reference import SHAPES, TRANSPOSED, integers, shapes_of

LAYOUTS = ["contiguous", "channels_last"]


def dtypes():
    yield np.float32
    yield np.float16
    try:
        import ml_dtypes
        yield ml_dtypes.bfloat16
    except ImportError:
        pass


def made(array, dtype, layout):
    array = array.astype(dtype)
    return array if layout == "contiguous" else faltung.channels_last(array)


def is_laid_out(array, layout):
    words = [s // array.itemsize for s in array.strides]
    order = list(range(array.ndim))
    if layout == "channels_last":
        order = [0, *order[2:], 1]
    wanted, inner = [0] * array.ndim, 1
    for axis in reversed(order):
        wanted[axis] = inner
        inner *= array.shape[axis]
    return all(size == 1 or a == b for size, a, b in zip(array.shape, words, wanted))


def same(array, right, layout):
    assert is_laid_out(array, layout)
    np.testing.assert_array_equal(array.astype(np.float64), right.astype(array.dtype).astype(np.float64))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", list(dtypes()))
@pytest.mark.parametrize("shape", SHAPES + TRANSPOSED, ids=str)
def test_forward_and_gradients_are_exact(shape, dtype, layout):
    x_shape, w_shape, y_shape, geometry, output_padding = shapes_of(shape)
    options = dict(zip(("stride", "padding", "dilation", "groups"), geometry))
    name = f"conv{len(x_shape) - 2}d"
    if output_padding is not None:
        name, options = f"conv_transpose{len(x_shape) - 2}d", dict(options, output_padding=output_padding)
    x0, w0, dy0 = integers(1, *x_shape), integers(2, *w_shape), integers(3, *y_shape)
    x, w, dy = (made(a, dtype, layout) for a in (x0, w0, dy0))
    y = getattr(faltung, name)(x, w, **options)
    dx = getattr(faltung, name + "_input_grad")(dy, w, x_shape, **options)
    dw = getattr(faltung, name + "_weight_grad")(x, dy, w_shape, **options)
    assert y.dtype == dx.dtype == dw.dtype == dtype
    if output_padding is None:
        same(y, reference.conv(x0, w0, *geometry), layout)
        same(dx, reference.conv_input_grad(dy0, w0, x_shape, *geometry), layout)
        same(dw, reference.conv_weight_grad(x0, dy0, w_shape, *geometry), layout)
    else:
        same(y, reference.conv_transpose(x0, w0, y_shape, *geometry), layout)
        same(dx, reference.conv_transpose_input_grad(dy0, w0, *geometry), layout)
        same(dw, reference.conv_transpose_weight_grad(x0, dy0, w_shape, *geometry), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_follows_is_applied_in_order(layout):
    x0, w0, b0 = integers(1, 1, 4, 6, 6), integers(2, 8, 4, 3, 3), integers(3, 8)
    r0 = integers(4, 1, 8, 6, 6)
    y = faltung.conv2d(made(x0, np.float32, layout), made(w0, np.float32, layout), b0.astype(np.float32), padding=1,
                       residual=made(r0, np.float32, layout), activation="relu", pool="maxpool2")
    right = np.maximum(reference.conv2d(x0, w0, padding=(1, 1)) + b0[None, :, None, None] + r0, 0)
    right = right.reshape(1, 8, 3, 2, 3, 2).max((3, 5))
    np.testing.assert_array_equal(y, right)


def test_padding_by_sides_and_by_words():
    x0, w0 = integers(1, 1, 2, 5, 6), integers(2, 3, 2, 2, 4)
    x, w = x0.astype(np.float32), w0.astype(np.float32)
    sides = np.pad(x0, [(0, 0), (0, 0), (1, 0), (2, 3)])
    np.testing.assert_array_equal(faltung.conv2d(x, w, padding=(1, 0, 2, 3)), reference.conv2d(sides, w0))
    same = np.pad(x0, [(0, 0), (0, 0), (0, 1), (1, 2)])
    np.testing.assert_array_equal(faltung.conv2d(x, w, padding="same"), reference.conv2d(same, w0))
    np.testing.assert_array_equal(faltung.conv2d(x, w, padding="valid"), reference.conv2d(x0, w0))


@pytest.mark.parametrize("shape", [SHAPES[4], SHAPES[6], *TRANSPOSED[1:]], ids=str)
def test_what_follows_in_other_dimensions(shape):
    x_shape, w_shape, y_shape, geometry, output_padding = shapes_of(shape)
    x0, w0, b0, r0 = integers(1, *x_shape), integers(2, *w_shape), integers(3, y_shape[1]), integers(4, *y_shape)
    x, w, b, r = (a.astype(np.float32) for a in (x0, w0, b0, r0))
    options = dict(zip(("stride", "padding", "dilation", "groups"), geometry), residual=r, activation="relu6")
    if output_padding is None:
        right = reference.conv(x0, w0, *geometry)
        y = getattr(faltung, f"conv{len(x_shape) - 2}d")(x, w, b, **options)
    else:
        right = reference.conv_transpose(x0, w0, y_shape, *geometry)
        y = getattr(faltung, f"conv_transpose{len(x_shape) - 2}d")(x, w, b, output_padding=output_padding, **options)
    right = right + b0.reshape(-1, *[1] * (len(x_shape) - 2)) + r0
    np.testing.assert_array_equal(y, np.clip(right, 0, 6))


def test_the_result_goes_where_it_is_told():
    x, w = (integers(i, *s).astype(np.float32) for i, s in ((1, (1, 3, 8, 8)), (2, (4, 3, 3, 3))))
    y = np.full((1, 4, 6, 6), np.nan, np.float32)
    assert faltung.conv2d(x, w, out=y) is y
    np.testing.assert_array_equal(y, reference.conv2d(x, w))
    plan = faltung.plan("fwd:n1c3h8w8k4r3s3")
    y[:] = np.nan
    plan(x, w, out=y)
    np.testing.assert_array_equal(y, reference.conv2d(x, w))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", list(dtypes()))
@pytest.mark.parametrize("image, filter", [((9,), (3,)), ((7, 6), (3, 3)), ((5, 4, 6), (2, 3, 2))], ids=str)
def test_what_training_has_around_a_convolution(image, filter, dtype, layout):
    """Sums for batch norm and of a bias's gradient, and the gradient through a ReLU: small integers, whose sums are exact."""
    n, c, k, one = 2, 3, 5, (1,) * len(image)
    x0, w0 = integers(1, n, c, *image), integers(2, k, c, *filter)
    right = reference.conv(x0, w0, one, one, one)
    dy0 = integers(3, *right.shape)
    x, w, dy = (made(a, dtype, layout) for a in (x0, w0, dy0))
    sizes = "".join(letter + str(size) for letter, size in zip("dhw"[-len(image):] + "trs"[-len(image):], (*image, *filter)))
    word = "".join((":pad1", *(f":{word}" for word in ({np.float32: "f32", np.float16: "f16"}.get(dtype, "bf16"),
                                                       "nchw" if layout == "contiguous" else "nhwc"))))

    def plan(direction, more):
        return faltung.plan(f"{direction}:n{n}c{c}k{k}{sizes}{word}:{more}")
    sums = np.full((2, k), np.nan, np.float32)
    y = plan("fwd", "stats")(x, w, sums=sums)
    same(y, right, layout)
    stored = y.astype(np.float64).swapaxes(0, 1).reshape(k, -1)
    np.testing.assert_array_equal(sums, np.stack([stored.sum(1), (stored ** 2).sum(1)]))

    dx = plan("bwd_d", "drelu")(dy, w, relu=x)
    same(dx, np.where(x0 > 0, reference.conv_input_grad(dy0, w0, x0.shape, one, one, one), 0), layout)

    sums = np.full(k, np.nan, np.float32)
    dw = plan("bwd_w", "dbias")(x, dy, sums=sums)
    same(dw, reference.conv_weight_grad(x0, dy0, w0.shape, one, one, one), layout)
    np.testing.assert_array_equal(sums, dy0.swapaxes(0, 1).reshape(k, -1).sum(1))


def test_by_products_that_do_not_fit():
    x, w, y = (np.ones(s, np.float32) for s in ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6)))
    stats, drelu, dbias = (faltung.plan(f"{d}:n1c3h8w8k4r3s3:{more}") for d, more in (("fwd", "stats"), ("bwd_d", "drelu"), ("bwd_w", "dbias")))
    right = np.zeros((2, 4), np.float32)
    read_only = right.copy()
    read_only.flags.writeable = False
    for wrong, words in ((None, "sums is missing"), (right[0], r"shape \(4\); the plan takes \(2, 4\)"), (right.astype(np.float16), "is of f16"),
                         (np.zeros((4, 2), np.float32).T, "sums is not contiguous"), (x.reshape(-1)[:8].reshape(2, 4), "sums overlaps x"),
                         (y.reshape(-1)[:8].reshape(2, 4), "overlaps"), (read_only, "sums, which is written, is read-only")):
        with pytest.raises(faltung.BadProblem, match=words):
            stats(x, w, out=y, sums=wrong)
    with pytest.raises(faltung.BadProblem, match="relu was given, but the problem has none"):
        stats(x, w, sums=right, relu=x)
    with pytest.raises(faltung.BadProblem, match="relu is missing"):
        drelu(y, w)
    with pytest.raises(faltung.BadProblem, match="relu has the shape"):
        drelu(y, w, relu=y)
    with pytest.raises(faltung.BadProblem, match=r"the plan takes \(4\)"):
        dbias(x, y, sums=right)
    address = [a.__array_interface__["data"][0] for a in (x, w, y, right)]
    stats.run(*address[:3], None, None, None, None, None, None, address[3])
    np.testing.assert_array_equal(right, [[36 * 27] * 4, [36 * 27 ** 2] * 4])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", list(dtypes()))
@pytest.mark.parametrize("image, filter", [((9,), (3,)), ((7, 6), (3, 3)), ((5, 4, 6), (2, 3, 2))], ids=str)
def test_x_through_a_scale_and_a_shift(image, filter, dtype, layout):
    """As of what comes of x, padded with zeros: small integers, whose sums are exact."""
    n, c, k, one = 2, 3, 5, (1,) * len(image)
    x0, w0 = integers(1, n, c, *image), integers(2, k, c, *filter)
    scale, shift = np.array([2, -1, 1], np.float32), np.array([1, 2, -3], np.float32)
    each = (slice(None), *(None,) * len(image))
    line = x0 * scale[each] + shift[each]
    family = f"conv{len(image)}d"
    x, w = (made(a, dtype, layout) for a in (x0, w0))
    for activation, seen in ((None, line), ("relu", np.maximum(line, 0))):
        through = dict(padding=1, input_scale=scale, input_shift=shift, input_activation=activation)
        right = reference.conv(seen, w0, one, one, one)
        same(getattr(faltung, family)(x, w, **through), right, layout)
        dy0 = integers(3, *right.shape)
        dw = getattr(faltung, family + "_weight_grad")(x, made(dy0, dtype, layout), w0.shape, **through)
        same(dw, reference.conv_weight_grad(seen, dy0, w0.shape, one, one, one), layout)


def test_scales_and_shifts_that_do_not_fit():
    x, w = (np.ones(s, np.float32) for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    scale, shift = np.full(3, 2, np.float32), np.ones(3, np.float32)
    for wrong, words in ((dict(input_scale=scale), "input_shift is missing"), (dict(input_activation="relu"), "input_scale is missing"),
                         (dict(input_scale=scale, input_shift=shift, input_activation="silu"), "input_activation is 'silu'; x is read through relu"),
                         (dict(input_scale=scale[:2], input_shift=shift), r"scale has the shape \(2\); the plan takes \(3\)"),
                         (dict(input_scale=scale, input_shift=shift.astype(np.float64)), "shift is of"),
                         (dict(input_scale=np.ones(6, np.float32)[::2], input_shift=shift), "scale is not contiguous")):
        with pytest.raises(faltung.BadProblem, match=words):
            faltung.conv2d(x, w, **wrong)
    plan, y = faltung.plan("fwd:n1c3h8w8k4r3s3:affine"), np.zeros((1, 4, 6, 6), np.float32)
    with pytest.raises(faltung.BadProblem, match="shift is missing"):
        plan(x, w, scale=scale)
    with pytest.raises(faltung.BadProblem, match="scale was given, but the problem has none"):
        faltung.plan("fwd:n1c3h8w8k4r3s3")(x, w, scale=scale, shift=shift)
    address = [a.__array_interface__["data"][0] for a in (x, w, y, scale, shift)]
    plan.run(*address[:3], None, None, None, None, None, None, None, *address[3:])
    np.testing.assert_array_equal(y, np.full_like(y, 81))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", list(dtypes()))
def test_slopes_of_channels_and_bounds(dtype, layout):
    """Small integers, and slopes that keep them so."""
    x0, w0, b0 = integers(1, 2, 3, 7, 6), integers(2, 5, 3, 3, 3), integers(3, 5)
    slopes = np.array([1, -1, 2, 0, -2], np.float32)
    x, w, b = made(x0, dtype, layout), made(w0, dtype, layout), b0.astype(dtype)
    line = reference.conv(x0, w0, (1, 1), (1, 1), (1, 1)) + b0[:, None, None]
    bent = faltung.conv2d(x, w, b, padding=1, activation="prelu", slopes=slopes)
    same(bent, np.where(line < 0, line * slopes[:, None, None], line), layout)
    same(faltung.conv2d(x, w, b, padding=1, activation="clip(-3,2)"), np.clip(line, -3, 2), layout)


def test_slopes_that_do_not_fit():
    x, w = (np.ones(s, np.float32) for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    slopes = np.full(4, 0.5, np.float32)
    for wrong, words in ((dict(activation="prelu"), "slopes is missing"),
                         (dict(slopes=slopes), "slopes was given, but the problem has none"),
                         (dict(activation="prelu", slopes=slopes[:3]), r"slopes has the shape \(3\); the plan takes \(4\)"),
                         (dict(activation="prelu", slopes=slopes.astype(np.float64)), "slopes is of"),
                         (dict(activation="prelu", slopes=np.ones(8, np.float32)[::2]), "slopes is not contiguous"),
                         (dict(activation="prelu(0.1)"), "whose slopes are a tensor"),
                         (dict(activation="clip(2,1)"), "the smaller one first")):
        with pytest.raises(faltung.BadProblem, match=words):
            faltung.conv2d(x, w, **wrong)
    plan, y = faltung.plan("fwd:n1c3h8w8k4r3s3:prelu"), np.zeros((1, 4, 6, 6), np.float32)
    address = [a.__array_interface__["data"][0] for a in (x, -w, y, slopes)]
    plan.run(*address[:3], None, None, None, None, None, None, None, None, None, address[3])
    np.testing.assert_array_equal(y, np.full_like(y, -13.5))


def test_packed_and_plain_weights_in_turn():
    """They need different workspaces, of one plan."""
    x, w = (integers(i, *s).astype(np.float32) for i, s in ((1, (1, 16, 20, 20)), (2, (16, 16, 3, 3))))
    for only in ("winograd_cpu", "implicit_gemm_cpu", "explicit_gemm_cpu"):
        plan = faltung.plan("fwd:n1c16h20w20k16r3s3:math=fast", only=only, threads=2)
        packed = plan.pack(w)
        for weights in (packed, w, packed, w):
            np.testing.assert_allclose(plan(x, weights), reference.conv2d(x, w), rtol=1e-4, atol=1e-3)
        assert plan.workspace_bytes != plan.packed_workspace_bytes or plan.packed_weights_bytes == 0 or only == "explicit_gemm_cpu"


def test_weights_of_a_kernel_without_an_order_of_its_own():
    x, w = (integers(i, *s).astype(np.float32) for i, s in ((1, (1, 16, 20, 20)), (2, (16, 16, 3, 3))))
    plan = faltung.plan("fwd:n1c16h20w20k16r3s3", only="direct_cpu*")
    assert plan.packed_weights_bytes == 0
    packed = plan.pack(w.copy())  # which holds the copy
    np.testing.assert_array_equal(plan(x, packed), reference.conv2d(x, w))


def test_read_only_inputs_are_read():
    x, w = integers(1, 1, 3, 8, 8).astype(np.float32), integers(2, 4, 3, 3, 3).astype(np.float32)
    x.flags.writeable = w.flags.writeable = False
    np.testing.assert_array_equal(faltung.conv2d(x, w), reference.conv2d(x, w))


def x_and_w():
    return np.ones((1, 3, 8, 8), np.float32), np.ones((4, 3, 3, 3), np.float32)


def refused(kind, words, call):
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, faltung.Error) or kind is TypeError
    assert "\n" not in str(caught.value)
    for word in [words] if isinstance(words, str) else words:
        assert word in str(caught.value), caught.value


def test_refusals_say_what_would_be_right():
    x, w = x_and_w()
    y = np.zeros((1, 4, 6, 6), np.float32)
    bad = faltung.BadProblem
    refused(bad, ["x has 3", "2 input channels"], lambda: faltung.conv2d(x, w[:, :2].copy()))
    refused(bad, ["strides", "channels_last"], lambda: faltung.conv2d(x[:, :, ::2], w))
    refused(bad, "strides", lambda: faltung.conv2d(np.broadcast_to(x[:, :1], x.shape), w))
    refused(bad, "four sizes", lambda: faltung.conv2d(x[0], w))
    refused(bad, ["three sizes", "N C L"], lambda: faltung.conv1d(x, w))
    refused(bad, ["five sizes", "C K/groups T R S"], lambda: faltung.conv_transpose3d(x, w))
    refused(bad, "transposed", lambda: faltung.conv2d(x, w, output_padding=1))
    refused(bad, "numbers", lambda: faltung.conv_transpose2d(x, x, padding="same"))
    refused(bad, ["w has 4 input channels; x has 3"], lambda: faltung.conv_transpose2d(x, w))
    refused(bad, "output padding", lambda: faltung.conv_transpose2d(x, x.transpose(1, 0, 2, 3).copy(), output_padding=1))
    refused(bad, "one for each", lambda: faltung.conv2d(x, w, stride=(1, 1, 1)))
    refused(bad, "the gradient's shape", lambda: faltung.conv2d_input_grad(x, w, (1, 3, 8)))
    refused(bad, "alike", lambda: faltung.conv2d(x, faltung.channels_last(w)))
    refused(bad, ["f16", "f32"], lambda: faltung.conv2d(x, w.astype(np.float16)))
    refused(bad, "one of", lambda: faltung.plan("fwd:n1c3h8w8k4r3s3", trust="some"))
    refused(bad, "workspace_limit is -5", lambda: faltung.plan("fwd:n1c3h8w8k4r3s3", workspace_limit=-5))
    refused(bad, "bias is missing", lambda: faltung.plan("fwd:n1c3h8w8k4r3s3:bias")(x, w))
    refused(bad, "the problem has none", lambda: faltung.plan("fwd:n1c3h8w8k4r3s3")(x, w, np.ones(4, np.float32)))
    refused(bad, "shape", lambda: faltung.conv2d(x, w, np.ones(5, np.float32)))
    refused(bad, ["shape", "1, 4, 6, 6"], lambda: faltung.conv2d(x, w, out=y[:, :3].copy()))
    refused(bad, "overlaps", overlapping)
    y.flags.writeable = False
    refused(bad, "read-only", lambda: faltung.conv2d(x, w, out=y))
    refused(TypeError, "list", lambda: faltung.conv2d([[1.0]], w))
    refused(bad, ["a masked array", "filled()"], lambda: faltung.conv2d(np.ma.masked_less(x, 1), w))
    refused(bad, "y is a masked array", lambda: faltung.conv2d(x, w, out=np.ma.array(np.zeros((1, 4, 6, 6), np.float32))))
    refused(bad, ["(3,)", "N C and one to three sizes"], lambda: faltung.channels_last(np.ones(3, np.float32)))
    refused(bad, "another type", lambda: faltung.plan("fwd:n1c3h8w8k4r3s3")(x.astype(np.float64), w))
    for kind, builtin in ((bad, ValueError), (faltung.Unsupported, NotImplementedError), (faltung.BadFile, OSError),
                          (faltung.OutOfMemory, MemoryError), (faltung.DeviceError, RuntimeError)):
        assert issubclass(kind, builtin) and issubclass(kind, faltung.Error)


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_sizes_that_make_no_sense(name):
    x, w = np.ones((1, 4, 8, 8), np.float32), np.ones((4, 4, 3, 3), np.float32)
    for what, values in (("stride", (0, -1, (1, 0), 1.5, "2")), ("dilation", (0, -2, (1, None))), ("padding", (-1, (0, -1), (0, 0, 0, -1), 0.5)),
                         ("groups", (0, -1, 3, 2.0, "2"))):
        for value in values:
            refused(faltung.BadProblem, what if what != "groups" or value != 3 else "group", lambda: getattr(faltung, name)(x, w, **{what: value}))
    refused(faltung.BadProblem, "output_padding", lambda: faltung.conv_transpose2d(x, w, output_padding=-1))
    for shape in ((1, 4, 0, 8), (1, 0, 8, 8)):
        refused(faltung.BadProblem, f"x has the shape {shape}; each size must be at least 1", lambda: getattr(faltung, name)(np.ones(shape, np.float32), w))
    refused(faltung.BadProblem, "each size must be at least 1", lambda: getattr(faltung, name)(x[:, :0], w))


def test_sizes_are_whole_numbers_of_any_kind():
    x, w = x_and_w()
    two, one = np.int64(2), np.int32(1)
    np.testing.assert_array_equal(faltung.conv2d(x, w, stride=two, padding=one, groups=one), faltung.conv2d(x, w, stride=2, padding=1))
    np.testing.assert_array_equal(faltung.conv2d(x, w, stride=(two, 1)), faltung.conv2d(x, w, stride=(2, 1)))


def overlapping():
    memory = np.ones(2000, np.float32)
    x, w = memory[:192].reshape(1, 3, 8, 8), np.ones((4, 3, 3, 3), np.float32)
    return faltung.conv2d(x, w, out=memory[100:244].reshape(1, 4, 6, 6))


def test_dtypes_that_are_not_computed():
    x, w = x_and_w()
    for dtype in (np.float64, np.complex64, np.int8):
        refused(faltung.BadProblem, "f32", lambda: faltung.conv2d(x.astype(dtype), w.astype(dtype)))


def test_a_bias_of_f32_beside_tensors_of_16_bits():
    plan = faltung.plan("fwd:n1c4h6w5k3r3s3:f16:biasf32")
    x, w = np.zeros((1, 4, 6, 5), np.float16), np.ones((3, 4, 3, 3), np.float16)
    bias = np.array([0.1, 2.5, -3], np.float32)
    y = plan(x, w, bias)
    assert np.array_equal(y, np.broadcast_to(bias.astype(np.float16)[:, None, None], y.shape[1:])[None])
    with pytest.raises(ValueError, match="bias is of f16; the plan computes f32"):
        plan(x, w, bias.astype(np.float16))


def test_all_combinations_of_layouts_of_a_plan():
    """A plan takes its own layout alone."""
    x0, w0 = integers(1, 1, 3, 8, 8), integers(2, 4, 3, 3, 3)
    plans = {layout: faltung.plan(f"fwd:n1c3h8w8k4r3s3:{word}") for layout, word in zip(LAYOUTS, ("nchw", "nhwc"))}
    for own, given in itertools.product(LAYOUTS, LAYOUTS):
        call = lambda: plans[own](made(x0, np.float32, given), made(w0, np.float32, given))
        if own == given:
            np.testing.assert_array_equal(call(), reference.conv2d(x0, w0))
        else:
            refused(faltung.BadProblem, "strides", call)


def test_torch_is_not_imported():
    code = "import sys, faltung; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
