"""The goals of the tables that bench/tables.py makes: on an H200 beside cuDNN, on CPUs of two
processors beside oneDNN. Notes say where profile and tries of what falls short are, as links from docs/performance/."""
from goal_kinds import AtMost, Means, PlanOverFind, Shares, of_ceiling, of_chain

GRADIENTS = "[gradients](../notes/hopper_gradients.md)"
SHORT_GRADIENTS = "[gradients](../notes/hopper_gradients.md#what-stays-short-of-its-goal-2026-11-27)"
H200 = "[h200](../notes/h200.md)"
SHORT_GROUPS = "[groups](../notes/hopper_groups.md#what-stays-short-of-its-goal-2026-11-27)"

RESNET, LUX, CS149, RESNEXT = "resnet50", "lux_relu", "cs149_pool", "resnext50_32x4d"
EFFICIENTNET, EFFICIENTNET_DEPTHWISE = "efficientnet_b2", "efficientnet_b2_depthwise"
ROW = 0.75  # no row of the H200's lists below
CPU_ROW = 0.9  # no forward row on a CPU below


def but_stem(row):
    return row["c"] != "3"


def padded(row):
    return row["pad_top"] == "1"


def convnext(row):
    return row["r"] == "7"


def large(row):
    """More than 20 million numbers read and written."""
    area, stride = int(row["h"]) * int(row["w"]), int(row["stride_h"]) * int(row["stride_w"])
    return int(row["n"]) * int(row["c"]) * area * (1 + 1 / stride) > 20e6


OF_ALL = [
    PlanOverFind("`plan` over `find`, of every list: the lowest mean, the lowest row", 0.95, 0.8),
    AtMost("share of the ceiling, where an algorithm multiplies all there is outside of padding: the highest row", 105, " %", of_ceiling),
    AtMost("f32's errors over those of a chain: the highest row", 2, "", of_chain),
]

GPU = [
    Means("f16 forward, ResNet-50", "f16_*", RESNET, (1.3, 1.9), ROW, notes=H200),
    Means("tf32 forward, 3×3 64→64", "tf32_*", LUX, (None, 2.4), ROW),
    Means("tf32 forward, cs149", "tf32_*", CS149, (None, 2.4), ROW, notes=f"{SHORT_GRADIENTS}, {H200}"),
    Means("both of them", "tf32_*", f"{LUX} {CS149}", (None, 2.4), ROW),
    Means("f32 forward, 3×3 64→64", "f32_*", LUX, (2.8, 2.5), notes=H200),
    Means("f32 forward, cs149", "f32_*", CS149, (2.8, 2.5)),
    Means("f32 forward, ResNet-50", "f32_*", RESNET, (None, 1.8)),
    Means("backward_data f16, ResNet-50 without the stem", "bwd_d_f16_*", RESNET, (1.2, 1.7), ROW, picks=(but_stem, but_stem),
          notes=SHORT_GRADIENTS),
    Means("backward_data f16, 3×3 64→64; in NCHW with padding", "bwd_d_f16_*", LUX, (1.4, 2.8), ROW, picks=(None, padded)),
    Means("backward_data tf32, 3×3 64→64", "bwd_d_tf32_*", LUX, (1.4, 2.0), ROW, notes=GRADIENTS),
    Means("backward_data f32, 3×3 64→64", "bwd_d_f32_*", LUX, (2.3, 1.8), ROW, notes=GRADIENTS),
    Means("backward_weights f16, ResNet-50", "bwd_w_f16_*", RESNET, (1.25, 1.6), ROW),
    Means("backward_weights f16, 3×3 64→64", "bwd_w_f16_*", LUX, (1.5, 3.0), ROW, notes=GRADIENTS),
    Means("backward_weights tf32, 3×3 64→64; in NCHW with padding", "bwd_w_tf32_*", LUX, (3.0, 4.5), ROW, picks=(None, padded),
          notes="[gradients](../notes/hopper_gradients.md#lines-x-is-turned-where-it-lies-2026-11-27)"),
    Means("backward_weights f32, 3×3 64→64", "bwd_w_f32_*", LUX, (3.5, 3.5), ROW, notes=GRADIENTS),
    Means("ResNeXt-50 f16, forward", "groups_fwd_f16_*", RESNEXT, (1.5, 2), ROW,
          notes="[groups](../notes/hopper_groups.md#resnext-50s-forward-profile-and-tries-goals-15-and-2)"),
    Means("ResNeXt-50 f16, backward_data", "groups_bwd_d_f16_*", RESNEXT, (1.5, 2), ROW,
          notes="[groups](../notes/hopper_groups.md#whole-planes-and-what-is-asked-for-ahead-2026-11-28)"),
    Means("ResNeXt-50 f16, backward_weights", "groups_bwd_w_f16_*", RESNEXT, (1.5, 2), ROW,
          notes="[groups](../notes/hopper_groups.md#resnext-50s-weights-gradient-profile-and-tries-goals-15-and-2)"),
    Means("EfficientNet-B2's depthwise f16, forward", "groups_fwd_f16_*", EFFICIENTNET_DEPTHWISE, (1.5, 2), ROW),
    Means("EfficientNet-B2's depthwise f16, backward_data", "groups_bwd_d_f16_*", EFFICIENTNET_DEPTHWISE, (2, 2), ROW),
    Means("EfficientNet-B2's depthwise f16, backward_weights", "groups_bwd_w_f16_*", EFFICIENTNET_DEPTHWISE, (3, 3), ROW, notes=SHORT_GROUPS),
    Shares("its forward's share of a copy, large rows (01, 06, 09)", "groups_fwd_f16_*", EFFICIENTNET_DEPTHWISE, 0.8, picks=(large, large),
           notes=SHORT_GROUPS),
    Means("ConvNeXt 7×7 f16, forward", "groups_fwd_f16_*", "depthwise", (1.3, 3), ROW, picks=(convnext, convnext)),
    Means("ConvNeXt 7×7 bf16, forward", "depthwise_bf16_*", "depthwise", (1.3, 3), ROW, picks=(convnext, convnext)),
    Means("three dimensions, bf16", "conv3d_bf16_*", "conv3d", (1.1, 1.8), ROW),
    Means("one dimension, f16", "conv1d_f16_*", "conv1d", (1.3, 1.8), ROW, notes="[volumes](../notes/hopper_volumes.md)"),
    Means("EfficientNet-B2 f16", "f16_*", EFFICIENTNET),
    Means("EfficientNet-B0 f16", "more_f16_*", "efficientnet_b0"),
    Means("a U-Net's transposed, f16", "transposed_f16_*", "unet_up", notes=GRADIENTS),
    *OF_ALL,
]

CPU = [
    Means("ResNet-50 batch 4", "batch4_*", RESNET, (1.15, 1.0), CPU_ROW),
    Means("ResNet-50 batch 1", "batch1_*", RESNET, (1.1, 1.1), CPU_ROW),
    Means("EfficientNet-B2 batch 8", "batch8_*", EFFICIENTNET, (1.05, None), CPU_ROW),
    Means("ResNeXt-50 batch 4", "groups_*", RESNEXT, lowest=CPU_ROW),
    Means("EfficientNet-B2's depthwise batch 4", "groups_*", EFFICIENTNET_DEPTHWISE, lowest=CPU_ROW),
    Means("large depthwise filters, batch 4", "groups_*", "depthwise", lowest=CPU_ROW),
    Means("EfficientNet-B0 batch 8", "more_*", "efficientnet_b0", lowest=CPU_ROW),
    Means("a pool behind, batch 8", "more_*", CS149, lowest=CPU_ROW),
    Means("a padded input, batch 8", "more_*", "misa_top", lowest=CPU_ROW),
    Means("diffusion's U-Net, batch 1", "diffusion_*", "sdxl_unet", lowest=CPU_ROW),
    Means("its decoder, batch 1", "diffusion_*", "sdxl_vae", lowest=CPU_ROW),
    Means("stems of 3 channels and others, 32² to 256²", "gfx1010", "gfx1010", lowest=CPU_ROW),
    Means("3×3 64→64, bias + ReLU", "relu_*", LUX, lowest=CPU_ROW),
    Means("the same by `--math fast`", "fast_*", LUX),
    Means("beside the oneDNN within PyTorch: ResNet-50 batch 4", "torch_batch4_*", RESNET, lowest=CPU_ROW),
    Means("beside the oneDNN within PyTorch: EfficientNet-B2 batch 8", "torch_batch8_*", EFFICIENTNET, lowest=CPU_ROW),
    Means("ResNet-50 batch 4, backward_data", "bwd_d_*", RESNET, (1.0, 1.0)),
    Means("ResNet-50 batch 4, backward_weights", "bwd_w_*", RESNET, (1.0, 1.0)),
    Means("one dimension", "dimensions_*", "conv1d", (1.0, 1.0), CPU_ROW),
    Means("three dimensions", "dimensions_*", "conv3d", (1.0, 1.0), CPU_ROW),
    Means("transposed", "dimensions_*", "unet_up", (1.0, 1.0), CPU_ROW),
    Means("EfficientNet-B2's depthwise batch 4, backward_data", "depthwise_bwd_d_*", EFFICIENTNET_DEPTHWISE, (1.0, 1.5)),
    Means("EfficientNet-B2's depthwise batch 4, backward_weights", "depthwise_bwd_w_*", EFFICIENTNET_DEPTHWISE, (1.0, 1.5)),
    Means("large depthwise filters batch 4, backward_data", "depthwise_bwd_d_*", "depthwise", (1.0, 1.5)),
    Means("large depthwise filters batch 4, backward_weights", "depthwise_bwd_w_*", "depthwise", (1.0, 1.5)),
    Means("ResNet-50 batch 4, bf16", "bf16", RESNET),
    *OF_ALL,
]
