"""`make faults`: faults made on purpose, seeded, again and again, and a table of how often all came out right.

Each fault is a function that makes it at moments which its seed chooses, in a namespace of its own, and then
holds what is left against what was promised: nothing orphaned, nothing doubled, no state gone backwards, the
audit whole (`fault_checks`). What does not meet runs side by side: repeats, and faults. A failure prints the seed,
with which it can be made again: `--only NAME --seed N --repeats 1`. What came out is kept in the tree as the benches'
lines are, and shown in docs/reference/performance-figures.md; fewer than twenty repeats never take the place of twenty.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench import record
from bench.line import at_least, compared
from testbed import places
from testbed.shell import TestBedError
from tests.e2e.cluster import fault_jobs, fault_outages, fault_recorder, fault_webhook
from tests.e2e.cluster.fault_checks import Moment
from tests.e2e.cluster.fault_outages import Outage
from tests.e2e.cluster.faults import engines_back
from tests.e2e.cluster.governed import install_resources
from tests.e2e.cluster.support import own_place

from mpijob.model import Role

REPEATS = 20
AT_ONCE = 2  # faults that do not meet: most of the time all of them wait
RESULTS = Path(__file__).parent / "faults.json"
SILENT_SECONDS = 60.0
SHORT_SECONDS = 6.0  # an engine keeps its lease


@contextmanager
def nothing(_: Path) -> Iterator[list[Any]]:
    """Share nothing between the repeats of a fault."""
    yield []


class Fault(NamedTuple):
    """One fault: its name, what is promised, how it is made; `lanes` repeats at once do not meet."""

    name: str
    promise: str
    make: Callable[[Moment], None] | Outage
    lanes: int = 3
    alone: bool = False  # it concerns the whole cluster
    cheap: bool = False  # two seeds of it are made in every `make test-cluster`
    shared: Callable[[Path], AbstractContextManager[Any]] = nothing


class Tally(NamedTuple):
    """How often a fault was made, what went wrong, and what was told of the repeats."""

    fault: Fault
    runs: int
    wrong: list[str]
    seconds: float
    notes: Counter[str]

    @property
    def right(self) -> int:
        """How often all came out right."""
        return self.runs - len(self.wrong)

    @property
    def told(self) -> str:
        """What the repeats told, with how often."""
        return "; ".join(f"{note} ×{count}" for note, count in sorted(self.notes.items()))


FAULTS = (
    Fault("controller killed", "the same end, told once", fault_jobs.controller_killed),
    Fault("operator killed", "the same end", fault_jobs.operator_killed, lanes=1, alone=True),
    Fault("webhook killed", "nothing blocked, keys once", fault_webhook.killed, cheap=True),
    Fault("webhook slow", "3 s, nothing blocked", fault_webhook.slow),
    Fault("webhook certificate expired", "renewed by itself", fault_webhook.expired),
    Fault(
        "webhook, one of two killed", "creates go on", fault_webhook.one_of_two_killed, lanes=1, alone=True,
        shared=fault_webhook.two,
    ),
    Fault("leader of two controllers killed", "the other goes on, nothing twice", fault_jobs.leader_killed, lanes=4),
    Fault("worker killed", "named, and tried again", partial(fault_jobs.member_killed, Role.WORKER)),
    Fault("launcher killed", "named, and tried again", partial(fault_jobs.member_killed, Role.LAUNCHER)),
    Fault("namespace deleted", "nothing left, nothing hangs", fault_jobs.namespace_deleted, lanes=4, cheap=True),
    Fault("100 identical submits", "one job, 99 told so", fault_jobs.submitted_often, lanes=2),
    Fault("recorder killed", "every line once, no gap", fault_recorder.killed),
    Fault("quota changed while queued", "told, and runs when it fits", fault_jobs.quota_changed),
    Fault("API server silent", "resumes when it is back", fault_outages.API_SERVER, lanes=4, alone=True),
    Fault("etcd restarted", "resumes when it is back", fault_outages.ETCD, lanes=4, alone=True),
    Fault("node lost", "named within 25 s, and back", fault_outages.NODE, lanes=4, alone=True),
    Fault("Kueue restarted", "runs on, waits on, has its turn", fault_outages.KUEUE, lanes=3, alone=True),
)  # fmt: skip


def tally(kubeconfig: Path, fault: Fault, seeds: Iterable[int], silent_seconds: float) -> Tally:
    """Make a fault once for each seed, several side by side where they do not meet."""
    begun, numbers = time.monotonic(), [*seeds]
    notes: list[str] = []
    with fault.shared(kubeconfig) as shared:
        if isinstance(fault.make, Outage):
            groups = [numbers[at : at + fault.lanes] for at in range(0, len(numbers), fault.lanes)]
            found = [
                one
                for seeds_of_one in groups
                for one in _met_together(kubeconfig, fault, fault.make, seeds_of_one, silent_seconds, notes)
            ]
        else:
            make = fault.make

            def one_by_one(seed: int) -> str:
                return _made(kubeconfig, fault, make, seed, silent_seconds, shared, notes)

            with ThreadPoolExecutor(fault.lanes) as pool:
                found = [*pool.map(one_by_one, numbers)]
    return Tally(
        fault, len(numbers), [*filter(None, found)], time.monotonic() - begun, Counter(filter(None, notes))
    )


def _made(
    kubeconfig: Path,
    fault: Fault,
    make: Callable[[Moment], None],
    seed: int,
    seconds: float,
    shared: Any,
    notes: list[str],
) -> str:
    """Make a fault once; return what went wrong, "" for nothing."""
    try:
        with own_place(kubeconfig, "fault") as place, ExitStack() as stack:
            make(Moment(place, Random(seed), seconds, shared, stack, notes))
    except Exception as error:
        return _told(fault, seed, error)
    return ""


def _met_together(
    kubeconfig: Path, fault: Fault, outage: Outage, seeds: Sequence[int], seconds: float, notes: list[str]
) -> list[str]:
    """Let several repeats meet one outage; return what went wrong with each, "" for nothing."""
    try:
        engines_back()  # what another outage has left broken is not this one's
    except TestBedError as error:
        return [_told(fault, seed, error) for seed in seeds]
    wrong = dict.fromkeys(seeds, "")
    with ExitStack() as stack, ThreadPoolExecutor(len(seeds)) as pool:
        moments = {
            seed: Moment(
                stack.enter_context(own_place(kubeconfig, "fault")), Random(seed), seconds, [],
                stack.enter_context(ExitStack()), notes,
            )
            for seed in seeds
        }  # fmt: skip

        def step(act: Callable[[Moment], None], seed: int) -> None:
            if not wrong[seed]:
                try:
                    act(moments[seed])
                except Exception as error:
                    wrong[seed] = _told(fault, seed, error)

        [*pool.map(partial(step, outage.before), seeds)]
        met = [moments[seed] for seed in seeds if not wrong[seed]]
        try:
            if met:
                with outage.during(met):
                    pass
        except Exception as error:
            return [_told(fault, seed, error) for seed in seeds]
        [*pool.map(partial(step, outage.after), seeds)]
    return [*wrong.values()]


def _told(fault: Fault, seed: int, error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{fault.name}, seed {seed}: {error} ({Path(where.filename).name}:{where.lineno})"


def main() -> int:
    """Make the faults and print the table; return 1 when anything went wrong."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORDS", help="faults whose name holds one of these"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the faults")
    parser.add_argument("--silent-seconds", type=float, default=SILENT_SECONDS)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every fault is mended before the end
    chosen = [fault for fault in FAULTS if any(word in fault.name for word in asked.only)]
    if asked.list:
        print("\n".join(fault.name for fault in chosen))
        return 0
    kubeconfig = places.kubeconfig()
    with own_place(kubeconfig, "resources") as place:
        install_resources(place)
    print(f"{'fault':34} {'promise':33} {'right':>6} {'of':>3} {'seconds':>8}")
    seeds, failed = range(asked.seed, asked.seed + asked.repeats), False
    for done in _all_made(lambda fault: tally(kubeconfig, fault, seeds, asked.silent_seconds), chosen):
        failed = failed or bool(done.wrong)
        print(_line(done), flush=True)
        _keep(done)
    return 1 if failed else 0


def _all_made(make: Callable[[Fault], Tally], faults: Sequence[Fault]) -> Iterator[Tally]:
    """Yield how each fault went: first those that do not meet, two at once, then those that need all for themselves."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(make, (fault for fault in faults if not fault.alone))
    yield from (make(fault) for fault in faults if fault.alone)


def _line(done: Tally) -> str:
    row = f"{done.fault.name:34} {done.fault.promise:33} {done.right:6} {done.runs:3} {done.seconds:8.0f}"
    return "\n    ".join([row, *([done.told] if done.told else ()), *done.wrong])


def _keep(done: Tally) -> None:
    name, note = (
        done.fault.name,
        f"{done.fault.promise}; {done.seconds:.0f} s{'; ' * bool(done.told)}{done.told}",
    )
    line = compared(name, "right", done.right, done.runs, at_least(1.0), note=note)
    record.store(RESULTS, record.this_run(name, quick=done.runs < REPEATS), [line])


if __name__ == "__main__":
    sys.exit(main())
