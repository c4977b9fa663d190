"""What each field of a spec is for, once: the JSON Schema, `mpijob explain` and the reference tell it.

The key is the part's class and the field. A test fails when a field has no entry here.
"""

from __future__ import annotations

import msgspec

from mpijob.model.spec.enums import (
    BIND_TO,
    GPU_KINDS,
    MAP_BY,
    NOTICES,
    PRESETS,
    PRIORITIES,
    RETRY_CAUSES,
    SIGNALS,
)


class Description(msgspec.Struct, frozen=True):
    """One field: a sentence, an example as it stands in a job file, and words it may hold."""

    text: str
    example: str
    words: tuple[str, ...] = ()


def _union(words: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for own in words.values() for word in own))


_D = Description
FIELDS: dict[str, Description] = {
    "MPIJob.name": _D("What the job is called; unique in its namespace, and fit for DNS.", "bert-base"),
    "MPIJob.namespace": _D("The namespace that the job belongs to, with its quota and rights.", "team-cv"),
    "MPIJob.description": _D(
        "What the job is for, in your own words; Markdown is shown as such.", "Nightly training"
    ),
    "MPIJob.workers": _D("How many workers run the ranks.", "4"),
    "MPIJob.slots": _D("How many ranks each worker takes.", "2"),
    "MPIJob.ranks": _D("How many ranks run in all, when that is not workers × slots.", "7"),
    "MPIJob.cores_per_rank": _D(
        "How many cores each rank uses (MPI with threads); sets OMP_NUM_THREADS.", "4"
    ),
    "MPIJob.elastic": _D(
        "Between how many workers the job goes on; its command starts its own ranks and finds the workers with "
        "$MPIJOB_DISCOVER_HOSTS (elastic Horovod).",
        "{min_workers: 2, max_workers: 8}",
    ),
    "MPIJob.mpi": _D("Which MPI library starts the ranks; auto lets the plan decide and say why.", "mpich"),
    "MPIJob.launch": _D("How ranks are laid out and started.", "{bind_to: core}"),
    "MPIJob.presets": _D(
        "Settings that belong together, by name; what the job says itself wins, and the plan writes them out.",
        "[infiniband, nccl]",
        PRESETS,
    ),
    "MPIJob.image": _D(
        "The container image of launcher and workers; noted and not used on one machine.",
        "quay.io/team/train:1",
    ),
    "MPIJob.command": _D(
        "The program and its arguments, one word each; no shell reads them.", "[python, train.py]"
    ),
    "MPIJob.args": _D("More arguments, added to the command or the script.", "[--epochs, 10]"),
    "MPIJob.programs": _D(
        "Several programs in one world, instead of a command.",
        "[{ranks: 1, command: [coordinator]}, {ranks: 7, command: [solver]}]",
    ),
    "MPIJob.script": _D(
        "A script, instead of a command: it runs once, in the launcher, and each mpirun, mpiexec or srun in it is a "
        "step over the job's workers.",
        "run.sh",
    ),
    "MPIJob.code": _D("The files that go along with the job.", "{path: .}"),
    "MPIJob.env": _D("Environment variables that every rank gets.", "{OMP_PROC_BIND: close}"),
    "MPIJob.secrets": _D(
        "Secrets that reach every rank as variables; only where they are is written here.",
        "[{env: TOKEN, source: tracking/token}]",
    ),
    "MPIJob.volumes": _D(
        "Directories that the launcher and every worker see.", "[{mount: /data, source: /srv/data}]"
    ),
    "MPIJob.pull_secrets": _D(
        "Names of the secrets that give access to the image's registry.", "[registry-login]"
    ),
    "MPIJob.pull_policy": _D(
        "When a cluster's nodes ask the registry for the image: Always, IfNotPresent or Never; without it as "
        "Kubernetes does (Always for :latest).",
        "IfNotPresent",
    ),
    "MPIJob.resources": _D("What each worker may use.", "{cpu: 4, memory: 16Gi, gpu: 1}"),
    "MPIJob.launcher": _D(
        "What the launcher may use; it starts the ranks and does no work itself.",
        "{cpu: 100m, memory: 256Mi}",
    ),
    "MPIJob.placement": _D("Where workers may run; ignored on one machine.", "{topology: packed-rack}"),
    "MPIJob.network": _D(
        "Whom the job's pods may talk to on a cluster; ignored on one machine.", "{egress: [minio.data.svc]}"
    ),
    "MPIJob.queue": _D("The queue that the job waits in.", "gpu-large"),
    "MPIJob.priority": _D(
        "Who goes first: a number (more is sooner), a word, or the name of a priority class.",
        "high",
        tuple(PRIORITIES),
    ),
    "MPIJob.gang_timeout_seconds": _D(
        "How long all workers together may take to start before the job gives up.", "300"
    ),
    "MPIJob.after": _D(
        "Jobs that must have ended before this one starts, by their names in the same namespace: a name alone must "
        "have succeeded, any:NAME have ended in whatever way, failed:NAME have failed or been cancelled.",
        "[prepare]",
    ),
    "MPIJob.concurrency": _D(
        "How many jobs of a group may run at once; the others of the group wait for their turn. On this machine only: "
        "on a cluster the queue decides.",
        "{limit: 5, group: sweep}",
    ),
    "MPIJob.retry": _D("How often a failed job is tried again.", "{limit: 3}"),
    "MPIJob.deadline_seconds": _D(
        "How long the job may run; without it, as long as it takes. Then it has failed, and its ranks have "
        "grace_seconds to end.",
        "3600",
    ),
    "MPIJob.signal": _D(
        "A signal that every rank gets before the end, to write a checkpoint.",
        "{name: USR1, seconds_before: 120}",
    ),
    "MPIJob.grace_seconds": _D("How long ranks may take to end by themselves before they are killed.", "30"),
    "MPIJob.requeue_on_lost_worker": _D(
        "Whether the job goes back to its queue when a machine under it is lost.", "true"
    ),
    "MPIJob.keep_on_failure_seconds": _D(
        "How long workers of a failed job stay, to look around in them.", "600"
    ),
    "MPIJob.retention": _D("How long what is known of the finished job is kept.", "{logs_days: 14}"),
    "MPIJob.ttl_seconds": _D(
        "How long after its end the job is kept before it is deleted; its record stays. Without it, until somebody "
        "deletes it, or as its namespace says.",
        "86400",
    ),
    "MPIJob.notify": _D(
        "Whom to tell what becomes of the job: mail addresses, or names of callbacks in the notifier's settings.",
        '[{to: ann@example.org, "on": [failed, ended]}]',
    ),
    "MPIJob.model": _D(
        "The model that the job makes: it is written down in the model registry when the job has succeeded.",
        "{name: bert, path: /out/model}",
    ),
    "Model.name": _D("How the model is called in the registry.", "bert"),
    "Model.version": _D("How this version of it is called; without it, by the job.", "2026-11"),
    "Model.path": _D("Where the job writes it: a path on a volume.", "/out/model"),
    "Model.format": _D("The format of the files, as servers of models know it.", "onnx"),
    "MPIJob.census": _D("Whether a short launch proves the world before the command runs.", "true"),
    "MPIJob.profile_mpi": _D(
        "Whether each rank's MPI calls are counted: time, bytes and messages by peer (mpijob profile).",
        "true",
    ),
    "MPIJob.labels": _D("Labels to find and group jobs by.", "{team: cv}"),
    "MPIJob.owner": _D("Whose job it is; the user who submits it unless it is set.", "jane"),
    "MPIJob.cost": _D("Labels for the cost report.", "{cost-centre: '4711'}"),
    "Resources.cpu": _D("Cores, whole or in parts; none for no request and no limit.", "500m"),
    "Resources.memory": _D(
        "Memory; a process that takes more is ended and the job says so. none: no request and no limit.",
        "16Gi",
    ),
    "Resources.gpu": _D("GPUs, up to 8; each rank sees only its own.", "2"),
    "Resources.gpu_kind": _D(
        "Which kind of GPU, by its resource name; nvidia.com/mig-1g.5gb and its like too.",
        "nvidia.com/gpu",
        GPU_KINDS,
    ),
    "Resources.others": _D("Other resources by name.", "{rdma/hca: 1}"),
    "Launch.map_by": _D(
        "By what ranks are dealt out over the workers, in the words of the MPI library.",
        "node",
        _union(MAP_BY),
    ),
    "Launch.bind_to": _D("What each rank is bound to.", "core", _union(BIND_TO)),
    "Launch.rankfile": _D("A file that says where each rank runs.", "ranks.txt"),
    "Launch.settings": _D(
        "Parameters of Open MPI, or variables of MPICH and Intel MPI.", "{btl_tcp_if_include: eth0}"
    ),
    "Launch.flags": _D(
        "More words for the launch line; not those that the plan decides.", "[--report-bindings]"
    ),
    "Launch.stdin": _D("A file that rank 0 reads as its standard input.", "input.txt"),
    "Launch.custom": _D(
        "The launch of an MPI library that is not known here; only with mpi: custom.",
        "{command: [myrun, -f, '{hostfile}']}",
    ),
    "CustomLaunch.command": _D(
        "The launch line; may hold {hostfile}, {ranks} and {agent}.",
        "[myrun, -n, '{ranks}', -f, '{hostfile}']",
    ),
    "CustomLaunch.host_line": _D(
        "One worker's line in the hostfile, from {worker} and {slots}.", "'{worker}:{slots}'"
    ),
    "CustomLaunch.tag": _D(
        "A regular expression with a group called rank that finds the rank in a line of output.",
        r"'^\[(?P<rank>[0-9]+)\] '",
    ),
    "CustomLaunch.rank_variable": _D(
        "The variable in which the library tells each process its rank.", "MY_RANK"
    ),
    "Program.ranks": _D("How many ranks run this program.", "1"),
    "Program.command": _D("The program and its arguments, one word each.", "[solver]"),
    "Program.args": _D("More arguments, added to the command.", "[--mesh, fine]"),
    "Program.env": _D("Environment variables for the ranks of this program only.", "{ROLE: solver}"),
    "Code.path": _D(
        "The directory that goes along, seen from the job file; without one, the current directory goes along when "
        "the command names a file or a module (python -m) in it.",
        ".",
    ),
    "Code.git": _D(
        "A repository that goes along; path is then a directory of it.",
        "{url: 'https://git.example.org/train.git', ref: main}",
    ),
    "GitSource.url": _D(
        "The repository's address, as git clone takes it; fetched with your own git and its credentials.",
        "https://git.example.org/train.git",
    ),
    "GitSource.ref": _D("A branch or tag; without one, the default branch.", "v1.2"),
    "GitSource.commit": _D(
        "The commit, in full; without one, that of ref when the job is planned.",
        "3f2a9c51d0b84e6f7a1c2d3e4f5061728394a5b6",
    ),
    "Code.include": _D("Only these paths in it.", "[src, train.py]"),
    "Code.exclude": _D("Not these names and paths in it; ./data is only the one at its top.", "[data]"),
    "Code.files": _D("Small files written here, by their path.", "{hello.py: 'print(1)'}"),
    "Secret.env": _D("The variable that holds the secret.", "TOKEN"),
    "Secret.source": _D(
        "Where its value is: env:NAME, file:/path, or name/key of a secret on a cluster.", "env:TOKEN"
    ),
    "Volume.mount": _D("The directory at which the volume is seen.", "/data"),
    "Volume.kind": _D("Where the volume's files come from.", "claim"),
    "Volume.source": _D(
        "Which directory, claim, server:/directory, config map, secret or CONNECTION/FOLDER of a bucket it is.",
        "train-data",
    ),
    "Volume.read_only": _D("Whether nobody may write to it.", "true"),
    "Volume.size": _D("How large a scratch or shm volume may become.", "10Gi"),
    "Placement.node_selector": _D("Labels that a machine must have.", "{zone: a}"),
    "Placement.exclude_nodes": _D("Machines that are not to be used.", "[gpu-17]"),
    "Placement.tolerations": _D(
        "Taints that the workers put up with, as Kubernetes writes them.", "[{key: gpu, operator: Exists}]"
    ),
    "Placement.affinity": _D("Affinity as Kubernetes writes it.", "{nodeAffinity: {}}"),
    "Placement.topology": _D("How close together the workers are wanted.", "packed-rack"),
    "Network.isolated": _D(
        "Whether a network policy lets only the job's own pods talk to each other.", "true"
    ),
    "Network.attachments": _D(
        "Further networks of the pods, by the names that Multus knows them by.", "[fabric/ib-a]"
    ),
    "Network.egress": _D(
        "Where its pods may go beside: internet, an address or block, a service, a namespace; a port may follow.",
        "[minio.data.svc, 'internet:443']",
    ),
    "Elastic.min_workers": _D("With how few workers the job goes on.", "2"),
    "Elastic.max_workers": _D("To how many workers the job may be scaled.", "8"),
    "Retry.limit": _D("How often a failed job is tried again.", "3"),
    "Retry.on": _D(
        "For which causes it is tried again: words, or codes as `mpijob why` shows them; without any, for all.",
        "[worker_lost, preempted, NCCL_TIMEOUT]",
        RETRY_CAUSES,
    ),
    "Retry.backoff_seconds": _D("The pause before the first new try.", "10"),
    "Retry.factor": _D("By what the pause grows from try to try.", "2"),
    "Retry.max_backoff_seconds": _D("The longest pause.", "600"),
    "Signal.name": _D("Which signal, with or without SIG.", "USR1", SIGNALS),
    "Signal.seconds_before": _D("How long before the end.", "120"),
    "Concurrency.limit": _D("How many jobs of the group may run at once.", "5"),
    "Concurrency.group": _D("What the jobs have in common; without it, those of one array.", "sweep"),
    "Notify.to": _D(
        "A mail address, or the name of a callback in the notifier's settings.", "ann@example.org"
    ),
    "Notify.on": _D("At which moments.", "[failed, ended]", NOTICES),
    "Retention.logs_days": _D("How many days logs are kept.", "7"),
    "Retention.record_days": _D("How many days the job's record is kept.", "30"),
}
