"""Options of Slurm that need nothing here, and those that have no like, with what to do instead."""

from __future__ import annotations

from mpijob.formats.convert.header.request import LOGS

SAME = {
    "no-requeue": "a job is not tried again unless retry.limit says so",
    "kill-on-bad-exit": "one rank that fails ends the whole job, always",
    "label": "mpijob logs tells which rank wrote a line, always",
    "unbuffered": "ranks write without waiting, always",
    "verbose": "mpijob describe and mpijob events tell what happens",
    "quiet": "it changes only what srun itself prints",
    "overlap": "a job here is one step",
    "exact": "a job here is one step",
    "parsable": "mpijob create -o name prints the name alone",
    "wait-all-nodes": "ranks start when every worker is there, always",
    "open-mode": "logs of every attempt are kept apart",
    "get-user-env": "it changes only how the script's shell begins",
    "threads-per-core": "cores are counted as the machine counts them",
}
PLACE = "set placement.node_selector to a label of the nodes you mean"
MAIL = "nothing, or mpijob wait NAME; mail … (whatever the end; with && for success alone, with || for failure alone)"
SENT_TO, NO_ADDRESS = "no mail is sent", "nothing: who is to get mail stands in the command that sends it"
GONE = {
    "output": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "error": (LOGS, "nothing, or mpijob logs NAME > FILE"),
    "qos": ("qualities of service are Slurm's", "set priority: low, normal, high or urgent, or a queue"),
    "constraint": ("features are Slurm's", PLACE),
    "nodelist": ("names of Slurm's nodes mean nothing elsewhere", PLACE),
    "nodefile": ("names of Slurm's nodes mean nothing elsewhere", PLACE),
    "reservation": ("reservations are Slurm's", "ask for a queue with resources of its own, and set queue"),
    "mail-user": (SENT_TO, NO_ADDRESS),
    "mail-type": ("no mail is sent", MAIL),
    "begin": ("jobs start when there is room", "submit it at that time"),
    "deadline": ("jobs start when there is room", "cancel it at that time: mpijob cancel NAME"),
    "hold": ("jobs start when there is room", "mpijob suspend NAME right after creating it"),
    "licenses": ("licences are not counted", "limit the number of jobs by a quota"),
    "chdir": ("a job begins in its own directory, with a copy of the files that go along", "set code.path"),
    "tmp": ("local disk is not counted", "mount a volume: kind: scratch, size: …"),
    "nice": ("Slurm's numbers mean nothing elsewhere", "set priority"),
    "priority": ("Slurm's numbers mean nothing elsewhere", "set priority"),
    "contiguous": ("nodes have no order", "set placement.topology: packed-rack"),
    "clusters": ("the cluster is chosen when submitting", "mpijob create --context NAME"),
    "ntasks-per-socket": ("sockets are not asked for", "set slots and launch.map_by: socket"),
    "ntasks-per-core": ("cores are asked for by ranks", "set cores_per_rank"),
    "gpu-bind": ("each rank sees the GPUs of its worker", "choose by MPIJOB_LOCAL_RANK in the program"),
    "gpus-per-socket": ("sockets are not asked for", "set resources.gpu"),
    "mem-bind": ("memory is bound with the cores", "set launch.bind_to: numa"),
    "hint": ("hints are Slurm's", "set launch.bind_to and cores_per_rank"),
    "mincpus": ("nodes are not chosen by size", "set resources.cpu"),
    "container-mounts": ("mounts are volumes here", "add volumes: kind: path, claim or nfs"),
    "no-kill": ("a job that loses a worker fails", "set requeue_on_lost_worker: true"),
    "wait": ("a rank that fails ends the job at once", "nothing"),
    "mpi": ("mpijob chooses how ranks are started", "set mpi: openmpi, mpich or intel if the program needs one"),
    "propagate": ("limits of your shell do not go along", "put ulimit into the script"),
    "bb": ("there is no burst buffer", "mount a volume: kind: scratch"),
}  # fmt: skip
