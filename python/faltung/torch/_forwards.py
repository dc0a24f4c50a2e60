"""What patch puts into a model, and takes out of it again."""
from . import _block
from ._layer import Layer, Pass, Shared
from ._norm import Quick


class Forwards:
    """What stands in for the forward of modules, with some of the layers in place. layers: {convolution: its Layer}; blocks: as
    _block.find has them; norms: batch norms of a model in training."""

    def __init__(self, layers, blocks, norms=(), fuses=False):
        """fuses: whether batch norm in training is computed with the activation that follows it, by our kernels."""
        self.layers, self.fuses, self._of = layers, fuses, {}
        for norm in norms:
            self._of[norm.norm] = norm
            self._stand_in_for(norm.activation if fuses else None, norm.is_shared)
        for conv, layer in layers.items():
            self._of[conv] = layer
            if layer.norm is not None:
                self._of[layer.norm] = Pass()
            self._stand_in_for(layer.activation, layer.activation_is_shared)
        for module, inside in blocks.items():
            inside = {name: layer for name, layer in inside.items() if layer.conv in layers}
            if any(layer.adds for layer in inside.values()):
                self._of[module] = _block.Block(module, inside)

    def _stand_in_for(self, activation, is_shared):
        if activation is not None:
            self._of[activation] = Shared(activation) if is_shared else Pass()

    def put(self):
        for module, forward in self._of.items():
            module.forward = forward
            if isinstance(forward, (Layer, Quick)):
                forward.fuses = self.fuses
            if isinstance(forward, _block.Block) and forward.run is None:
                forward.prepare()

    def take_back(self):
        for module in self._of:
            module.__dict__.pop("forward", None)
