"""The stored state, events and findings of one attempt, derived from its `AttemptState`.

While the store cannot be written (a full disk), the job runs on, and events wait for the next write that succeeds.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import msgspec

from mpijob.backends.attempts.clock import Clock
from mpijob.backends.local.planning.machine import node_name
from mpijob.backends.local.queue.store import Store
from mpijob.backends.local.supervisor.attempt_spec import AttemptSpec
from mpijob.errors import BackendError, Finding, Severity, Unsupported
from mpijob.model import Event, Family, JobState, LauncherState, Phase
from mpijob.observation.state.attempt_state import AttemptState
from mpijob.observation.state.phase import PhaseResult, derive, failure

if TYPE_CHECKING:
    from mpijob.diagnosis.evidence import ActiveWarning

OTHER_MPI = "OtherMPI"
_RETRY_SECONDS = 60.0


class StatusWriter:
    """Writes the state and the events of one attempt."""

    def __init__(
        self, store: Store, spec: AttemptSpec, attempt_state: AttemptState, state: JobState, clock: Clock
    ) -> None:
        self._store = store
        self._clock = clock
        self._spec = spec
        self._attempt = attempt_state
        self._pending_events: list[Event] = []
        self._findings_to_add: list[Finding] = []
        self._warnings: tuple[Finding, ...] = ()
        self._first_warned: dict[tuple[str, int | None, int | None], float] = {}
        self._node = node_name()
        self.state = state

    def phase_result(self, *, ended: bool = False) -> PhaseResult:
        return derive(self._attempt.observe(ended=ended, ranks_watched=self._spec.ranks_report))

    def failure(self) -> PhaseResult | None:
        """Return the first failure, None if there is none yet."""
        return failure(self._attempt.observe(ended=False, ranks_watched=self._spec.ranks_report))

    def event(self, reason: str, message: str, severity: Severity = Severity.NOTICE) -> Event:
        return Event(self._clock.now(), reason, message, severity, self._spec.attempt)

    def add_event(self, reason: str, message: str) -> None:
        self._write(self.event(reason, message))

    def set_warnings(self, findings: tuple[Finding, ...]) -> None:
        """Store the present warnings in the state; each gets one event, when it appears first."""
        from mpijob.observation.health import warnings

        keys = [warnings.key(finding) for finding in findings]
        if keys == [warnings.key(finding) for finding in self._warnings]:
            return
        self._warnings = findings
        events = [
            Event(self._clock.now(), warnings.event_reason(finding), finding.message, Severity.WARNING,
                  self._spec.attempt, finding.worker, finding.rank)
            for key, finding in zip(keys, findings, strict=True) if key not in self._first_warned
        ]  # fmt: skip
        self._first_warned = dict.fromkeys(keys, self._clock.now()) | self._first_warned
        self.update(*events)

    def update(self, *events: Event, standing: PhaseResult | None = None) -> None:
        """Store the present state, with events."""
        self._set_state(standing or self.phase_result())
        self._write(*events)

    def add_finding(self, finding: Finding) -> None:
        """Store a finding that does not change the phase, as an event now and in the last state."""
        self._findings_to_add.append(finding)
        self._write(self.event("Remark", finding.message, finding.severity))

    def finish(self) -> JobState:
        """Store and return the last state; of a failed attempt with the findings of its diagnosis."""
        standing = self.phase_result(ended=True)
        failed = standing.phase is Phase.FAILED
        findings = (*(self._findings(standing) if failed else ()), *self._findings_to_add)
        self._attempt.culprit = findings[0].worker if findings else None
        if failed and findings:
            self._plan_other_mpi(findings[0])
        self._set_state(standing, findings, self._clock.now())
        severity = Severity.ERROR if failed else Severity.NOTICE
        self._pending_events.append(self.event(standing.phase.value, standing.message, severity))
        self._write_until_stored()
        return self.state

    def _plan_other_mpi(self, cause: Finding) -> None:
        """Plan another attempt with the MPI that the program loaded, if the user chose none."""
        # An attempt that has printed something may have had effects outside, and is not repeated.
        plan = self._spec.plan
        family = next((fix.patch["mpi"] for fix in cause.fixes if "mpi" in fix.patch), "")
        if (
            cause.code != "WRONG_WORLD"
            or not family
            or plan.job.mpi is not Family.AUTO
            or self._has_printed()
        ):
            return
        # Once for a job, which could otherwise alternate between two families without an end.
        if any(event.reason == OTHER_MPI for event in self._store.events(self.state.ref.uid)):
            return
        # Rarely needed: it would delay the start of every job.
        from mpijob.backends.local.planning import planner

        library = re.search(r"has loaded (/\S+?),? ", self._attempt.stopped_message)
        try:
            other = planner.with_other_mpi(
                plan, Family(family), library[1] if library else "", self._spec.settings, self._spec.home
            )
        # This machine has no launcher of it.
        except Unsupported:
            return
        self._store.replace_plan(self.state.ref.uid, other)
        # It costs none of the attempts that the spec allows.
        self.state = msgspec.structs.replace(self.state, attempts_allowed=self.state.attempts_allowed + 1)
        text = f"{cause.message} It had printed nothing yet, so it is started once more with {other.mpi}."
        self._pending_events.append(self.event(OTHER_MPI, text, Severity.WARNING))

    def _has_printed(self) -> bool:
        heads = (path.read_bytes()[: 1 << 16] for path in self._spec.logs.glob("rank-*.log"))
        return any(b" stdout " in head for head in heads)

    def _findings(self, standing: PhaseResult) -> tuple[Finding, ...]:
        # The rules are loaded only for a failure.
        from mpijob.backends.attempts.evidence import findings_for

        return findings_for(
            self._spec.diagnosis_input, self._attempt, standing, self.state.started, self._active_warnings()
        )

    def _active_warnings(self) -> tuple[ActiveWarning, ...]:
        """Return the warnings that held when the attempt ended, each with the time of its first report."""
        from mpijob.diagnosis.evidence import ActiveWarning
        from mpijob.observation.health import warnings

        return tuple(
            ActiveWarning(
                finding.code,
                finding.message,
                self._first_warned[warnings.key(finding)],
                finding.worker,
                finding.rank,
                finding.confidence,
            )
            for finding in self._warnings
        )

    def _set_state(
        self, standing: PhaseResult, findings: tuple[Finding, ...] = (), finished: float | None = None
    ) -> None:
        running = standing.phase is Phase.RUNNING and self.state.running is None
        exit = self._attempt.launcher
        self.state = msgspec.structs.replace(
            self.state,
            phase=standing.phase,
            reason=standing.reason.value,
            message=findings[0].message if findings else standing.message,
            launcher=self._launcher(standing.phase),
            workers=self._attempt.worker_states(standing.phase, self._spec.worker_gpus),
            ranks=self._attempt.rank_states(),
            steps=tuple(step for _, step in sorted(self._attempt.steps.items())),
            running=self._clock.now() if running else self.state.running,
            finished=finished,
            findings=findings or (self._warnings if standing.phase is Phase.RUNNING else ()),
            launcher_exit_code=None if exit is None else exit.status,
        )

    def _launcher(self, phase: Phase) -> LauncherState:
        log = str(self._spec.logs / "launcher.log")
        return self._attempt.launcher_state(phase, node=self._node, log=log)

    def _write(self, *events: Event) -> bool:
        self._pending_events += events
        try:
            self._store.put(self.state, *self._pending_events)
        except BackendError:
            return False
        self._pending_events.clear()
        return True

    def _write_until_stored(self) -> None:
        # The last state must not be lost; on a full disk there may be space again in a moment.
        deadline = time.monotonic() + _RETRY_SECONDS
        while not self._write() and time.monotonic() < deadline:
            time.sleep(0.5)
