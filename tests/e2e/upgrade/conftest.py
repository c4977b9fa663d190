"""What the tests of an upgrade share: their results are kept."""

from __future__ import annotations
