"""Causes that Slurm knows: limits, decisions and nodes of a job that it runs, and jobs that it refuses."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

_LONGER = Remedy("request more time: #SBATCH --time, or scontrol update JobId={job_id} TimeLimit=…")

RULES = (
    Rule(
        id="SLURM_TIME_LIMIT",
        title="Slurm ended the job at its time limit",
        why="Every job has a time limit (--time, or the partition's default). The job was still "
        "running then, and Slurm ended it. Lines about signal 15 or 9 follow from that.",
        signs=(
            Sign(
                "DUE TO TIME LIMIT",
                r"(?:JOB|STEP) (?P<job_id>\d+)\S* ON (?P<node>\S+) CANCELLED AT (?P<when>\S+) DUE TO TIME LIMIT",
            ),
            Sign("DUE TO TIME LIMIT", r"CANCELLED[^\n]{0,80}DUE TO TIME LIMIT"),
        ),
        facts=("reason:TimeLimit",),
        causes=(
            "Slurm ended job {job_id} at its time limit, at {when}.",
            "{message}.",
            "Slurm ended the job at its time limit.",
        ),
        example="Slurm ended job 71 at its time limit, at 2026-11-17T18:32:17.",
        remedies=(
            _LONGER,
            Remedy("request more time, for example #SBATCH --time=08:00:00"),
            Remedy(
                "write checkpoints, and let Slurm send a signal before the limit: #SBATCH --signal=B:USR1@300"
            ),
        ),
        confidence=0.95,
        field="deadline_seconds",
    ),
    Rule(
        id="SLURM_NODE_FAILED",
        title="A node of the Slurm job failed",
        why="A node stopped responding to Slurm: it crashed, lost power or its network, or an "
        "administrator took it down. Every rank on it is lost, and Slurm stopped the other ranks.",
        signs=(
            Sign("Node failure on", r"Node failure on (?P<node>\S+)"),
            Sign("DUE TO NODE FAILURE", r"CANCELLED[^\n]{0,80}DUE TO NODE FAILURE"),
        ),
        facts=("reason:NodeFailed",),
        causes=("Node {node} of the Slurm job failed.", "{message}.", "A node of the Slurm job failed."),
        example="Node n3 of the Slurm job failed.",
        remedies=(
            Remedy("run it again without that node: sbatch --exclude={node}"),
            Remedy("run it again; Slurm does so automatically with #SBATCH --requeue"),
        ),
        confidence=0.9,
    ),
    Rule(
        id="SLURM_PREEMPTED",
        title="Slurm preempted the job",
        why="A job of higher priority needed the nodes, or an administrator put the job back into the queue. It starts "
        "again from its beginning, unless it reads a checkpoint.",
        signs=(
            Sign("DUE TO PREEMPTION", r"(?:JOB|STEP) (?P<job_id>\d+)[^\n]{0,80}DUE TO PREEMPTION"),
            Sign("DUE TO JOB REQUEUE", r"(?:JOB|STEP) (?P<job_id>\d+)[^\n]{0,80}DUE TO JOB REQUEUE"),
        ),
        facts=("reason:SlurmPreempted",),
        causes=("Slurm preempted job {job_id} and requeued it.", "{message}."),
        example="Slurm preempted job 71 and requeued it.",
        remedies=(
            Remedy("write checkpoints and start from the last one: #SBATCH --requeue --open-mode=append"),
            Remedy("use a partition or QOS that is not preempted"),
        ),
        confidence=0.9,
    ),
    Rule(
        id="SLURM_CANCELLED",
        title="The Slurm job was cancelled",
        why="The owner, an administrator or a script called scancel. Lines about signal 15 follow from that.",
        signs=(
            Sign(
                "CANCELLED AT",
                r"(?:JOB|STEP) (?P<job_id>\d+)\S* ON (?P<node>\S+) CANCELLED AT (?P<when>\S+?)(?: \*\*\*|$)",
            ),
            Sign("Job has been cancelled", r"(?:salloc|srun|sbatch): [^\n]{0,40}Job has been cancelled"),
            Sign("Job allocation", r"Job allocation (?P<job_id>\d+) has been revoked"),
        ),
        causes=(
            "Slurm job {job_id} was cancelled at {when}.",
            "Slurm job {job_id} was cancelled.",
            "The Slurm job was cancelled.",
        ),
        example="Slurm job 91 was cancelled at 2026-11-17T18:47:02.",
        remedies=(
            Remedy("see who cancelled it: sacct -j {job_id} --format=jobid,state%30"),
            Remedy("submit it again: sbatch SCRIPT"),
        ),
        confidence=0.8,
        trust=Trust.LIMIT,
        yields_to=(
            "SLURM_TIME_LIMIT",
            "SLURM_NODE_FAILED",
            "SLURM_PREEMPTED",
            "OOM_KILLED",
            "SLURM_STEP_FAILED",
        ),
    ),
    Rule(
        id="SLURM_REFUSED",
        title="Slurm rejects the job",
        why="Slurm checks a job at submission: the script, the partition, the account, the QOS and their "
        "limits. Something in the request of the job does not exist, is not allowed, or exceeds a "
        "limit.",
        signs=(
            Sign(
                "submission failed",
                r"(?:sbatch|srun|salloc): error: (?:[^\n]{0,40}?)submission failed: (?P<error>[^\n]{1,200})",
            ),
            Sign(
                "allocate resources",
                r"(?:sbatch|srun|salloc): error: Unable to allocate resources: (?P<error>[^\n]{1,200})",
            ),
            Sign(
                "specification",
                r"(?:sbatch|srun|salloc): error: (?P<error>Invalid --[^\n]{1,60}specification)",
            ),
            Sign(
                "partition configuration not available",
                r"(?:sbatch|srun|salloc): (?P<waits>Requested partition configuration not available now)",
            ),
            Sign(
                "nvalid partition",
                r"(?:sbatch|srun|salloc): error: (?P<error>[Ii]nvalid partition[^\n]{0,120})",
            ),
            Sign(
                ": error: ",
                r"^(?:sbatch|salloc): error: (?P<error>(?!Batch job submission|Memory spec)[^\n]{4,200}"
                r"(?:\n(?:sbatch|salloc): error: (?!Batch job)[^\n]{4,200}){0,2})",
            ),
        ),
        causes=(
            "Slurm rejects the job: {error}",
            "Slurm does not start the job: {waits}. It exceeds a limit of the partition, or the partition is down.",
        ),
        example="Slurm rejects the job: Invalid partition name specified",
        remedies=(
            Remedy(
                "list the accounts and partitions that you may use: sinfo -s; sacctmgr show assoc "
                "user=$USER format=account,qos,partition"
            ),
            Remedy("request less: fewer nodes, less time, or another partition"),
        ),
        confidence=0.9,
        yields_to=("SLURM_UNREACHABLE",),
    ),
    Rule(
        id="SLURM_UNREACHABLE",
        title="Slurm's controller does not respond",
        why="Slurm's commands contact its controller (slurmctld) and authenticate through munge. One "
        "of them does not respond, on this machine or on a node.",
        signs=(
            Sign("contact slurm controller", r"(?P<error>Unable to contact slurm controller[^\n]{0,80})"),
            Sign("Munge", r"(?P<error>Munge (?:encode|decode) failed: [^\n]{1,120})"),
            Sign("Protocol authentication error", r"(?P<error>Protocol authentication error[^\n]{0,60})"),
            Sign("Zero Bytes were transmitted", r"(?P<error>Zero Bytes were transmitted or received)"),
            Sign("Socket timed out on send/recv", r"(?P<error>Socket timed out on send/recv operation)"),
            Sign("slurm_load_", r"(?P<error>slurm_load_\w+ error: [^\n]{1,120})"),
        ),
        causes=("Slurm does not respond: {error}",),
        remedies=(
            Remedy("check both: scontrol ping; munge -n | unmunge"),
            Remedy("contact an administrator; running jobs are not affected"),
        ),
        confidence=0.85,
        yields_to=("SLURM_TIME_LIMIT", "OOM_KILLED"),
    ),
    Rule(
        id="SLURM_STEP_FAILED",
        title="Slurm could not start the ranks",
        why="A node could not start the ranks of srun: its prolog failed, the credential expired, the "
        "output folder does not exist, or the step requests more than the job has.",
        signs=(
            Sign(
                "task launch",
                r"srun: error: Task launch for (?P<step>\S+) failed on node (?P<node>[^:\s]+): (?P<error>[^\n]{1,160})",
            ),
            Sign(
                "Task launch",
                r"srun: error: Task launch for (?:StepId=)?(?P<step>\S+) failed on node (?P<node>[^:\s]+): "
                r"(?P<error>[^\n]{1,160})",
            ),
            Sign(
                "Unable to create step",
                r"srun: error: Unable to create step for job \d+: (?P<error>[^\n]{1,160})",
            ),
            Sign("launch failed:", r"srun: error: task (?P<task>\d+) launch failed: (?P<error>[^\n]{4,160})"),
            Sign("Prolog", r"(?P<error>(?:Prolog|prolog) (?:failed|error|hung)[^\n]{0,120})"),
            Sign("Could not open std", r"(?P<error>Could not open std(?:out|err|in) file [^\n]{1,160})"),
            Sign("More processors requested", r"(?P<error>More processors requested than permitted)"),
            Sign(
                "srun: error:",
                r"srun: error: (?P<error>(?!Unable to allocate|\S+: tasks? |task \d|spank"
                r"|Timed out waiting|Node failure"
                r"|Nodes? \S+ are|slurm_receive|eio_|launch/slurm|Application launch|Step failure|Unable to create step"
                r"|Task launch|step_launch|Detected zombie|_server_read|Unable to confirm)[^\n]{4,200})",
            ),
        ),
        causes=(
            "Slurm could not start the ranks on {node}: {error}",
            "Slurm could not start the ranks: {error}",
        ),
        example="Slurm could not start the ranks on n2: Unspecified error",
        remedies=(
            Remedy(
                "request no more in srun than in sbatch, and create the output folder before the job starts"
            ),
            Remedy("run it again without that node: sbatch --exclude={node}"),
        ),
        confidence=0.85,
        yields_to=(
            "SLURM_TIME_LIMIT",
            "SLURM_NODE_FAILED",
            "MISSING_EXECUTABLE",
            "PMI_MISSING",
            "BAD_LAUNCH_OPTION",
        ),
    ),
    Rule(
        id="SLURM_REQUEUED",
        title="Slurm put the job back into the queue",
        why="A node failed, the job was preempted, or a user called scontrol requeue. Slurm keeps the "
        "job and starts it again from its beginning as the next attempt, some minutes later: it "
        "waits until the credentials of the first start have expired (cred_expire, two minutes).",
        trust=Trust.DECISION,
        facts=("reason:SlurmRequeued",),
        causes=("The job is back in the queue: {message}.",),
        example="The job is back in the queue: partition main: its begin time has not been reached "
        "(BeginTime).",
        remedies=(
            Remedy(
                "no action is needed: Slurm starts the job again; let the program resume from its last "
                "checkpoint"
            ),
            Remedy("let the job fail instead of restarting", {"requeue_on_lost_worker": False}),
        ),
        confidence=1.0,
    ),
    Rule(
        id="SLURM_NEVER_STARTS",
        title="The Slurm job can never start with these settings",
        why="Slurm accepts a job that requests more than a limit allows, but never starts it: it "
        "requests more time or nodes than its partition has, uses an account or QOS that is not "
        "allowed there, or depends on a job that has failed.",
        trust=Trust.FACT,
        facts=("reason:NeverStarts",),
        causes=("The job can never start with these settings: {message}.",),
        example="The job can never start with these settings: partition short: it requests more "
        "time than its partition allows (PartitionTimeLimit).",
        remedies=(
            Remedy("see the limits: mpijob doctor --context slurm; scontrol show partition"),
            Remedy("cancel it, and submit it within the limits: mpijob clone JOB --replace --deadline …"),
        ),
        confidence=1.0,
    ),
    Rule(
        id="SLURM_HELD",
        title="The Slurm job is held",
        why="A user holds the job in the queue (scontrol hold), or Slurm holds it after a failed start. "
        "It waits until it is released.",
        trust=Trust.DECISION,
        facts=("reason:Held",),
        causes=("The job is held: {message}.",),
        example="The job is held: partition main: it is held by its owner (JobHeldUser).",
        remedies=(
            Remedy("release it: mpijob resume JOB, or scontrol release NUMBER"),
            Remedy("if an administrator holds it, ask them to release it"),
        ),
        confidence=1.0,
    ),
    Rule(
        id="SLURM_DIRECTORY",
        title="The nodes cannot access the job's directory",
        why="mpijob keeps a job's script, logs and files in a directory that login node and compute "
        "nodes share. The first node of this job does not have it, or may not write there, so no "
        "part of the job could run or write a log.",
        trust=Trust.FACT,
        facts=("reason:DirectoryNotShared",),
        causes=("{message}.",),
        example="node n1 cannot use the job's directory /tmp/state/slurm/jobs/1f2e.",
        remedies=(
            Remedy("set a directory on a shared file system: MPIJOB_SLURM_DIRECTORY=/shared/you/mpijob"),
            Remedy("see which file systems the nodes have: srun df -h"),
        ),
        confidence=1.0,
    ),
    Rule(
        id="SLURM_OUTCOME_UNKNOWN",
        title="Slurm has no record of how the job ended",
        why="Slurm deletes a job from its memory some minutes after its end (MinJobAge). The job's "
        "script was killed before it could record its result, and the accounting is not available or "
        "has no record of the job.",
        trust=Trust.FACT,
        facts=("reason:OutcomeUnknown",),
        causes=("{message}.",),
        example="Slurm no longer has job 71, and neither its journal nor the accounting contains its end.",
        remedies=(
            Remedy("read the end of its log: mpijob logs JOB --tail 50"),
            Remedy("ask an administrator for slurmctld's log of that job"),
            Remedy("run it again: mpijob retry JOB"),
        ),
        confidence=1.0,
    ),
)
