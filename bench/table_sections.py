"""The sections of bench/tables.py: what is measured on a CPU and on a GPU, beside whom."""
import pathlib


class Section:
    """Lists of problems as one `faltung bench` takes them, and the peer."""

    def __init__(self, name, title, lists, options, peer, also=None):
        self.name, self.title, self.options, self.peer = name, title, options.split(), peer
        self.suites = [f"workloads/{one}.csv" for one in lists.split()]
        self.asked = self.suites  # of which these are measured
        self.also = also  # another of the peer's ways, timed beside `plan` alone

    def only(self, lists):
        """Measures these of its lists alone."""
        if unknown := set(lists) - {pathlib.Path(suite).stem for suite in self.suites}:
            raise ValueError(f"{self.name} has no list {', '.join(sorted(unknown))}")
        self.asked = [suite for suite in self.suites if pathlib.Path(suite).stem in lists]

    def in_order(self, lists):
        return [pathlib.Path(suite).stem for suite in self.suites if pathlib.Path(suite).stem in lists]

    def bench(self, build, device, more):
        suites = [x for suite in self.asked for x in ("--suite", suite)]
        return [f"{build}/tools/faltung", "bench", "--device", device, *suites, *self.options, *more]


def cpu_sections():
    for layout in ("nhwc", "nchw"):
        upper = layout.upper()

        def section(name, title, lists, options, also=None):
            return Section(f"{name}_{layout}", f"{title}, f32 {upper}", lists, f"{options} --layout {layout}", "onednn", also)
        yield section("batch4", "batch 4", "resnet50", "--batch 4", "onednn-blocked")
        yield section("batch1", "batch 1", "resnet50", "--batch 1", "onednn-blocked")
        yield section("batch8", "batch 8", "efficientnet_b2", "--batch 8", "onednn-blocked")
        yield section("relu", "batch 4, bias + ReLU", "lux_relu", "--batch 4 --epilogue bias,relu", "onednn-blocked")
        yield section("fast", "batch 4, bias + ReLU, --math fast", "lux_relu", "--batch 4 --epilogue bias,relu --math fast")
        yield section("bwd_d", "backward_data, batch 4", "resnet50", "--batch 4 --dir bwd_d")
        yield section("bwd_w", "backward_weights, batch 4", "resnet50", "--batch 4 --dir bwd_w")
        yield section("depthwise_bwd_d", "depthwise, backward_data, batch 4", "efficientnet_b2_depthwise depthwise",
                      "--batch 4 --dir bwd_d")
        yield section("depthwise_bwd_w", "depthwise, backward_weights, batch 4", "efficientnet_b2_depthwise depthwise",
                      "--batch 4 --dir bwd_w")
        yield section("dimensions", "one and three dimensions, transposed, batch 1", "conv1d conv3d unet_up", "--batch 1")
        yield section("groups", "groups and depthwise, batch 4", "resnext50_32x4d efficientnet_b2_depthwise depthwise", "--batch 4")
        yield section("more", "EfficientNet-B0, a pool behind, a padded input, batch 8", "efficientnet_b0 cs149_pool misa_top", "--batch 8")
        yield section("diffusion", "diffusion's U-Net and decoder, batch 1", "sdxl_unet sdxl_vae", "--batch 1")
        # The oneDNN within PyTorch: python3 in PATH has to be one that has it.
        for batch, suite in ((4, "resnet50"), (8, "efficientnet_b2")):
            yield Section(f"torch_batch{batch}_{layout}", f"batch {batch}, beside PyTorch's oneDNN, f32 {upper}", suite,
                          f"--batch {batch} --layout {layout}", "torch-packed")
    yield Section("bf16", "batch 4, bf16 NHWC", "resnet50", "--batch 4 --layout nhwc --dtype bf16", "onednn")
    yield Section("gfx1010", "as it is", "gfx1010", "", "onednn")


def gpu_sections():
    for layout in ("nhwc", "nchw"):
        for name, title, lists, options in (
                ("f16", "f16", "resnet50 lux_relu cs149_pool sdxl_unet sdxl_vae efficientnet_b2", "--dtype f16"),
                ("more_f16", "EfficientNet-B0, f16", "efficientnet_b0", "--batch 32 --dtype f16"),
                ("transposed_f16", "a padded input, transposed, f16", "misa_top unet_up", "--dtype f16"),
                ("tf32", "tf32", "resnet50 lux_relu cs149_pool efficientnet_b2", "--math tf32"),
                ("f32", "f32", "resnet50 lux_relu cs149_pool efficientnet_b2", "--math f32"),
                ("bwd_d_f16", "backward_data, f16", "resnet50 lux_relu", "--dir bwd_d --dtype f16"),
                ("bwd_w_f16", "backward_weights, f16", "resnet50 lux_relu", "--dir bwd_w --dtype f16"),
                ("bwd_d_tf32", "backward_data, tf32", "lux_relu", "--dir bwd_d --math tf32"),
                ("bwd_d_f32", "backward_data, f32", "lux_relu", "--dir bwd_d --math f32"),
                ("bwd_w_tf32", "backward_weights, tf32", "lux_relu", "--dir bwd_w --math tf32"),
                ("bwd_w_f32", "backward_weights, f32", "lux_relu", "--dir bwd_w --math f32"),
                ("depthwise_bf16", "depthwise, bf16", "depthwise", "--batch 32 --dtype bf16")):
            yield Section(f"{name}_{layout}", f"{title} {layout.upper()}", lists,
                          f"{options} --layout {layout} --min-time 25ms --repeat 5", "torch")
        for way, title in (("fwd", "groups and depthwise, f16"), ("bwd_d", "their backward_data, f16"),
                           ("bwd_w", "their backward_weights, f16")):
            yield Section(f"groups_{way}_f16_{layout}", f"{title} {layout.upper()}", "resnext50_32x4d efficientnet_b2_depthwise depthwise",
                          f"--dir {way} --batch 32 --dtype f16 --layout {layout} --min-time 15ms --repeat 3", "torch")
        for name, title, lists, options in (
                ("conv1d_f16", "one dimension, f16", "conv1d", "--dtype f16 --min-time 15ms"),
                ("conv3d_bf16", "three dimensions, bf16", "conv3d", "--dtype bf16 --min-time 12ms")):
            yield Section(f"{name}_{layout}", f"{title} {layout.upper()}", lists, f"{options} --repeat 3 --layout {layout}",
                          "torch")


def sections_of(device):
    return list(cpu_sections() if device == "cpu" else gpu_sections())
