"""Measure this project's source as others were measured when its style was chosen; print one row of a table.

`python -m tools.measure` prints the row; `--write` puts it into ARCHITECTURE.md. What the row counts is also what
`tests/unit/project/test_structure.py` holds, file by file.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mpijob"
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN = "| **mpijob** |"
Function = ast.FunctionDef | ast.AsyncFunctionDef
_BROAD = frozenset({"Exception", "BaseException"})
_BUILT_IN_ERRORS = frozenset({"Exception", "ValueError", "RuntimeError", "KeyError", "OSError", "TypeError"})


class Module(NamedTuple):
    """One file, read."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return len(self.text.splitlines())


class Part(NamedTuple):
    """A function or a handler: where it is, and how it reads."""

    place: str  # module:name
    node: ast.AST


class Row(NamedTuple):
    """The measures of a project, as the table has them."""

    files: int
    files_per_folder: tuple[int, int]  # median, most
    lines_per_file: tuple[int, int, int]  # median, p95, longest
    lines_per_function: tuple[int, int, int]
    docstrings: int  # of 100 public functions
    comments: float  # lines of 100 lines of code
    annotated: int  # of 100 arguments and results
    errors: int
    cycles: int
    largest_cycle: int
    deferred: int
    broad: int
    prints: int

    def written(self) -> str:
        """Return the row of the table."""
        per_file, per_function = (
            " · ".join(map(str, three)) for three in (self.lines_per_file, self.lines_per_function)
        )
        cycles = f"{self.cycles} ({self.largest_cycle})" if self.cycles else "0"
        per_folder = " · ".join(map(str, self.files_per_folder))
        cells = (f"{self.files}", per_folder, per_file, per_function, f"{self.docstrings} %", f"{self.comments:.1f}",
                 f"{self.annotated} %", f"{self.errors}", cycles, f"{self.deferred}", f"{self.broad}",
                 f"{self.prints}")  # fmt: skip
        return f"{BEGIN} {' | '.join(cells)} |"


def modules(source: Path = SOURCE) -> list[Module]:
    """Return every file of a package, read."""
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found.append(Module(name, path, text, ast.parse(text)))
    return found


def functions(module: Module) -> Iterator[Part]:
    """Yield the functions of a module, those within others too."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            yield Part(f"{module.name}:{node.name}", node)


def length(function: ast.AST) -> int:
    """Return over how many lines something goes."""
    assert isinstance(function, Function)
    return (function.end_lineno or function.lineno) - function.lineno + 1


def broad_handlers(module: Module) -> Iterator[Part]:
    """Yield the handlers that catch whatever comes and let it end there; who cleans up and raises it again is none."""
    for function in functions(module):
        for node in _own(function.node):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _raises_again(node):
                yield Part(function.place, node)


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a function, but not in a function within it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, Function):
            yield node
            yield from _own(node)


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is None or (isinstance(one, ast.Name) and one.id in _BROAD) for one in caught)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def imports(module: Module, known: frozenset[str], *, deferred: bool = False) -> set[str]:
    """Return the modules of the project that are imported when this one is; or later, in its functions."""
    told = (
        name for node, later in _imports(module.tree) if later is deferred for name in _named(node, known)
    )
    return {name for name in told if name != module.name}


def _imports(within: ast.AST, later: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the imports that are really made, and whether only when a function is called."""
    for node in ast.iter_child_nodes(within):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, later
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and not _for_types(node):
            yield from _imports(node, later or isinstance(node, Function))


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _named(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names if one.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module in known:
        inner = [f"{node.module}.{one.name}" for one in node.names]
        yield from (name for name in inner if name in known)
        if any(name not in known for name in inner):
            yield node.module


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle."""
    reach = {name: _reached(name, graph) for name in graph}
    groups = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def _reached(name: str, graph: dict[str, set[str]]) -> set[str]:
    found, left = set[str](), [*graph[name]]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += graph.get(one, ())
    return found


def import_graph(all_modules: Iterable[Module]) -> dict[str, set[str]]:
    """Return which modules each one imports, at once or later in its functions."""
    every = [*all_modules]
    known = frozenset(one.name for one in every)
    return {one.name: imports(one, known) | imports(one, known, deferred=True) for one in every}


def measure(source: Path = SOURCE) -> Row:
    """Return the row of a package."""
    every = modules(source)
    parts = [part for one in every for part in functions(one)]
    known = frozenset(one.name for one in every)
    circles = cycles(import_graph(every))
    return Row(
        files=len(every),
        files_per_folder=_per_folder(every),
        lines_per_file=_three([one.lines for one in every]),
        lines_per_function=_three([length(one.node) for one in parts]),
        docstrings=_documented(parts),
        comments=_comments(every),
        annotated=_annotated(parts),
        errors=_errors(every),
        cycles=len(circles),
        largest_cycle=max(map(len, circles), default=0),
        deferred=sum(len(imports(one, known, deferred=True)) for one in every),
        broad=sum(1 for one in every for _ in broad_handlers(one)),
        prints=sum(1 for one in every for node in ast.walk(one.tree) if _is_print(node)),
    )


def folders(every: Iterable[Module]) -> Counter[str]:
    """Return how many modules each folder holds, below the package; `__init__` is the folder itself."""
    found = (one for one in every if one.path.name != "__init__.py")
    return Counter(str(one.path.parent) for one in found)


def _per_folder(every: Iterable[Module]) -> tuple[int, int]:
    counts = folders(every).values()
    return int(statistics.median(counts)), max(counts)


def _three(counts: list[int]) -> tuple[int, int, int]:
    ordered = sorted(counts)
    return int(statistics.median(ordered)), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1]


def _documented(parts: list[Part]) -> int:
    public = [part.node for part in parts if not part.place.rpartition(":")[2].startswith("_")]
    told = [node for node in public if isinstance(node, Function) and ast.get_docstring(node)]
    return round(100 * len(told) / len(public))


def _comments(every: list[Module]) -> float:
    lines = [line.strip() for one in every for line in one.text.splitlines() if line.strip()]
    comments = sum(line.startswith("#") for line in lines)
    return 100 * comments / (len(lines) - comments)


def _annotated(parts: list[Part]) -> int:
    told = wanted = 0
    for part in parts:
        node = part.node
        assert isinstance(node, Function)
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [one for one in given if one.arg not in ("self", "cls")]
        wanted += len(named) + 1
        told += sum(one.annotation is not None for one in named) + (node.returns is not None)
    return round(100 * told / wanted)


def _errors(every: list[Module]) -> int:
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for one in every
        for node in ast.walk(one.tree)
        if isinstance(node, ast.ClassDef)
    }
    found = set(_BUILT_IN_ERRORS)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return len(found - _BUILT_IN_ERRORS)


def _is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def main() -> int:
    """Print the row, or write it where it belongs."""
    row = measure().written()
    if "--write" in sys.argv[1:]:
        lines = PAGE.read_text(encoding="utf-8").splitlines()
        PAGE.write_text(
            "\n".join(row if line.startswith(BEGIN) else line for line in lines) + "\n", encoding="utf-8"
        )
    sys.stdout.write(f"{row}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
