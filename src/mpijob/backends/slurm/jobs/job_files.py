"""The directories of jobs, on the file system that login node and nodes share.

ROOT/order/TIME+NAMESPACE+NAME+NUMBER+UID    one empty file for each job: a list reads nothing else
ROOT/names/NAMESPACE/NAME/NUMBER/            the NUMBERth job of that name: creating it reserves the name
ROOT/jobs/UID/                               one job
    plan.json  script  launcher.sh …         what was submitted (formats/slurm/batch_script)
    slurm                                    the job's ID in Slurm, once it has accepted the job
    acts                                     the owner's actions: cancelled, suspended, resumed
    aN/                                      journals and logs of attempt N (formats/launch/allocation)
    work/                                    its working directory
    state.json                               its last state, once it is final
"""

from __future__ import annotations

import os
import re
import time
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from mpijob import atomic_write, codec
from mpijob.backends.attempts import replay
from mpijob.backends.attempts.replay import Attempt
from mpijob.backends.common_errors import no_such_job
from mpijob.backends.slurm.host import Host
from mpijob.errors import BackendError
from mpijob.formats.launch import allocation
from mpijob.model import JobRef, JobState, Plan, Sample

_ATTEMPT = re.compile(r"a([1-9][0-9]{0,5})")
_ACT = re.compile(r"(\d{1,20}(?:\.\d+)?) (\w+)")
# A directory without a Slurm ID after this time is that of a submit that was killed.
_NEVER_SUBMITTED_SECONDS = 60.0


class Act(NamedTuple):
    """An action of the owner, and its time."""

    time: float
    verb: str


class Place(msgspec.Struct, frozen=True, order=True):
    """A job's directory, by the name of its file in `order`; the newest job is the greatest."""

    created_us: int
    namespace: str
    name: str
    number: int
    uid: str

    @classmethod
    def of(cls, text: str) -> Place | None:
        """Parse the name of a file in `order`; None for another file."""
        parts = text.split("+")
        if len(parts) != 5 or not (parts[0].isdigit() and parts[3].isdigit()):
            return None
        return cls(int(parts[0]), parts[1], parts[2], int(parts[3]), parts[4])

    @property
    def ref(self) -> JobRef:
        """The job's reference."""
        return JobRef(self.namespace, self.name, self.uid)

    @property
    def created(self) -> float:
        """When it was submitted, in seconds since 1970."""
        return self.created_us / 1e6

    @property
    def folder(self) -> str:
        """Its directory, below the root."""
        return f"jobs/{self.uid}"

    @property
    def claim(self) -> str:
        """The directory that reserves its name."""
        return f"names/{self.namespace}/{self.name}/{self.number}"

    @property
    def line(self) -> str:
        """Its file in `order`."""
        return f"order/{self.created_us}+{self.namespace}+{self.name}+{self.number}+{self.uid}"


class JobFiles:
    """The files in a job's directory; an instance reads each file once."""

    def __init__(self, host: Host, place: Place) -> None:
        self.host = host
        self.place = place
        self.path = host.root / place.folder

    @cached_property
    def plan(self) -> Plan:
        """The plan that was submitted; raise NotFound if the job was deleted meanwhile."""
        try:
            return codec.decode((self.path / "plan.json").read_bytes(), Plan)
        except FileNotFoundError:
            raise no_such_job(self.place.ref) from None
        except (OSError, msgspec.DecodeError) as error:
            message = f"{self.path / 'plan.json'} cannot be read: {error}"
            raise BackendError(message, hint="remove the job's directory by hand") from error

    @cached_property
    def number(self) -> str:
        """The job's ID in Slurm; "" while it has none."""
        return self._text("slurm").strip()

    def take_number(self, number: str) -> None:
        """Store the job's ID in Slurm."""
        atomic_write.write(self.path / "slurm", number.encode())
        self.host.push(self.place.folder)
        self.number = number

    @property
    def never_submitted(self) -> bool:
        """Whether the submitting process was killed before Slurm had the job."""
        return not self.number and time.time() - self.place.created > _NEVER_SUBMITTED_SECONDS

    @cached_property
    def acts(self) -> tuple[Act, ...]:
        """The actions of its owner."""
        found = map(_ACT.fullmatch, self._text("acts").splitlines())
        return tuple(Act(float(match[1]), match[2]) for match in found if match)

    def last_act(self, *verbs: str) -> Act | None:
        return next((act for act in reversed(self.acts) if act.verb in verbs), None)

    @property
    def suspended(self) -> bool:
        """Whether its owner has suspended it, and not resumed it since."""
        act = self.last_act("suspended", "resumed")
        return act is not None and act.verb == "suspended"

    @cached_property
    def retries(self) -> int:
        """How often it was retried because it had failed."""
        return len(self._text("retries").splitlines())

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts that have started."""
        names = os.listdir(self.path) if self.path.is_dir() else []
        return sorted(int(match[1]) for name in names if (match := _ATTEMPT.fullmatch(name)))

    def attempt(self, number: int) -> Attempt:
        """Return an attempt from its journals."""
        return replay.read(number, self.plan, self.attempt_directory(number))

    def samples(self) -> tuple[Sample, ...]:
        """Return the usage of its workers, in all attempts."""
        found: list[Sample] = []
        for number in self.attempts():
            for path in sorted(self.attempt_directory(number).glob("usage-*")):
                found += allocation.samples(path.read_text(errors="replace"), number)
        return tuple(sorted(found, key=lambda sample: (sample.time, sample.worker)))

    def attempt_directory(self, number: int) -> Path:
        return self.path / f"a{number}"

    def logs(self, number: int) -> Path:
        return self.attempt_directory(number) / "logs"

    @property
    def work(self) -> Path:
        return self.path / "work"

    def settled(self) -> JobState | None:
        """Return its stored last state; None if it has none."""
        try:
            return codec.decode((self.path / "state.json").read_bytes(), JobState)
        except (OSError, msgspec.DecodeError):
            return None

    def settle(self, state: JobState) -> None:
        """Store its last state, which takes a while to derive; if that fails, it is derived again."""
        try:
            atomic_write.write(self.path / "state.json", msgspec.json.encode(state))
        except OSError:
            return

    def act(self, verb: str) -> None:
        """Note an action of the owner."""
        with (self.path / "acts").open("a") as out:
            out.write(f"{time.time():.3f} {verb}\n")
        # A resumed job is not final any more.
        (self.path / "state.json").unlink(missing_ok=True)
        self.__dict__.pop("acts", None)
        self.host.push(self.place.folder)

    def _text(self, name: str) -> str:
        return replay.read_text(self.path / name)


class JobDirectories:
    """The directories of all jobs below one root."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def all(self, *, pull: bool = True) -> list[Place]:
        """Return all jobs, the newest first."""
        if pull:
            self.host.pull(".")
        try:
            names = os.listdir(self.host.root / "order")
        except FileNotFoundError:
            return []
        return sorted((place for name in names if (place := Place.of(name))), reverse=True)

    def find(self, ref: JobRef) -> Place | None:
        """Return the job with this uid, or the newest with this name; None without one."""
        known = bool(ref.uid) and (self.host.root / "jobs" / ref.uid / "plan.json").exists()
        for place in self.all(pull=not known):
            if place.namespace == ref.namespace and (
                place.uid == ref.uid and ref.name in ("", place.name) if ref.uid else place.name == ref.name
            ):
                return place
        return None

    def untouched(self, place: Place) -> bool:
        """Return whether a job has not started, and has no actions of its owner."""
        folder = self.host.root / place.folder
        return not (folder / "a1").exists() and not (folder / "acts").exists()

    def files(self, place: Place, *, logs: bool = True) -> JobFiles:
        """Return a job's directory as it is now; with its logs, if they are on another machine."""
        if logs:
            self.host.pull(place.folder, whole=True)
        return JobFiles(self.host, place)

    def claim(self, plan: Plan, known: int) -> Place | None:
        """Reserve the name for a new job, after the run `known`; None if another submit was faster."""
        job, parent = plan.job, self.host.root / "names" / plan.job.namespace / plan.job.name
        taken = [int(name) for name in os.listdir(parent) if name.isdigit()] if parent.is_dir() else []
        last = max(taken, default=0)
        if last > known and time.time() - (parent / str(last)).stat().st_mtime < _NEVER_SUBMITTED_SECONDS:
            return None
        place = Place(time.time_ns() // 1000, job.namespace, job.name, max(last, known) + 1, plan.uid)
        # mkdir is atomic on shared file systems, NFS included: one of two submits succeeds.
        return place if self.host.make(place.claim) else None

    def enter(self, place: Place) -> None:
        """Make a complete job visible to all processes."""
        (self.host.root / "order").mkdir(mode=0o700, exist_ok=True)
        (self.host.root / place.line).touch()
        self.host.push("order")

    def remove(self, place: Place) -> None:
        """Delete a job with all its files."""
        # In this order, so that a job without files is never listed.
        self.host.remove(place.line)
        self.host.remove(place.claim)
        self.host.remove(place.folder)
