"""The description of each field of a spec, for the JSON Schema, `mpijob explain` and the reference.

Keys are class and field. A test fails if a field has no entry.
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
    """One field: a sentence, an example in a job file's form, and its permitted words."""

    text: str
    example: str
    words: tuple[str, ...] = ()


def _union(words: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for own in words.values() for word in own))


_D = Description
FIELDS: dict[str, Description] = {
    "MPIJob.name": _D("Name of the job: a DNS label, unique in its namespace.", "bert-base"),
    "MPIJob.namespace": _D("Namespace of the job.", "team-cv"),
    "MPIJob.description": _D("Description of the job; Markdown is rendered.", "Nightly training"),
    "MPIJob.workers": _D("Number of workers.", "4"),
    "MPIJob.slots": _D("Number of ranks per worker.", "2"),
    "MPIJob.ranks": _D("Total number of ranks. Default: workers × slots.", "7"),
    "MPIJob.cores_per_rank": _D("Number of cores per rank (MPI with threads); sets OMP_NUM_THREADS.", "4"),
    "MPIJob.groups": _D(
        "Groups of workers with slots, resources or a placement of their own, in one MPI world. They are part of "
        "workers; workers of no group come first.",
        "[{name: cpu, workers: 2, slots: 4, resources: {cpu: 4, memory: 8Gi}}]",
    ),
    "MPIJob.elastic": _D(
        "Minimum and maximum number of workers; the command starts its own ranks and discovers workers with "
        "$MPIJOB_DISCOVER_HOSTS (elastic Horovod).",
        "{min_workers: 2, max_workers: 8}",
    ),
    "MPIJob.mpi": _D(
        "MPI library that starts the ranks; with auto, the plan selects it and shows the reason.", "mpich"
    ),
    "MPIJob.launch": _D("How to map, bind and start ranks.", "{bind_to: core}"),
    "MPIJob.presets": _D(
        "Names of presets: groups of settings. Fields of the job override them, and the plan shows them.",
        "[infiniband, nccl]",
        PRESETS,
    ),
    "MPIJob.image": _D(
        "Container image of launcher and workers; not used on one machine.",
        "quay.io/team/train:1",
    ),
    "MPIJob.command": _D("Program and its arguments, as a list; runs without a shell.", "[python, train.py]"),
    "MPIJob.args": _D("Additional arguments of the command or script.", "[--epochs, 10]"),
    "MPIJob.programs": _D(
        "Several programs in one MPI world (MPMD), instead of a command.",
        "[{ranks: 1, command: [coordinator]}, {ranks: 7, command: [solver]}]",
    ),
    "MPIJob.script": _D(
        "Script, instead of a command: it runs once, in the launcher, and each mpirun, mpiexec or srun "
        "in it is a step on the job's workers.",
        "run.sh",
    ),
    "MPIJob.code": _D("Files that are uploaded with the job.", "{path: .}"),
    "MPIJob.env": _D("Environment variables of all ranks.", "{OMP_PROC_BIND: close}"),
    "MPIJob.secrets": _D(
        "Environment variables from secrets; the job has only a reference, not the value.",
        "[{env: TOKEN, source: tracking/token}]",
    ),
    "MPIJob.volumes": _D(
        "Volumes to mount in the launcher and all workers.", "[{mount: /data, source: /srv/data}]"
    ),
    "MPIJob.pull_secrets": _D("Names of the pull secrets of the image registry.", "[registry-login]"),
    "MPIJob.pull_policy": _D(
        "Image pull policy: Always, IfNotPresent or Never. Default: as in Kubernetes (Always for :latest).",
        "IfNotPresent",
    ),
    "MPIJob.resources": _D("Resources of each worker.", "{cpu: 4, memory: 16Gi, gpu: 1}"),
    "MPIJob.launcher": _D(
        "Resources of the launcher; it starts the ranks and does not compute.",
        "{cpu: 100m, memory: 256Mi}",
    ),
    "MPIJob.placement": _D("Placement of workers; ignored on one machine.", "{topology: packed-rack}"),
    "MPIJob.network": _D(
        "Network policy of the job's pods on a cluster; ignored on one machine.", "{egress: [minio.data.svc]}"
    ),
    "MPIJob.queue": _D("Queue of the job.", "gpu-large"),
    "MPIJob.priority": _D(
        "Priority: a number (higher starts first), a keyword, or the name of a priority class.",
        "high",
        tuple(PRIORITIES),
    ),
    "MPIJob.gang_timeout_seconds": _D("Time limit in seconds for starting all workers together.", "300"),
    "MPIJob.after": _D(
        "Jobs of the same namespace that must end before this one starts: NAME must succeed, any:NAME "
        "must end, failed:NAME must fail or be cancelled.",
        "[prepare]",
    ),
    "MPIJob.concurrency": _D(
        "Maximum number of running jobs of a group; the others wait. On one machine only: on a cluster, "
        "the queue decides.",
        "{limit: 5, group: sweep}",
    ),
    "MPIJob.retry": _D("Maximum number of retries of a failed job.", "{limit: 3}"),
    "MPIJob.deadline_seconds": _D(
        "Time limit of the job in seconds. Default: none. At the limit the job fails, and its ranks have "
        "grace_seconds to end.",
        "3600",
    ),
    "MPIJob.signal": _D(
        "Signal to all ranks before the end, to write a checkpoint.",
        "{name: USR1, seconds_before: 120}",
    ),
    "MPIJob.grace_seconds": _D("Seconds between SIGTERM and SIGKILL.", "30"),
    "MPIJob.requeue_on_lost_worker": _D("Whether to queue the job again when it loses a worker.", "true"),
    "MPIJob.keep_on_failure_seconds": _D(
        "Seconds to keep the workers of a failed job, for inspection.", "600"
    ),
    "MPIJob.retention": _D("Retention of the finished job's record and logs.", "{logs_days: 14}"),
    "MPIJob.ttl_seconds": _D(
        "Seconds after its end until the job is deleted; its record stays. Default: the namespace's limit.",
        "86400",
    ),
    "MPIJob.notify": _D(
        "Receivers of notifications: mail addresses, or names of callbacks in the notifier's settings.",
        '[{to: ann@example.org, "on": [failed, ended]}]',
    ),
    "MPIJob.model": _D(
        "Model that the job trains: it is registered in the model registry when the job succeeds.",
        "{name: bert, path: /out/model}",
    ),
    "Model.name": _D("Name of the model in the registry.", "bert"),
    "Model.version": _D("Version of the model. Default: the name of the job.", "2026-11"),
    "Model.path": _D("Path of the model files, on a volume.", "/out/model"),
    "Model.format": _D("Format of the model files, as model servers name it.", "onnx"),
    "MPIJob.census": _D("Whether a short launch checks the MPI world before the command runs.", "true"),
    "MPIJob.profile_mpi": _D(
        "Whether each rank's MPI calls are counted: time, bytes and messages by peer (mpijob profile).",
        "true",
    ),
    "MPIJob.labels": _D("Labels of the job.", "{team: cv}"),
    "MPIJob.owner": _D("Owner of the job. Default: the user who submits it.", "jane"),
    "MPIJob.cost": _D("Cost labels, for accounting reports.", "{cost-centre: '4711'}"),
    "Resources.cpu": _D("CPU cores, such as 2 or 500m; none for no request and no limit.", "500m"),
    "Resources.memory": _D(
        "Memory; a worker that exceeds it is killed. none: no request and no limit.",
        "16Gi",
    ),
    "Resources.gpu": _D("Number of GPUs, up to 8; each rank sees only its own.", "2"),
    "Resources.gpu_kind": _D(
        "Resource name of the GPU, such as nvidia.com/gpu or nvidia.com/mig-1g.5gb.",
        "nvidia.com/gpu",
        GPU_KINDS,
    ),
    "Resources.others": _D("Other resources, by name.", "{rdma/hca: 1}"),
    "Launch.map_by": _D(
        "How to map ranks to workers, in the syntax of the MPI library.",
        "node",
        _union(MAP_BY),
    ),
    "Launch.bind_to": _D("What to bind each rank to.", "core", _union(BIND_TO)),
    "Launch.rankfile": _D("Rankfile.", "ranks.txt"),
    "Launch.settings": _D(
        "Parameters of Open MPI, or variables of MPICH and Intel MPI.", "{btl_tcp_if_include: eth0}"
    ),
    "Launch.flags": _D(
        "Additional options of mpirun, except those that the plan sets.", "[--report-bindings]"
    ),
    "Launch.stdin": _D("File for the standard input of rank 0.", "input.txt"),
    "Launch.custom": _D(
        "Launch of an unsupported MPI library; only with mpi: custom.",
        "{command: [myrun, -f, '{hostfile}']}",
    ),
    "CustomLaunch.command": _D(
        "Launch command; can contain {hostfile}, {ranks} and {agent}.",
        "[myrun, -n, '{ranks}', -f, '{hostfile}']",
    ),
    "CustomLaunch.host_line": _D(
        "Line of a worker in the hostfile, with {worker} and {slots}.", "'{worker}:{slots}'"
    ),
    "CustomLaunch.tag": _D(
        "Regular expression with a group named rank that finds the rank in a line of output.",
        r"'^\[(?P<rank>[0-9]+)\] '",
    ),
    "CustomLaunch.rank_variable": _D(
        "The environment variable in which the library sets the rank of each process.", "MY_RANK"
    ),
    "Program.ranks": _D("Number of ranks of this program.", "1"),
    "Program.command": _D("Program and its arguments, as a list.", "[solver]"),
    "Program.args": _D("Additional arguments of the command.", "[--mesh, fine]"),
    "Program.env": _D("Environment variables for the ranks of this program only.", "{ROLE: solver}"),
    "Code.path": _D(
        "Directory to upload, relative to the job file. Default: the current one, if the command uses a file in it.",
        ".",
    ),
    "Code.git": _D(
        "Git repository to upload; path is then a directory in it.",
        "{url: 'https://git.example.org/train.git', ref: main}",
    ),
    "GitSource.url": _D(
        "Address of the repository, as git clone accepts it; your own git and its credentials fetch it.",
        "https://git.example.org/train.git",
    ),
    "GitSource.ref": _D("Branch or tag; the default branch if empty.", "v1.2"),
    "GitSource.commit": _D(
        "Full commit hash; if empty, the commit of ref when the job is planned.",
        "3f2a9c51d0b84e6f7a1c2d3e4f5061728394a5b6",
    ),
    "Code.include": _D("Upload only these paths.", "[src, train.py]"),
    "Code.exclude": _D(
        "Do not upload these names and paths; ./data matches only at the top level.", "[data]"
    ),
    "Code.files": _D("Inline files, by path.", "{hello.py: 'print(1)'}"),
    "Secret.env": _D("Environment variable of the secret.", "TOKEN"),
    "Secret.source": _D(
        "Source of the value: env:NAME, file:/path, or NAME/KEY of a Secret on a cluster.", "env:TOKEN"
    ),
    "Volume.mount": _D("Mount path of the volume.", "/data"),
    "Volume.kind": _D("Kind of the volume.", "claim"),
    "Volume.source": _D(
        "Source of the volume: a directory, claim, server:/directory, ConfigMap, Secret or "
        "CONNECTION/FOLDER of a bucket.",
        "train-data",
    ),
    "Volume.read_only": _D("Whether the volume is read-only.", "true"),
    "Volume.size": _D("Maximum size of a scratch or shm volume.", "10Gi"),
    "Placement.node_selector": _D("Required node labels.", "{zone: a}"),
    "Placement.exclude_nodes": _D("Nodes to avoid.", "[gpu-17]"),
    "Placement.tolerations": _D(
        "Tolerations of the workers, in Kubernetes syntax.", "[{key: gpu, operator: Exists}]"
    ),
    "Placement.affinity": _D("Affinity, in Kubernetes syntax.", "{nodeAffinity: {}}"),
    "Placement.topology": _D("How close together to place the workers.", "packed-rack"),
    "Network.isolated": _D("Whether a network policy isolates the job's pods.", "true"),
    "Network.attachments": _D("Additional networks of the pods (Multus).", "[fabric/ib-a]"),
    "Network.egress": _D(
        "Additional destinations of the pods: internet, an address or network, a Service or a namespace, "
        "optionally with a port.",
        "[minio.data.svc, 'internet:443']",
    ),
    "WorkerGroup.name": _D("Name of the group: a DNS label, unique in the job.", "cpu"),
    "WorkerGroup.workers": _D("Number of workers in the group.", "2"),
    "WorkerGroup.slots": _D("Number of ranks per worker. Default: that of the job.", "4"),
    "WorkerGroup.resources": _D(
        "Resources of each worker, instead of the job's. Default: those of the job.", "{cpu: 4, memory: 8Gi}"
    ),
    "WorkerGroup.placement": _D(
        "Placement, instead of the job's. Default: that of the job.", "{node_selector: {pool: cpu}}"
    ),
    "Elastic.min_workers": _D("Minimum number of workers.", "2"),
    "Elastic.max_workers": _D("Maximum number of workers.", "8"),
    "Retry.limit": _D("Maximum number of retries of a failed job.", "3"),
    "Retry.on": _D(
        "Causes to retry after: keywords, or codes of `mpijob why`. Default: all.",
        "[worker_lost, preempted, NCCL_TIMEOUT]",
        RETRY_CAUSES,
    ),
    "Retry.backoff_seconds": _D("Seconds before the first retry.", "10"),
    "Retry.factor": _D("Factor by which the delay grows.", "2"),
    "Retry.max_backoff_seconds": _D("Maximum delay in seconds.", "600"),
    "Signal.name": _D("Name of the signal, with or without SIG.", "USR1", SIGNALS),
    "Signal.seconds_before": _D("Seconds before the end.", "120"),
    "Concurrency.limit": _D("Maximum number of running jobs of the group.", "5"),
    "Concurrency.group": _D("Name of the group. Default: the array of the job.", "sweep"),
    "Notify.to": _D(
        "A mail address, or the name of a callback in the notifier's settings.", "ann@example.org"
    ),
    "Notify.on": _D("Events to report.", "[failed, ended]", NOTICES),
    "Retention.logs_days": _D("Log retention in days.", "7"),
    "Retention.record_days": _D("Record retention in days.", "30"),
}
