"""Several reads at once, each of which may be refused: what came is used, what did not is named.

`job_objects` looks for one job's objects and passes over what it may not see. Here every refusal is kept,
because a preflight must say what nobody knows.
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
LASTING = "mpijob-lasting"  # the command line, which leaves in a hurry, waits for threads of this name
_HOPELESS = (0, 401)  # nobody is there, or nobody knows us: the other reads would fail alike


class ReadResult(msgspec.Struct, frozen=True):
    """What one read gave, or why it gave nothing."""

    value: Any = None
    error: ApiError | None = None

    @property
    def items(self) -> list[Document]:
        """The objects of a list; none when it could not be read."""
        return list(self.value.items) if self.value is not None else []

    @property
    def refused(self) -> bool:
        """Whether it could not be read although the cluster has such things."""
        return self.error is not None and self.error.status != 404


class ReadResults(dict[str, ReadResult]):
    """Answers by question; to one that was not asked there is nothing to say."""

    def __missing__(self, key: str) -> ReadResult:
        return ReadResult()


def together(calls: Mapping[str, Callable[[], Any]], lanes: int = MOST_AT_ONCE) -> ReadResults:
    """Return the answers of reads, so many of them at once; raise what would stop all of them."""
    found, troubles, waiting = ReadResults(), list[Exception](), [*calls.items()][::-1]

    def work() -> None:
        while waiting and not troubles:
            try:
                key, call = waiting.pop()
            except IndexError:  # another thread was quicker
                return
            try:
                found[key] = _answer(call)
            except Exception as error:  # raised below, where the caller is
                troubles.append(error)

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(lanes, len(calls)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if troubles:
        raise troubles[0]
    return ReadResults({key: found[key] for key in calls})


def later(call: Callable[[], T], *, lasting: bool = False) -> Callable[[], T]:
    """Make a call in a thread of its own and return what waits for it; the process ends after a `lasting` one."""
    outcome: list[T] = []
    troubles: list[Exception] = []

    def work() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # raised below, where the caller is
            troubles.append(error)

    def result() -> T:
        thread.join()
        if troubles:
            raise troubles[0]
        return outcome[0]

    thread = threading.Thread(target=work, name=LASTING if lasting else None, daemon=not lasting)
    thread.start()
    return result


def _answer(call: Callable[[], Any]) -> ReadResult:
    try:
        return ReadResult(call())
    except ApiError as error:
        if error.status in _HOPELESS:
            raise api_errors.translate(error, doing="read the cluster state") from error
        return ReadResult(None, error)


def unread(answers: Mapping[str, ReadResult], meanings: Mapping[str, tuple[str, str]]) -> tuple[Unread, ...]:
    """Return what could not be read, each with what therefore is not known."""
    from mpijob.model.platform.cluster import Unread  # a list needs none: start-up is a feature

    return tuple(
        Unread(what=meanings[key][0], why=_why(answer.error), unknown=meanings[key][1])
        for key, answer in answers.items()
        if key in meanings and answer.refused and answer.error is not None
    )


def _why(error: ApiError) -> str:
    return (
        "not allowed"
        if error.status == 403
        else f"the server answered {error.status} {error.reason}".rstrip()
    )
