"""The stubs of faltung.torch say what is there."""
import pytest

pytest.importorskip("torch")
import faltung.torch as ft  # noqa: E402
import stubs  # noqa: E402


@pytest.mark.parametrize("module", [ft, ft.functional], ids=lambda m: m.__name__)
def test_the_types_are_what_is_there(module):
    stubs.check(module)
