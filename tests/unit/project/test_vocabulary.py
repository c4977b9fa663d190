"""One vocabulary in every face: a worker is never a replica, a launcher never a master; the page speaks of no pods.

The command line's help is held to the same words in `test_cli_output`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpijob.api import openapi, routes

ROOT = Path(__file__).parents[3]
OTHERS = re.compile(r"(?i)\b(replicas?|masters?|slaves?|head ?nodes?|processes? per node)\b")
PODS = re.compile(r"(?i)\bpods?\b")
PAGE = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "frontend/src").rglob("*.ts*")
    if path.name != "schema.ts" and ".test." not in path.name  # made from the document below
)


@pytest.mark.req("FR-UX-002", "FR-UX-003")
@pytest.mark.parametrize("name", PAGE)
def test_the_page_uses_only_our_words(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert OTHERS.search(text) is None
    assert PODS.search(text) is None


def sentences(value: Any) -> Iterator[str]:
    """Yield every text for people in an OpenAPI document, and every name of a field."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("summary", "description") if isinstance(value.get(key), str))
        yield from value.get("properties", {}) if isinstance(value.get("properties"), dict) else ()
        for one in value.values():
            yield from sentences(one)
    elif isinstance(value, list):
        for one in value:
            yield from sentences(one)


@pytest.mark.req("FR-UX-002", "FR-UX-003")
def test_the_server_uses_only_our_words() -> None:
    told = [*sentences(openapi.document(routes.ROUTES))]
    assert len(told) > 500
    assert [one for one in told if OTHERS.search(one)] == []


@pytest.mark.req("FR-UX-002")
def test_no_question_that_the_server_answers_speaks_of_pods() -> None:
    assert [route.summary for route in routes.ROUTES if PODS.search(route.summary)] == []
