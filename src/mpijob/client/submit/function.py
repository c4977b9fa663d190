"""A Python function as a job: its source is uploaded in a file that every rank runs.

The function must be self-contained, because only its source is uploaded: imports belong inside it, and values
are passed as arguments, which must be JSON. Its return value on rank 0 is written to `result.json` in the
job's directory, and is the last line of rank 0.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mpijob.errors import InvalidJob, NotFound
from mpijob.model import Code, LogLine, MPIJob

RESULT_FILE = "result.json"
RESULT_MARK = "mpijob result: "

_PROGRAM = '''\
"""Runs the function {function} on every rank; made from its source."""
from __future__ import annotations

import json


{source}

if __name__ == "__main__":
    from mpi4py import MPI

    _value = {function}(**json.loads({arguments!r}))
    if MPI.COMM_WORLD.Get_rank() == 0:
        _text = json.dumps(_value, default=lambda value: value.tolist())
        with open("{file}", "w") as _file:
            _file.write(_text)
        print("{mark}" + _text, flush=True)
'''


def job(
    function: Callable[..., Any], arguments: Mapping[str, Any] | None = None, *, name: str = "", **fields: Any
) -> MPIJob:
    """Return a job that runs the function on every rank; other fields are those of MPIJob.

    >>> from mpijob.client import function
    >>> def double(number):
    ...     return 2 * number
    >>> one = function.job(double, {"number": 21}, workers=2)
    >>> one.name, one.command
    ('double', ('python', '-m', 'mpi4py', 'double.py'))
    """
    called = _name(function)
    source = _source(function, called)
    text = _PROGRAM.format(
        function=called,
        source=source,
        arguments=_json(function, called, arguments or {}),
        file=RESULT_FILE,
        mark=RESULT_MARK,
    )
    code = fields.pop("code", Code())
    file = f"{called}.py"
    return MPIJob(
        name=name or called.replace("_", "-").strip("-").lower(),
        command=("python", "-m", "mpi4py", file),
        code=code.replace(files={**code.files, file: text}),
        **fields,
    )


def result(name: str, lines: Iterable[LogLine]) -> Any:
    """Return the result of the function on rank 0, from the log of rank 0."""
    mark = RESULT_MARK.encode()
    said = [line.text for line in lines if line.rank == 0 and line.text.startswith(mark)]
    if not said:
        raise NotFound(
            f"job '{name}' has no result yet", hint="only a succeeded job of a function has a result"
        )
    return json.loads(said[-1][len(mark) :])


def _name(function: Callable[..., Any]) -> str:
    if not inspect.isfunction(function):
        raise InvalidJob(f"{function!r} is not a plain function", hint="pass a function defined with def")
    if function.__name__ == "<lambda>":
        raise InvalidJob("a lambda cannot be a job: it has no name", hint="write it with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidJob(
            f"{function.__name__} is not a plain function", hint="pass a plain function, without yield"
        )
    return function.__name__


def _source(function: Callable[..., Any], name: str) -> str:
    # Values of closures, globals and decorators do not exist in the job: refused here, not at run time on N
    # ranks.
    if outer := inspect.getclosurevars(function).nonlocals:
        raise InvalidJob(
            f"{name} uses {_listed(outer)} of the enclosing function, which is not uploaded",
            hint="pass it as an argument",
        )
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise InvalidJob(
            f"the source of {name} cannot be found", hint="define it in a file or a cell"
        ) from error
    definition = ast.parse(text).body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.name != name:
        raise InvalidJob(f"the source of {name} is not a plain def")
    _refuse_outside(function, definition)
    return text


def _refuse_outside(function: Callable[..., Any], definition: ast.FunctionDef) -> None:
    name = definition.name
    if definition.decorator_list:
        raise InvalidJob(
            f"{name} has decorators, which are not uploaded",
            hint="remove the decorators, or apply them inside the function",
        )
    outside = {*_globals(function.__code__), *_default_names(definition)} - {name, *dir(builtins), "__name__"}
    if outside:
        raise InvalidJob(
            f"{name} uses {_listed(outside)}, defined outside of it",
            hint="import modules inside the function and pass values as arguments",
        )


def _globals(code: Any) -> set[str]:
    import dis

    own = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (constant for constant in code.co_consts if inspect.iscode(constant))
    return own.union(*(_globals(part) for part in inner))


def _default_names(definition: ast.FunctionDef) -> set[str]:
    defaults = [*definition.args.defaults, *definition.args.kw_defaults]
    nodes = (node for default in defaults if default is not None for node in ast.walk(default))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _json(function: Callable[..., Any], name: str, arguments: Mapping[str, Any]) -> str:
    try:
        inspect.signature(function).bind(**arguments)
        return json.dumps(dict(arguments), allow_nan=False)
    except TypeError as error:
        raise InvalidJob(f"{name} cannot be called with these arguments: {error}") from error
    except ValueError as error:
        raise InvalidJob(
            f"the arguments of {name} are not JSON: {error}", hint="pass numbers, text, lists, mappings"
        ) from error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
