"""The documentation site: what MkDocs (`mkdocs.yml`, `make docs`) needs to be told beside the pages themselves.

Pages are written for readers of the repository too, so they link to files outside docs/. Here such a link
becomes a page of the site (Markdown) or a file to look at (anything else), a link to a folder becomes the
page that stands for it, and the folders without such a page get a list. MkDocs calls the `on_…` functions;
`python -m tools.site site` looks whether what was built needs the internet.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
ALWAYS = tuple(ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"))
PROJECT = "project"  # where pages of the repository's root are on the site
FILES = "files"  # where files of the repository are
LISTS = {
    "decisions/README.md": ("Decisions", "Why it is built this way; half a page each.", DOCS / "decisions"),
    "examples/README.md": ("Examples", "", EXAMPLES),
}
UNLISTED = frozenset({"troubleshooting", "decisions"})
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_FETCHED = re.compile(r'(?:src="|rel="stylesheet" href="|url\()(https?://[^")]+)')
_BEGIN = 2000  # where a title is looked for


def outside(path: Path) -> str | None:
    """Return the place on the site of a file that is not in docs/; None for one that is."""
    if path.is_relative_to(DOCS):
        return None
    inner = path.relative_to(ROOT).as_posix()
    return f"{PROJECT}/{inner.replace('/', '-').lower()}" if path.suffix == ".md" else f"{FILES}/{inner}.txt"


def place(target: Path) -> str:
    """Return where on the site a file or a folder of the repository is."""
    if target == EXAMPLES / "README.md" or (target.is_dir() and target.is_relative_to(EXAMPLES)):
        return "examples/README.md"
    if target.is_dir():
        target /= "README.md"
    return outside(target) or target.relative_to(DOCS).as_posix()


def rewritten(text: str, source: Path, uri: str) -> str:
    """Return a page's text with its links made for the site; what stands in a code block is left alone."""
    parts = _FENCE.split(text)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda found: _link(found, source, uri), part)
        for part in parts
    )


def _link(found: re.Match[str], source: Path, uri: str) -> str:
    target = Path(os.path.normpath(source.parent / found[2]))
    if not target.exists() or not target.is_relative_to(ROOT):
        return found[0]  # MkDocs warns, and a warning is an error
    return f"{found[1]}{os.path.relpath(place(target), PurePosixPath(uri).parent)}{found[3]}"


def linked(pages: Iterable[Path]) -> Iterator[Path]:
    """Yield the files outside docs/ that pages link to, and those that these link to, each once."""
    todo = [*pages, *ALWAYS, EXAMPLES / "README.md"]
    seen = {*ALWAYS, EXAMPLES / "README.md"}
    yield from ALWAYS
    while todo:
        page = todo.pop()
        for target in _targets(page):
            if target.is_file() and outside(target) and target not in seen:
                seen.add(target)
                yield target
                todo.extend([target] if target.suffix == ".md" else [])


def _targets(page: Path) -> Iterator[Path]:
    text = page.read_text(encoding="utf-8")
    prose = "".join(part for part in _FENCE.split(text) if not part.startswith("```"))
    for _, target, _ in _LINK.findall(prose):
        path = Path(os.path.normpath(page.parent / target))
        if path.is_relative_to(ROOT):
            yield path / "README.md" if path.is_dir() else path


def listing(title: str, lead: str, folder: Path) -> str:
    """Return the page of a folder: its pages by title, or each example with all of its files."""
    if folder.name == "examples":
        return examples(folder)
    rows = "".join(f"- [{_title(page)}]({page.name})\n" for page in sorted(folder.glob("*.md")))
    return f"# {title}\n\n{lead}\n\n{rows}"


def examples(folder: Path) -> str:
    """Return the page of all examples, with their files as they are in the repository."""
    read_me = (folder / "README.md").read_text(encoding="utf-8")
    parts = [read_me.rstrip()]
    for path in sorted(path for path in folder.rglob("*") if _shown(path)):
        name, language = path.relative_to(folder.parent).as_posix(), _LANGUAGES[path.suffix]
        parts.append(f"## `{name}`\n\n````{language}\n{path.read_text(encoding='utf-8').rstrip()}\n````")
    return "\n\n".join(parts) + "\n"


_LANGUAGES = {
    ".py": "python", ".yaml": "yaml", ".c": "c", ".sh": "sh", ".sbatch": "sh", ".json": "json", ".ipynb": "",
}  # fmt: skip


def _shown(path: Path) -> bool:
    return path.is_file() and path.suffix in _LANGUAGES and path.suffix != ".ipynb"


def _title(page: Path) -> str:
    found = _TITLE.search(page.read_text(encoding="utf-8")[:_BEGIN])
    return found[1] if found else page.stem


def fetched(site: Path) -> list[str]:
    """Return what pages of the built site would fetch from elsewhere: there must be nothing."""
    found = (
        (page.relative_to(site), address)
        for page in sorted(site.rglob("*.html"))
        for address in _FETCHED.findall(page.read_text(encoding="utf-8"))
    )
    return [f"{page}: {address}" for page, address in found]


# What MkDocs calls


def on_config(config: Any) -> Any:
    """Let no page be lost: what the navigation does not name comes last."""
    if more := unnamed(config["nav"]):
        config["nav"].append({"More": more})
    return config


def unnamed(nav: Any) -> list[str]:
    """Return the pages that a navigation does not have; those of UNLISTED are found through their index."""
    told = set(named(nav))
    here = (page.relative_to(DOCS) for page in sorted(DOCS.rglob("*.md")))
    return [page.as_posix() for page in here if page.parts[0] not in UNLISTED and page.as_posix() not in told]


def named(part: Any) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(part, str):
        yield part
    else:
        for one in part.values() if isinstance(part, dict) else part:
            yield from named(one)


def on_files(files: Any, config: Any) -> Any:
    """Add the files of the repository that pages link to, and the lists of folders."""
    from mkdocs.structure.files import File

    for path in linked(DOCS.rglob("*.md")):
        files.append(File.generated(config, outside(path) or "", abs_src_path=str(path)))
    for uri, told in LISTS.items():
        files.append(File.generated(config, uri, content=listing(*told)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Make a page's links for the site."""
    uri = page.file.src_uri
    sources = {outside(path): path for path in linked(DOCS.rglob("*.md"))} if uri.startswith(PROJECT) else {}
    source = EXAMPLES / "README.md" if uri.startswith("examples/") else sources.get(uri, DOCS / uri)
    return rewritten(markdown, source, uri)


if __name__ == "__main__":
    if elsewhere := fetched(Path(sys.argv[1])):
        sys.exit("\n".join(["the site fetches from elsewhere:", *elsewhere]))
