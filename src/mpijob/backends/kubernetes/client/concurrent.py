"""Several reads at once, each of which may fail: results are used, refusals are kept for the caller.

`job_objects` reads the objects of one job and ignores what it may not read. Here every refusal is kept,
because a preflight must report what it could not check.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mpijob.backends.kubernetes.client import api_errors
from mpijob.backends.kubernetes.client.api_errors import ApiError

if TYPE_CHECKING:
    from mpijob.formats.kubernetes.metadata.well_known import Document
    from mpijob.model.platform.cluster import Unread

T = TypeVar("T")
MOST_AT_ONCE = 16
# The command line ends without waiting for daemon threads; it joins threads of this name.
LASTING = "mpijob-lasting"
# Unreachable, or not authenticated: all other reads would fail in the same way.
_HOPELESS = (0, 401)


class ReadResult(msgspec.Struct, frozen=True):
    """The result of a read, or the error that it failed with."""

    value: Any = None
    error: ApiError | None = None

    @property
    def items(self) -> list[Document]:
        """The objects of a list; empty if it could not be read."""
        return list(self.value.items) if self.value is not None else []

    @property
    def refused(self) -> bool:
        """Whether the read failed although the cluster has this kind of object."""
        return self.error is not None and self.error.status != 404


class ReadResults(dict[str, ReadResult]):
    """Results by key; a key that was not read has an empty result."""

    def __missing__(self, key: str) -> ReadResult:
        return ReadResult()


def together(calls: Mapping[str, Callable[[], Any]], lanes: int = MOST_AT_ONCE) -> ReadResults:
    """Return the results of reads, `lanes` at once; raise BackendError if the server cannot be reached."""
    found, errors, waiting = ReadResults(), list[Exception](), [*calls.items()][::-1]

    def work() -> None:
        while waiting and not errors:
            try:
                key, call = waiting.pop()
            except IndexError:
                # Another thread took the last one after the check above.
                return
            try:
                found[key] = _read(call)
            except Exception as error:
                # Raised below, in the caller's thread.
                errors.append(error)

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(lanes, len(calls)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    return ReadResults({key: found[key] for key in calls})


def later(call: Callable[[], T], *, lasting: bool = False) -> Callable[[], T]:
    """Start a call in a thread and return a function that waits for its result.

    A `lasting` call is completed before the process ends.
    """
    outcome: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            # Raised in `result`, in the caller's thread.
            errors.append(error)

    def result() -> T:
        thread.join()
        if errors:
            raise errors[0]
        return outcome[0]

    thread = threading.Thread(target=work, name=LASTING if lasting else None, daemon=not lasting)
    thread.start()
    return result


def _read(call: Callable[[], Any]) -> ReadResult:
    try:
        return ReadResult(call())
    except ApiError as error:
        if error.status in _HOPELESS:
            raise api_errors.translate(error, doing="read the cluster state") from error
        return ReadResult(None, error)


def unread(results: Mapping[str, ReadResult], meanings: Mapping[str, tuple[str, str]]) -> tuple[Unread, ...]:
    """Return which reads were refused, with what each means for the user; `meanings` by key."""
    # Imported late for a quick start of the command line: most commands need none.
    from mpijob.model.platform.cluster import Unread

    return tuple(
        Unread(what=meanings[key][0], why=_why(result.error), unknown=meanings[key][1])
        for key, result in results.items()
        if key in meanings and result.refused and result.error is not None
    )


def _why(error: ApiError) -> str:
    return (
        "not allowed"
        if error.status == 403
        else f"the server answered {error.status} {error.reason}".rstrip()
    )
