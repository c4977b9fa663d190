"""Read all pages of a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.history.archive_reader import ArchiveReader
    from mpijob.model import JobState, Scope


def pages(scope: Scope, source: Backend | ArchiveReader) -> Iterator[JobState]:
    while True:
        page = source.list(scope)
        yield from page.items
        if not page.after:
            return
        scope = msgspec.structs.replace(scope, after=page.after)
