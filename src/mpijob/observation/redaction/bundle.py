"""Redaction for support bundles: strangers read them, so more is hidden than on a screen.

In addition to `masking` (the job's secret values, tokens of well-known forms) these are hidden: values after
a suspicious name (`password=…`, `"api_key": "…"`, `--token …`), passwords in URLs, and private keys. In
doubt, a value is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mpijob.model import MPIJob
from mpijob.observation.redaction import masking
from mpijob.observation.redaction.masking import MASK, SHORTEST

_NAMED = re.compile(
    r"((?:token|passw(?:or)?d|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|credential|auth)"
    r"[\w.-]{0,64}[\"']?(?:\s{0,3}[=:]\s{0,3}|\s{1,3})[\"']?)((?:bearer |basic )?[^\s\"',;&]{4,})",
    re.IGNORECASE,
)
_HINTS = ("token", "passw", "passphrase", "secret", "key", "credential", "auth")
_WORDS = frozenset(
    ("that", "this", "with", "from", "must", "have", "been", "cannot", "could", "would", "failed", "expired", "none",
     "null", "true", "false", "required", "missing", "invalid", "length", "count", "found", "file", "ring", "mask")
)  # fmt: skip
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]{0,15}://[^\s/:@]{0,128}:)([^\s/@]{1,256})(@)")
_KEY_BEGINS, _KEY_ENDS = "PRIVATE KEY-----", "-----END"


class BundleRedactor:
    """Redacts texts, lines and values. It keeps state, because a private key may span many lines."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        pieces = {piece for value in values for piece in (value, *value.splitlines())}
        self._values = tuple(sorted((p for p in pieces if len(p) >= SHORTEST), key=len, reverse=True))
        self._in_key = False

    def text(self, text: str) -> str:
        """Return a redacted document."""
        return "\n".join(self.line(line) for line in text.split("\n"))

    def line(self, line: str) -> str:
        """Return a redacted line; lines of a private key are hidden completely."""
        if self._in_key or _KEY_BEGINS in line:
            self._in_key = not (_KEY_ENDS in line and "BEGIN" not in line.rpartition(_KEY_ENDS)[2])
            return MASK
        lower = line.lower()
        # Most lines have no hint, so the pattern is not even tried.
        if any(hint in lower for hint in _HINTS):
            line = _NAMED.sub(_hide_value, line)
        if "://" in line:
            line = _URL_PASSWORD.sub(rf"\1{MASK}\3", line)
        return masking.masked_text(line, self._values)

    def line_to_shorten(self, line: str) -> str:
        """Return a redacted line that is shortened before it is redacted again with the others of its text.

        If a private key begins in it, only the key's first words are returned, so that the later pass hides
        the following lines.
        """
        alone = BundleRedactor(self._values)
        redacted = alone.line(line)
        return _KEY_BEGINS if alone._in_key else redacted

    def tree(self, tree: Any) -> Any:
        """Return a redacted value of dicts, lists and strings; strings under a suspicious name are hidden."""
        if isinstance(tree, Mapping):
            return {key: self._entry(str(key), value) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [self.tree(value) for value in tree]
        return self.text(tree) if isinstance(tree, str) else tree

    def _entry(self, name: str, value: Any) -> Any:
        secret = masking.looks_secret(name) and isinstance(value, str)
        return MASK if secret and value else self.tree(value)


def _hide_value(match: re.Match[str]) -> str:
    # Unless the value is plainly a word of a sentence: `token that has expired`.
    plain = match[1][-1].isspace() and match[2].lower().rstrip(".:!?") in _WORDS
    return match[0] if plain or match[2].startswith(MASK) else match[1] + MASK


def values_of(job: MPIJob, known: Iterable[str] = ()) -> tuple[str, ...]:
    """Return all values that must not be in a bundle: those in the spec, and known values of its secrets."""
    return masking.secret_values(job, known)
