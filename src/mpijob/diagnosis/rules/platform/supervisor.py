"""Causes that the engine itself knows: what was decided, refused, lost or out of time."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.memory import SHARED_MEMORY

RULES = (
    Rule(
        id="CANCELLED",
        title="The job was cancelled",
        why="A user with the right to do so cancelled the job. The ranks received the job's signal and "
        "were killed after the grace period. Lines about signal 15 or 9 in the log are consequences.",
        trust=Trust.DECISION,
        facts=("reason:Cancelled",),
        causes=("The job was cancelled.",),
        remedies=(Remedy("run it again: mpijob retry JOB"),),
        confidence=1.0,
    ),
    Rule(
        id="DEPENDENCY_FAILED",
        title="A job that this one depends on did not succeed",
        why="A job with `after` starts when the jobs listed there have succeeded. One of them failed, "
        "was cancelled or was deleted, so this job did not start.",
        trust=Trust.DECISION,
        facts=("reason:DependencyFailed",),
        causes=("{message}", "A job that this one depends on did not succeed."),
        example="not started: job 'prepare', which it waits for, failed (Rank 1 on worker 0 exited with "
        "code 2.)",
        remedies=(
            Remedy("see why the other job failed, and fix that first: mpijob why OTHER-JOB"),
            Remedy("then run this one: mpijob retry JOB"),
        ),
        confidence=1.0,
    ),
    Rule(
        id="START_REFUSED",
        title="The job could not be started",
        why="The machine refused to start a process of the job, because of a limit on processes or "
        "files, a directory without write permission, or a program that cannot run. No process of "
        "the job is left running.",
        trust=Trust.FACT,
        facts=("reason:StartRefused",),
        causes=("Worker {worker} could not be started: {message}", "The job could not be started: {message}"),
        remedies=(
            Remedy("fix the problem in the message, then run it again: mpijob retry JOB"),
            Remedy("see what this machine allows: mpijob doctor"),
        ),
        confidence=1.0,
        yields_to=("MISSING_EXECUTABLE", "NOT_EXECUTABLE", "MISSING_INTERPRETER", "DISK_FULL"),
    ),
    Rule(
        id="START_TIMEOUT",
        title="MPI did not start between the workers in time",
        why="All workers started, but MPI did not initialize between them within the timeout. Usually "
        "a firewall or network policy drops packets between them, or a program never reaches "
        "MPI_Init.",
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
                "allow traffic between the launcher and all workers, in both directions (docs/reference/network.md)"
            ),
            Remedy(
                "compare the workers' logs; the one with the least output is the suspect: mpijob "
                "logs JOB --role worker"
            ),
        ),
        confidence=0.8,
    ),
    Rule(
        id="SUPERVISOR_LOST",
        title="The job's supervisor process is gone",
        why="Each job has a supervisor process. It was killed, or the machine rebooted. All processes "
        "of the job ended with it.",
        trust=Trust.FACT,
        facts=("reason:SupervisorLost",),
        causes=("The job's supervisor process is gone: it was killed, or the machine rebooted.",),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy("retry automatically: allow one more attempt", {"retry": {"limit": 1}}),
        ),
        confidence=1.0,
    ),
    Rule(
        id="DISK_FULL",
        title="The disk is full",
        why="A write failed because the file system is full, or the user's quota on it is used up. Logs, "
        "checkpoints and temporary files count too.",
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
            Sign(  # NumPy does not name the error
                " requested and ", r"OSError: \d+ requested and \d+ written"
            ),
            Sign("Disk quota exceeded", r"(?P<quota>Disk quota exceeded)(?:: '(?P<path>[^'\n]{1,200})')?"),
        ),
        causes=(
            "{who} could not write {path}: the user's disk quota is used up ({quota}).",
            "{who} could not write: the user's disk quota is used up ({quota}).",
            "{who} could not write {path}: the disk is full.",
            "{who} could not write: the disk is full.",
        ),
        example="Rank 0 could not write '/scratch/run/ckpt.pt': the disk is full.",
        remedies=(
            Remedy(
                "free space in the quota, or request a larger quota: quota -s, lfs quota or "
                "mmlsquota shows it{quota:.0}"
            ),
            Remedy("free disk space: mpijob delete JOB removes the logs of finished jobs"),
            Remedy("write checkpoints and data to a volume with more space"),
        ),
        confidence=0.95,
        yields_to=("SHM_FULL", "TOO_MANY_FILES"),
    ),
    Rule(
        id="HANG",
        title="The ranks stopped writing output (hang)",
        why="No rank wrote any output for a long time and none ended. Usually some ranks wait for a "
        "message or a collective call that another rank never makes, or one rank failed while the "
        "others wait for it.",
        trust=Trust.LIMIT,
        facts=("stalled", "silent"),
        causes=(
            "The job probably hung until its deadline: {rank_idle} was idle while other ranks were busy.",
            "The job probably hung until its deadline: {all_idle} were idle and wrote no output.",
            "The job probably hung until its deadline: {rank_silent} wrote no more output while other "
            "ranks continued.",
            "The job probably hung until its deadline: {job_silent} wrote no more output.",
            "No rank wrote output for {silent} s, and the workers use {idle} cores together: the "
            "ranks wait for each other, or for something else (hang).",
            "No rank wrote output for {silent} s while the workers use {busy} cores: the ranks "
            "compute without output, or poll for each other (hang).",
            "No rank wrote output for {silent} s; the ranks probably wait for each other (hang).",
            "No rank wrote output for a long time; the ranks probably wait for each other (hang).",
        ),
        example="No rank wrote output for 590 s; the ranks probably wait for each other (hang).",
        remedies=(
            Remedy(
                "see the call stack of each rank while it hangs, in this run or the next: mpijob stacks JOB"
            ),
            Remedy(
                "run the program with python -m mpi4py, so that an exception in one rank ends all ranks",
                {"command": "{with_mpi4py}"},
            ),
            Remedy(
                "look for calls that only some ranks make: a Send without Recv, a collective inside a branch (if)"
            ),
        ),
        confidence=0.7,
    ),
    Rule(
        id="DEADLINE_EXCEEDED",
        title="The job ran past its deadline",
        why="The job was still running at its deadline. It received its signal and was stopped. Ranks "
        "that exit with 0 during the grace period do so because of the signal, so the job counts as "
        "failed.",
        example="The job ran past its deadline of 3600 s.",
        trust=Trust.LIMIT,
        facts=("reason:DeadlineExceeded",),
        signs=(
            Sign(
                "longer than specified deadline", r"(?P<told>Job was active longer than specified deadline)"
            ),
        ),
        causes=(
            "The job ran past its deadline of {deadline} s: {left_well} exited with 0 only after the "
            "termination signal, which does not prove that the work was done.",
            "The job ran past its deadline of {deadline} s, and no rank had written output in the "
            "last {quiet}: they computed without output, or waited for each other (hang).",
            "The job ran past its deadline of {deadline} s.",
            "The job ran past its deadline.",
        ),
        remedies=(
            Remedy(
                "ranks without output for {quiet} may wait for each other: run the job again (mpijob "
                "retry JOB) and show their call stacks: mpijob stacks JOB"
            ),
            Remedy(
                "double the deadline; this is an estimate, the run time is not known",
                {"deadline_seconds": "{longer_deadline}"},
            ),
            Remedy(
                "write a checkpoint before the deadline: request a signal {signal_text} s earlier",
                {"signal": {"name": "USR1", "seconds_before": "{signal_before}"}},
            ),
        ),
        confidence=1.0,
        field="deadline_seconds",
    ),
    Rule(
        id="LAUNCHER_KILLED",
        title="Another process killed the launcher",
        why="A signal that neither mpijob nor the program sent ended the process that starts the ranks "
        "(mpirun or mpiexec): another process of the same user, an administrator, or the kernel when "
        "memory is low.",
        trust=Trust.CAUSE,
        facts=("launcher-killed", "reason:LauncherLost"),
        causes=(
            "Another process or user ended the launcher with {signal_name}.",
            "Another process or user ended the launcher: {message}",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy("retry automatically: allow one more attempt", {"retry": {"limit": 1}}),
        ),
        confidence=0.8,
        of_launcher=True,
        yields_to=("OOM_KILLED", "MEMORY_LIMIT", "WORKER_LOST", "DAEMON_LOST"),
    ),
    Rule(
        id="WORKER_LOST",
        title="A worker was lost",
        why="A worker ended while its ranks were still running: it was killed, or its machine failed. "
        "Every rank on it is lost, and the other ranks cannot continue without them.",
        facts=("reason:WorkerLost", "worker-ended"),
        signs=(
            Sign("connection to worker", r"connection to worker (?P<host>\S+) lost"),
            Sign("closed by remote host", r"Connection to (?P<host>\S+) closed by remote host"),
        ),
        causes=(
            "Worker {worker} disappeared while the job ran.",
            "{host} disappeared while the job ran.",
            "A worker disappeared while the job ran.",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy(
                "requeue automatically when a worker is lost",
                {"requeue_on_lost_worker": True},
            ),
            Remedy("check the worker's memory and CPU usage before its end: mpijob top JOB"),
        ),
        confidence=0.85,
        yields_to=(
            *("MEMORY_LIMIT", "WORKER_EVICTED", "WORKER_PREEMPTED", "NODE_LOST"),
            *("NO_SSHD", "NO_KEY", "START_REFUSED"),
        ),
    ),
    Rule(
        id="DAEMON_LOST",
        title="MPI's daemon on a worker was lost",
        why="Each worker runs a daemon of the MPI library (prted, orted, hydra_pmi_proxy) that starts "
        "and connects its ranks. It was killed. MPI libraries detect this late or never, and some "
        "even report success, so mpijob watches it.",
        facts=("reason:DaemonLost",),
        signs=(
            Sign(
                "has lost communication with",
                r"(?:ORTE|PRTE) has lost communication with a remote daemon"
                r"(?:[\s\S]{0,200}?Remote daemon: \S+ on node (?P<host>\S+))?",
            ),
            Sign(
                "one of the processes terminated badly",  # of those that start the helpers
                r"(?:RUNNING AT (?P<host>\S+)[\s\S]{0,2000}?)?HYDT_bscu_wait_for_completion [^\n]{0,80}: "
                r"one of the processes terminated badly",
                weak=True,
            ),
        ),
        causes=(
            "MPI's daemon on worker {worker} was lost while the job ran.",
            "MPI's daemon on {host} was lost while the job ran.",
            "MPI's daemon on a worker was lost while the job ran.",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy("check whether the worker was short of memory: mpijob top JOB"),
        ),
        confidence=0.8,
        even_on_success=True,
        yields_to=(
            *("OOM_KILLED", "MEMORY_LIMIT", "WORKER_LOST", "WORKER_EVICTED", "WORKER_PREEMPTED"),
            "BAD_BINDING",
        ),
    ),
)

UNKNOWN = Rule(
    id="UNKNOWN",
    title="The cause is not recognised",
    why="The job failed, and neither its exit codes nor its output match a known cause. The answer "
    "shows the line of the log that most likely names the cause, and does not guess. A log alone "
    "may not even show that the run failed.",
    trust=Trust.GENERIC,
    causes=(
        "Most relevant line: {line} (the log does not show whether the run failed){unseen:.0}",
        "Most relevant line: {line} (the cause is not recognised; launcher: {how})",
        "Most relevant line: {line} (the cause is not recognised)",
        "The cause is not recognised: {message} (launcher: {how}).",
        "The cause is not recognised: the launcher ended with {how}.",
        "The cause is not recognised: {message}.",
        "The cause is not recognised.",
    ),
    remedies=(
        Remedy(
            "add the launcher's exit code, if you know it: mpijob why --log FILE --exit-code N{unseen:.0}"
        ),
        Remedy("read the log around that line: mpijob logs JOB --tail 200"),
        Remedy("run the program with one worker and one rank, to see whether it also fails without MPI"),
    ),
    confidence=0.0,
)
