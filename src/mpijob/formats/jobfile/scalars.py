"""What a plain scalar means: the few words and numbers of YAML 1.2, nothing of YAML 1.1's surprises.

`on`, `yes` and `0777` are text here, as written. The reader asks what a scalar is; the writer asks
whether a text would be taken for something else and must stand in quotes.
"""

from __future__ import annotations

import math
import re

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,39})")
_NUMBER = re.compile(r"[-+]?([0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40})([eE][-+]?[0-9]{1,4})?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")


def meaning(text: str) -> bool | int | float | str | None:
    """Return the value that a plain scalar stands for; the text itself when it is just text."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not _LEADING_ZERO.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def is_text(text: str) -> bool:
    """Return whether a plain scalar would be read as the text that it is."""
    return isinstance(meaning(text), str)
