"""What patch puts into a model, and takes out of it again."""
from . import _block
from ._group import Grouped
from ._layer import Layer, Pass, Shared
from ._norm import Quick


class Forwards:
    """What stands in for the forward of modules, with some of the layers in place. layers: {convolution: its Layer}; blocks: as
    _block.find has them; norms: batch norms of a model in training; groups: {group norm: its Grouped}."""

    def __init__(self, layers, blocks, norms=(), fuses=False, groups={}):
        """fuses: whether batch norm in training is computed with the activation that follows it, by our kernels."""
        self.layers, self.groups, self.fuses, self._of = layers, groups, fuses, {}
        for norm, stand_in in groups.items():
            self._of[norm] = stand_in
            self._stand_in_for(stand_in.activation, stand_in.is_shared)
        for norm in norms:
            self._of[norm.norm] = norm
            self._stand_in_for(norm.activation if fuses else None, norm.is_shared)
        for conv, layer in layers.items():
            self._of[conv] = layer
            if layer.norm is not None:
                self._of[layer.norm] = Pass(layer.norm, layer)
            self._stand_in_for(layer.activation, layer.activation_is_shared, layer)
        for module, inside in blocks.items():
            inside = {name: part for name, part in inside.items()
                      if (part.norm in groups if isinstance(part, Grouped) else part.conv in layers)}
            if any(isinstance(part, Grouped) or part.adds for part in inside.values()):
                self._of[module] = _block.Block(module, inside)

    def _stand_in_for(self, activation, is_shared, layer=None):
        if activation is not None:
            self._of[activation] = Shared(activation) if is_shared else Pass(activation, layer)

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
