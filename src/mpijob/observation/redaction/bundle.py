"""Masking for what leaves the house: a support bundle is read by strangers, so more is hidden than on a screen.

Beside what `masking` hides (the job's own secret values, tokens of well-known shapes) these are the values that
stand behind a suspicious name (`password=…`, `"api_key": "…"`, `--token …`), passwords in addresses, and
private keys. It errs on the side of hiding.
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
_ADDRESS = re.compile(r"(\b[a-z][a-z0-9+.-]{0,15}://[^\s/:@]{0,128}:)([^\s/@]{1,256})(@)")
_KEY_BEGINS, _KEY_ENDS = "PRIVATE KEY-----", "-----END"


class BundleRedactor:
    """Hides secrets in texts, lines and values; one private key may go over many lines."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        pieces = {piece for value in values for piece in (value, *value.splitlines())}
        self._values = tuple(sorted((p for p in pieces if len(p) >= SHORTEST), key=len, reverse=True))
        self._in_key = False

    def text(self, text: str) -> str:
        """Return a document without secrets."""
        return "\n".join(self.line(line) for line in text.split("\n"))

    def line(self, line: str) -> str:
        """Return one line without secrets; those of a private key are hidden wholly."""
        if self._in_key or _KEY_BEGINS in line:
            self._in_key = not (_KEY_ENDS in line and "BEGIN" not in line.rpartition(_KEY_ENDS)[2])
            return MASK
        lower = line.lower()
        if any(hint in lower for hint in _HINTS):  # most lines are innocent: the patterns are not even tried
            line = _NAMED.sub(_hidden, line)
        if "://" in line:
            line = _ADDRESS.sub(rf"\1{MASK}\3", line)
        return masking.masked_text(line, self._values)

    def ahead(self, line: str) -> str:
        """Return a line without secrets that is cut before it is sealed with the others of its text.

        Where a private key begins in it, that is all that is left: what follows is hidden with it.
        """
        alone = BundleRedactor(self._values)
        sealed = alone.line(line)
        return _KEY_BEGINS if alone._in_key else sealed

    def tree(self, tree: Any) -> Any:
        """Return a value of dicts, lists and texts without secrets; what stands under a suspicious name is one."""
        if isinstance(tree, Mapping):
            return {key: self._entry(str(key), value) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [self.tree(value) for value in tree]
        return self.text(tree) if isinstance(tree, str) else tree

    def _entry(self, name: str, value: Any) -> Any:
        secret = masking.looks_secret(name) and isinstance(value, str)
        return MASK if secret and value else self.tree(value)


def _hidden(match: re.Match[str]) -> str:
    """Return a named value hidden, unless it is plainly a word of a sentence: `token that has expired`."""
    plain = match[1][-1].isspace() and match[2].lower().rstrip(".:!?") in _WORDS
    return match[0] if plain or match[2].startswith(MASK) else match[1] + MASK


def values_of(job: MPIJob, known: Iterable[str] = ()) -> tuple[str, ...]:
    """Return every value that must not leave: those in the spec, and those of its secrets that are known."""
    return masking.secret_values(job, known)
