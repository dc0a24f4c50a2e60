"""What stands in for a module's forward."""
from .. import _c


class NotScripted(_c.Unsupported, AttributeError):
    """Also what a question for an attribute that is not there raises."""


class Forward:
    @property
    def __globals__(self):
        """Of a function, for which TorchScript takes every forward."""
        raise NotScripted("faltung: torch.jit.script reads functions' source, and takes no patched model; script it before, or undo() the "
                          "patch; torch.jit.trace, torch.export and torch.compile take it as it is")
