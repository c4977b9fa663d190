"""How long property tests search."""

from hypothesis import settings

_WHOLE = 100  # hypothesis's own number, of which a profile may take less


def examples(whole: int) -> int:
    """Return how many examples a test tries that tries so many in the whole round."""
    return max(10, whole * settings().max_examples // _WHOLE)
