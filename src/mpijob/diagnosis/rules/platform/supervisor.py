"""Causes that the engine itself knows: what was decided, refused, lost or out of time."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.memory import SHARED_MEMORY

RULES = (
    Rule(
        id="CANCELLED",
        title="The job was cancelled",
        why="Somebody with the right to do so asked for the job to end. Ranks got the job's signal, and "
        "after the grace time they were ended. Lines about signal 15 or 9 in the log follow from that.",
        trust=Trust.DECISION,
        facts=("reason:Cancelled",),
        causes=("The job was cancelled.",),
        remedies=(Remedy("run it again: mpijob retry JOB"),),
        confidence=1.0,
    ),
    Rule(
        id="DEPENDENCY_FAILED",
        title="A job that it waits for did not succeed",
        why="A job with `after` starts when the jobs that it names have succeeded. One of them failed, was cancelled "
        "or was deleted, so this one was never started.",
        trust=Trust.DECISION,
        facts=("reason:DependencyFailed",),
        causes=("{message}", "A job that it waits for did not succeed."),
        example="not started: job 'prepare', which it waits for, failed (Rank 1 on worker 0 exited with code 2.)",
        remedies=(
            Remedy("see why the job that it waits for did not succeed, and fix that: mpijob why OTHER-JOB"),
            Remedy("when that one has succeeded: mpijob retry JOB"),
        ),
        confidence=1.0,
    ),
    Rule(
        id="START_REFUSED",
        title="The job could not be started",
        why="The machine refused to start a process of the job: a limit on processes or files, a directory "
        "that may not be written, or a program that cannot be run. Nothing of the job was left running.",
        trust=Trust.FACT,
        facts=("reason:StartRefused",),
        causes=("Worker {worker} could not be started: {message}", "The job could not be started: {message}"),
        remedies=(
            Remedy("fix what the message names, then run it again: mpijob retry JOB"),
            Remedy("see what this machine allows: mpijob doctor"),
        ),
        confidence=1.0,
        yields_to=("MISSING_EXECUTABLE", "NOT_EXECUTABLE", "MISSING_INTERPRETER", "DISK_FULL"),
    ),
    Rule(
        id="START_TIMEOUT",
        title="The workers did not find each other in time",
        why="All workers were started, but MPI did not come up between them within the time allowed. Usually "
        "something between them drops packets, or a worker's program never reached MPI_Init.",
        trust=Trust.LIMIT,
        facts=("reason:StartTimeout",),
        causes=(
            "MPI initialization timeout - workers cannot communicate. Workers: {addresses}.",
            "MPI initialization timeout - workers cannot communicate.",
        ),
        example="MPI initialization timeout - workers cannot communicate. Workers: 0 bert-node-0-0 10.1.0.7, "
        "1 bert-node-0-1 10.1.0.8.",
        remedies=(
            Remedy(
                "allow traffic between the launcher and all workers, in both directions (docs/network.md)"
            ),
            Remedy("look at the worker that said least: mpijob logs JOB --role worker"),
        ),
        confidence=0.8,
    ),
    Rule(
        id="SUPERVISOR_LOST",
        title="The process that looked after the job is gone",
        why="Each job has a supervisor process. It was killed, or the machine was restarted. Everything that "
        "the job had started was ended then, so nothing is left running.",
        trust=Trust.FACT,
        facts=("reason:SupervisorLost",),
        causes=(
            "The process that looked after the job is gone: it was killed, or the machine was restarted.",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy("let the job survive this by itself: allow one more attempt", {"retry": {"limit": 1}}),
        ),
        confidence=1.0,
    ),
    Rule(
        id="DISK_FULL",
        title="The disk is full",
        why="A write failed because the file system has no space left (or the user's quota on it is used up). "
        "Logs, checkpoints and temporary files all count.",
        trust=Trust.FACT,
        facts=("reason:DiskFull",),
        signs=(
            Sign(
                "No space left on device",
                rf"^(?!{SHARED_MEMORY})[^\n]*No space left on device(?:: '(?P<path>[^'\n]{{1,200}})')?",
            ),
            Sign(
                "OUT-OF-RESOURCE", r"PMIX ERROR: OUT-OF-RESOURCE in file \S*dstore\S*"
            ),  # of Open MPI's session folder
            Sign("Disk quota exceeded", r"Disk quota exceeded(?:: '(?P<path>[^'\n]{1,200})')?"),
        ),
        causes=(
            "{who} could not write {path}: the disk is full.",
            "{who} could not write: the disk is full.",
        ),
        remedies=(
            Remedy("free disk space: mpijob delete JOB removes the logs of finished jobs"),
            Remedy("write checkpoints and data to a volume with more space"),
        ),
        confidence=0.95,
        yields_to=("SHM_FULL",),
    ),
    Rule(
        id="HANG",
        title="The ranks went silent",
        why="No rank said anything for a long time and none of them ended: usually some wait for a message "
        "or a collective call that another rank never makes, or one rank failed while the others wait for "
        "it.",
        trust=Trust.LIMIT,
        facts=("stalled", "silent"),
        causes=(
            "The job probably hung until its deadline ended it: {rank_idle} had been idle while others were busy.",
            "The job probably hung until its deadline ended it: {all_idle} had been idle and silent.",
            "The job probably hung until its deadline ended it: {rank_silent} had fallen silent while others went on.",
            "The job probably hung until its deadline ended it: {job_silent} had fallen silent.",
            "No rank said anything for {silent} s, and the workers use {idle} cores together: the ranks wait for "
            "each other, or for something else (hang).",
            "No rank said anything for {silent} s while the workers use {busy} cores: they compute in silence, or "
            "wait for each other without rest.",
            "No rank said anything for {silent} s; the ranks probably wait for each other (hang).",
            "No rank said anything for a long time; the ranks probably wait for each other (hang).",
        ),
        example="No rank said anything for 590 s; the ranks probably wait for each other (hang).",
        remedies=(
            Remedy("capture stacks while it hangs, in this run or the next: mpijob stacks JOB"),
            Remedy(
                "run the program with python -m mpi4py, so that an exception in one rank ends all",
                {"command": "{with_mpi4py}"},
            ),
            Remedy(
                "look for calls that only some ranks make: a Send without Recv, a collective inside an if"
            ),
        ),
        confidence=0.7,
    ),
    Rule(
        id="DEADLINE_EXCEEDED",
        title="The job ran past its deadline",
        why="The job has a deadline, and it was still running then. It got its signal and was ended. Ranks that end "
        "with 0 in their grace time did so because of the signal, so the job has not succeeded.",
        example="The job ran past its deadline of 3600 s.",
        trust=Trust.LIMIT,
        facts=("reason:DeadlineExceeded",),
        causes=(
            "The job ran past its deadline of {deadline} s: {left_well} exited with 0 only after the end signal, "
            "which is no proof that the work was done.",
            "The job ran past its deadline of {deadline} s, and no rank had said anything in the last {quiet}: they "
            "computed in silence, or waited for each other (hang).",
            "The job ran past its deadline of {deadline} s.",
            "The job ran past its deadline.",
        ),
        remedies=(
            Remedy(
                "ranks that are silent for {quiet} may wait for each other: run it again (mpijob retry JOB), and while "
                "it is silent see where each stands: mpijob stacks JOB"
            ),
            Remedy(
                "allow twice the time; an estimate: the run time is not known",
                {"deadline_seconds": "{longer_deadline}"},
            ),
            Remedy(
                "write a checkpoint before the end: ask for a signal {signal_text} s earlier",
                {"signal": {"name": "USR1", "seconds_before": "{signal_before}"}},
            ),
        ),
        confidence=1.0,
        field="deadline_seconds",
    ),
    Rule(
        id="LAUNCHER_KILLED",
        title="The launcher was killed from outside",
        why="The process that starts the ranks (mpirun or mpiexec) was ended by a signal that neither we nor "
        "the program sent: another user of the account, an administrator, or the system short of memory.",
        trust=Trust.CAUSE,
        facts=("launcher-killed", "reason:LauncherLost"),
        causes=(
            "The launcher was ended from outside by {signal_name}.",
            "The launcher was ended from outside: {message}",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy("let the job survive this by itself: allow one more attempt", {"retry": {"limit": 1}}),
        ),
        confidence=0.8,
        of_launcher=True,
        yields_to=("OOM_KILLED", "MEMORY_LIMIT", "WORKER_LOST", "DAEMON_LOST"),
    ),
    Rule(
        id="WORKER_LOST",
        title="A worker is gone",
        why="A worker ended while its ranks were still running: it was killed, or its machine went away. "
        "Every rank on it is lost, and the others cannot go on without them.",
        facts=("reason:WorkerLost", "worker-ended"),
        signs=(
            Sign("connection to worker", r"connection to worker (?P<host>\S+) lost"),
            Sign("closed by remote host", r"Connection to (?P<host>\S+) closed by remote host"),
        ),
        causes=("Worker {worker} disappeared while the job ran.", "A worker disappeared while the job ran."),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy(
                "let the job survive this by itself: queue it again when a worker is lost",
                {"requeue_on_lost_worker": True},
            ),
            Remedy("see what the worker used before it went: mpijob top JOB"),
        ),
        confidence=0.85,
        yields_to=(
            *("OOM_KILLED", "MEMORY_LIMIT", "WORKER_EVICTED", "WORKER_PREEMPTED", "NODE_LOST"),
            *("NO_SSHD", "NO_KEY", "START_REFUSED"),
        ),
    ),
    Rule(
        id="DAEMON_LOST",
        title="MPI's helper process on a worker is gone",
        why="Each worker runs a small process of the MPI library that starts and joins its ranks. It was "
        "killed. The MPI libraries notice this late or never, and some even report success; we watch it "
        "ourselves.",
        facts=("reason:DaemonLost",),
        signs=(
            Sign(
                "has lost communication with",
                r"(?:ORTE|PRTE) has lost communication with a remote daemon"
                r"(?:[\s\S]{0,200}?Remote daemon: \S+ on node (?P<host>\S+))?",
            ),
        ),
        causes=(
            "MPI's helper process on worker {worker} was lost while the job ran.",
            "MPI's helper process on a worker was lost while the job ran.",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy("see whether the worker was short of memory: mpijob top JOB"),
        ),
        confidence=0.8,
        even_on_success=True,
        yields_to=("OOM_KILLED", "MEMORY_LIMIT", "WORKER_LOST", "WORKER_EVICTED", "WORKER_PREEMPTED"),
    ),
)

UNKNOWN = Rule(
    id="UNKNOWN",
    title="The cause is not recognised",
    why="The job failed, and nothing in its exits or its output matches a cause that we know. We say so "
    "instead of guessing, and show the line of the log that most likely names it. A log alone may not even show "
    "that the run failed.",
    trust=Trust.GENERIC,
    causes=(
        "The log does not show whether the run failed. The line that looks most like an error: {line}{unseen}",
        "The cause is not recognised (launcher: {how}). The line that looks most like an error: {line}",
        "The cause is not recognised. The line that looks most like an error: {line}",
        "The cause is not recognised: {message} (launcher: {how}).",
        "The cause is not recognised: the launcher ended with {how}.",
        "The cause is not recognised: {message}.",
        "The cause is not recognised.",
    ),
    remedies=(
        Remedy("say how the launcher ended, if you know it: mpijob why --log FILE --exit-code N{unseen}"),
        Remedy("read the log around that line: mpijob logs JOB --tail 200"),
        Remedy("run the program with one worker and one rank, to see whether it fails without MPI too"),
    ),
    confidence=0.0,
)
