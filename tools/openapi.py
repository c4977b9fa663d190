"""Write the OpenAPI document for the page's types: `python -m tools.openapi` writes frontend/openapi.json."""

from __future__ import annotations

from pathlib import Path

import msgspec

PLACE = Path(__file__).parent.parent / "frontend" / "openapi.json"


def text() -> str:
    """Return the document as it is kept in the repository."""
    from mpijob.api import openapi, routes

    made = msgspec.json.encode(openapi.document(routes.ROUTES), order="sorted")
    return msgspec.json.format(made, indent=1).decode() + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
