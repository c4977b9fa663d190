"""A decision tree for the type of job, and the glossary.

Only data: the web UI shows the tree. A leaf that is not an MPI job also has a snippet and a link.
"""

from __future__ import annotations

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """A leaf of the tree: a job type, its purpose, and how to start one; `template` is a matching job template."""

    name: str
    why: str
    snippet: str
    link: str
    here: bool = False
    template: str = ""


class Option(msgspec.Struct, frozen=True):
    """One answer, and the question or kind that follows."""

    text: str
    then: str


class Question(msgspec.Struct, frozen=True):
    """One question with its answers."""

    text: str
    options: tuple[Option, ...]


class Guide(msgspec.Struct, frozen=True):
    """Decision tree: questions and job types by key, the first question, and the glossary."""

    begin: str
    questions: dict[str, Question]
    kinds: dict[str, Kind]
    glossary: dict[str, str]


_TRAINER = "https://www.kubeflow.org/docs/components/trainer/"

_KINDS = {
    "mpi": Kind(
        "MPI job",
        "for programs that use MPI, mpi4py or Horovod",
        "mpijob run --workers 4 -- python train.py",
        "docs/tutorials/first-job.md",
        here=True,
    ),
    "torch": Kind(
        "PyTorch training job",
        "for torchrun or DistributedDataParallel",
        "from kubeflow.trainer import CustomTrainer, TrainerClient\n\n"
        "TrainerClient().train(trainer=CustomTrainer(func=train, num_nodes=4))",
        f"{_TRAINER}user-guides/pytorch/",
    ),
    "deepspeed": Kind(
        "MPI job with DeepSpeed",
        "for DeepSpeed on several nodes: its launcher uses MPI",
        "mpijob template use deepspeed",
        "docs/tutorials/first-job.md",
        here=True,
        template="deepspeed",
    ),
    "tensorflow": Kind(
        "TensorFlow training job",
        "for tf.distribute with TF_CONFIG; with Horovod choose an MPI job",
        "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: train}\nspec:\n  tfReplicaSpecs:\n    Worker:\n"
        "      replicas: 4\n      template:\n        spec:\n          containers:\n"
        "          - {name: tensorflow, image: IMAGE, command: [python, train.py]}",
        "https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/",
    ),
    "ray": Kind(
        "Ray job",
        "for many small tasks that come and go",
        "import ray\n\nray.init()\nresults = ray.get([work.remote(item) for item in items])",
        "https://docs.ray.io/en/latest/cluster/kubernetes/index.html",
    ),
    "one": Kind(
        "job with one worker",
        "for programs that fit on one machine",
        "mpijob run --workers 1 --slots 4 -- python train.py",
        "docs/tutorials/first-job.md",
        here=True,
    ),
}

_QUESTIONS = {
    "what": Question(
        "What does your program use to run in parallel?",
        (
            Option("MPI, mpi4py or Horovod (started with mpirun or horovodrun)", "size"),
            Option("DeepSpeed", "deepspeed"),
            Option("PyTorch with torchrun or DistributedDataParallel", "torch"),
            Option("TensorFlow with tf.distribute", "tensorflow"),
            Option("Many independent tasks", "ray"),
            Option("Nothing yet, or I don't know", "size"),
        ),
    ),
    "size": Question(
        "Does it fit on one machine?",
        (Option("Yes", "one"), Option("No, or it should run faster on several machines", "mpi")),
    ),
}

GLOSSARY = {
    "job": "One run of your program on all its workers: it succeeds or fails as a whole.",
    "launcher": "The process that starts the ranks with mpirun and waits for them; it computes nothing itself.",
    "worker": "A set of CPU, memory and GPUs in which ranks run; on a cluster it is a pod.",
    "rank": "One process of your program. Ranks are numbered from 0 and communicate through MPI.",
    "slot": "Capacity for one rank on a worker; with GPUs usually one for each GPU.",
    "world": "All ranks of a job together. Its size is workers × slots, unless ranks is set.",
    "hostfile": "The list of workers with their slots that mpirun reads to place the ranks.",
    "gang": "All workers of a job, started together or not at all: a job never runs with some of its workers.",
    "claim": "A PersistentVolumeClaim: storage of a project that workers mount as a volume.",
    "attempt": "One execution of a job. A job that is retried has several; their logs and results are kept.",
    "queue": "Where jobs wait, in order, until their resources or quota are free.",
    "quota": "The maximum resources that a project may use at the same time.",
    "project": "A namespace: jobs, quota and permissions that belong together.",
    "plan": "All decisions about a job, shown before anything starts.",
}

GUIDE = Guide("what", _QUESTIONS, _KINDS, GLOSSARY)
