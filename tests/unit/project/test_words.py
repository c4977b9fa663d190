"""What users read is plain technical English: words that have a better one in the field are refused, with that one.

The list is short on purpose. Messages are those of `tools.messages`; pages are README.md, docs/ and the part of
CHANGELOG.md that is not released. Decisions, measurements and the test bed are for developers and left out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.messages import messages

ROOT = Path(__file__).parents[3]
INSTEAD = {
    r"tell(s|ing)?|told": "show, report, list, describe",
    r"mend(s|ed|ing)?": "fix",
    r"who(m)?ever|somebody": "users who, a user, the client that",
    r"of late|lately": "recently",
    r"(goes|go|going|went|gone|come|comes|came) along": "is uploaded, is copied",
    r"(goes|go|going|went) on": "continues, keeps running, resumes",
    r"rooms?": "capacity, quota, space",
    r"faces?": "interface",
    r"(wants?|needs?) to (be|talk|look|come)": "must, requires",
    r"borne|bears?": "tolerate",
    r"anew": "again",
    r"made up for": "run late",
    r"(at most|with|in) so (many|few|much|long)|so long after|the how many-th": "the number or the limit itself",
    r"judge[sd]?": "check, validate, evaluate",
    r"for want of": "without",
    r"left (alone|in peace)": "unchanged, not affected",
    r"where \w+( \w+)? stands?": "status, phase, call stack",
    r"unasked": "without confirmation",
    r"all the same": "anyway",
    r"written down": "recorded, stored",
    r"remembered": "recorded, kept in the history",
    r"believe[ds]?": "trust",
    r"worr(y|ies|ied|ying)": "warning",
    r"heard": "received, responded",
    r"gives? up|given up": "stops retrying, times out",
    r"knows? no": "has no, does not support",
    r"(are|is) usual": "median, typical",
    r"tend(s|ed|ing)?": "manage, reconcile",
    r"look(s|ed|ing)? (at|into)": "check, inspect, read",
    r"an own|own ones?": "personal, separate",
    r"everybody": "all users",
}
BANNED = re.compile("|".join(rf"\b(?:{words})\b" for words in INSTEAD), re.IGNORECASE)
FOR_DEVELOPERS = (
    "docs/decisions/",
    "docs/reference/performance-figures.md",
    "docs/how-to/contributors/testbed.md",
    "docs/requirements.toml",
)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`|<!--.*?-->|\[\w+\]\(#\w+\)|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, str]:
    """Return the text of each page that users read, without its code."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    news = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## [Unreleased]")[2]
    texts["CHANGELOG.md"] = news.partition("\n## [")[0]
    chosen = {name: text for name, text in texts.items() if not name.startswith(FOR_DEVELOPERS)}
    return {name: _CODE.sub(_blank, text) for name, text in chosen.items()}


def _blank(match: re.Match[str]) -> str:
    """Return as many empty lines as the code had, so that line numbers stay."""
    return "\n" * match[0].count("\n")


def better(text: str) -> list[str]:
    """Return each banned word of a text with what to write instead."""
    found = (match[0] for match in BANNED.finditer(text) if not match[0].isupper())  # ROOM is a placeholder
    return [
        f"{word!r}: write {instead}"
        for word in found
        for words, instead in INSTEAD.items()
        if re.fullmatch(words, word, re.IGNORECASE)
    ]


def test_a_page_uses_the_words_of_the_field() -> None:
    wrong = [
        f"{name}:{number}: {hint}"
        for name, text in pages().items()
        for number, line in enumerate(text.splitlines(), 1)
        for hint in better(line)
    ]
    assert wrong == []


def test_a_message_uses_the_words_of_the_field() -> None:
    read = [message for message in messages() if message.kind != "field"]  # public ones are in docs/reference
    wrong = [
        f"{message.file}:{message.line}: {hint}"
        for message in read
        for hint in better(re.sub(r"\{[^{}]*\}|`[^`]*`", "", message.text))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("what trainings tell", "'tell'"),
        ("The job goes on.", "'goes on'"),
        ("Whoever can read it", "'Whoever'"),
        ("see where it stands", "'where it stands'"),
        ("400 µs where 30 µs are usual", "'are usual'"),
        ("cannot look at the cluster", "'look at'"),
    ],
)
def test_a_banned_word_is_found_with_a_better_one(text: str, word: str) -> None:
    (hint,) = better(text)
    assert hint.startswith(f"{word}: write ")


@pytest.mark.parametrize("text", ["the interface of the cluster", "a stellar surface", "`told` is a field"])
def test_other_words_are_not_banned(text: str) -> None:
    assert better(_CODE.sub(_blank, text)) == []
