"""Amounts of cores, memory and GPUs. `quantity` parses and formats single amounts."""

from __future__ import annotations

import msgspec


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cores, memory and GPUs, as numbers."""

    cores: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(
            self.cores + other.cores, self.memory_bytes + other.memory_bytes, self.gpus + other.gpus
        )

    def minus(self, other: Amounts) -> Amounts:
        """Return the difference, never below zero."""
        return Amounts(
            max(0.0, self.cores - other.cores),
            max(0, self.memory_bytes - other.memory_bytes),
            max(0, self.gpus - other.gpus),
        )

    def times(self, count: int) -> Amounts:
        return Amounts(self.cores * count, self.memory_bytes * count, self.gpus * count)

    def fits(self, room: Amounts) -> bool:
        """Return whether it fits into the given amounts."""
        return (
            self.cores <= room.cores + 1e-9
            and self.memory_bytes <= room.memory_bytes
            and self.gpus <= room.gpus
        )
