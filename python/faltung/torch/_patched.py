"""What patch did, as rows and text."""
from ._forwards import Forwards


class Row:
    """One layer of the report. speedup: PyTorch's time over ours."""

    def __init__(self, name, fused="", problem="", kernel="", ms=0.0, torch_ms=0.0, error=0.0, torch_error=0.0, why=""):
        self.name, self.fused, self.problem, self.kernel, self.ms, self.torch_ms = name, fused, problem, kernel, ms, torch_ms
        self.error, self.torch_error, self.why = error, torch_error, why

    @property
    def kept(self):
        return not self.why

    @property
    def speedup(self):
        return self.torch_ms / self.ms if self.ms else 0.0


class Patch:
    """What patch did. ``rows``: one a convolution; ``norms``: one a group norm; ``report()``: they as text; ``undo()``: the model as it was; ``difference``: how
    far the model's result on the example moved, in units of its largest value (None in training), or ``overflows_in``: the module
    from which on it is not finite in PyTorch already, so that nothing can be compared; ``whole``: how the whole model was timed, and the
    milliseconds that it took, beginning with PyTorch alone; empty if it was not timed; ``took``: the seconds that patch itself took, by
    what it did."""

    def __init__(self, rows, forwards, overflows_in, order, whole, took, norms=()):
        self.rows, self.norms, self.overflows_in, self.difference, self.whole, self.took = rows, norms, overflows_in, None, whole, took
        self._forwards, self._order = forwards, order

    def undo(self):
        """Takes faltung out of the model again, which then computes the same bits as before."""
        self._forwards.take_back()
        for layer in self._forwards.layers.values():
            layer.forget()
        self._forwards = Forwards({}, {})
        self._order.undo()

    def report(self):
        lines = [f"{'layer':32}  {'what':16}  {'ms':>9}  {'torch ms':>9}  {'ratio':>6}  {'error':>8}  {'torch':>8}  kernel, or why not"]
        for r in (*self.rows, *self.norms):
            times = f"{r.ms:9.4f}  {r.torch_ms:9.4f}  {r.speedup:6.2f}  {r.error:8.1e}  {r.torch_error:8.1e}" if r.ms else " " * 48
            lines.append(f"{r.name:32}  {r.fused:16}  {times}  {r.why or r.kernel}")
        kept = [r for r in self.rows if r.kept]
        before = sum(r.torch_ms for r in self.rows)
        after = sum(r.ms if r.kept else r.torch_ms for r in self.rows)
        if after:
            lines.append(f"{len(kept)} of {len(self.rows)} convolutions by faltung; those measured take {after:.3f} ms, in PyTorch "
                         f"alone {before:.3f} ms: {before / after:.2f} times as fast")
        if any(r.ms for r in self.norms):
            lines.append(f"{sum(r.kept for r in self.norms)} of {len(self.norms)} group norms by faltung; those measured take "
                         f"{sum(r.ms if r.kept else r.torch_ms for r in self.norms):.3f} ms, in PyTorch alone "
                         f"{sum(r.torch_ms for r in self.norms):.3f} ms")
        if self.whole:
            times = ", ".join(f"{ms:.3f} ms {how}" for how, ms in self.whole.items())
            lines.append(f"The whole model as it runs takes {times}; the fastest is kept")
        if self.overflows_in is not None:
            lines.append(f"In PyTorch alone the result is not finite from {self.overflows_in} on, so that nothing can be compared: "
                         f"give weights and batch norm's statistics that fit each other, or a dtype of more range")
        elif self.difference is not None:
            lines.append(f"The model's result differs from PyTorch's by {self.difference:.1e} of its largest value")
        lines.append(f"Patching took {sum(self.took.values()):.1f} s: " + ", ".join(f"{s:.1f} s {what}" for what, s in self.took.items()))
        return "\n".join(lines)

    __str__ = report


def difference(before, after):
    """The largest, in units of the largest value, of results that may be several tensors; None where there are no numbers."""
    worst = None
    for a, b in zip(before, after):
        if a.is_floating_point() and a.numel():
            far = ((b.double() - a.double()).abs().max() / a.double().abs().max().clamp_min(1e-30)).item()
            worst = far if worst is None or not far <= worst else worst
    return worst
