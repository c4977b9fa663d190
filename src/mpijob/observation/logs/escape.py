"""Makes the text of a log line safe to show on a terminal or a page.

Programs may print what a terminal obeys: colours, window titles, cursor movements, text in reverse direction.
Each such byte becomes visible (`\\x1b[31m`), so that a line cannot look like another one. `masking` and
`stream` hide secrets.
"""

from __future__ import annotations

import functools

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_INVISIBLE = (0x200B, 0x2028, 0x2029, 0x2060, 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080))


def visible(text: bytes) -> str:
    """Return the text with control bytes, escapes, bidi controls and invalid UTF-8 escaped.

    Tabs are kept; the CR of a CRLF line end is removed, any other becomes `\\r`.
    """
    line = text[:-1] if text.endswith(b"\r") else text
    # Nearly every line is plain.
    if line.isascii() and (shown := line.decode("ascii")).isprintable():
        return shown
    return line.decode("utf-8", "backslashreplace").translate(_escapes())


def _escape(code: int) -> str:
    names = {0x0D: "\\r", 0x0A: "\\n"}
    if code in names:
        return names[code]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_CONTROLS = (*range(0x00, 0x09), *range(0x0A, 0x20), *range(0x7F, 0xA0))


@functools.cache
def _escapes() -> dict[int, str]:
    # Built on first use, because most text is plain.
    return {code: _escape(code) for code in (*_CONTROLS, *_BIDI, *_INVISIBLE)}
