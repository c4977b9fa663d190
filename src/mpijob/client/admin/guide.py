"""Which kind of job suits, as a short tree of questions, and the words that everything here uses.

Data only: the page walks the tree; a leaf that is not an MPI job still ends in something to run, with the matching
snippet and where to read on.
"""

from __future__ import annotations

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """Where the questions end: a kind of job, why, and how one begins."""

    name: str
    why: str
    snippet: str
    link: str
    here: bool = False


class Option(msgspec.Struct, frozen=True):
    """One answer, and the question or kind that follows."""

    text: str
    then: str


class Question(msgspec.Struct, frozen=True):
    """One question with its answers."""

    text: str
    options: tuple[Option, ...]


class Guide(msgspec.Struct, frozen=True):
    """The tree: questions and kinds by key, where it begins, and the glossary."""

    begin: str
    questions: dict[str, Question]
    kinds: dict[str, Kind]
    glossary: dict[str, str]


_TRAINER = "https://www.kubeflow.org/docs/components/trainer/"

_KINDS = {
    "mpi": Kind(
        "MPI job",
        "your program is started by mpirun, or speaks MPI itself: all ranks begin and end together",
        "mpijob run --workers 4 -- python train.py",
        "docs/quickstart.md",
        here=True,
    ),
    "torch": Kind(
        "PyTorch training job",
        "torchrun starts and joins the processes itself; MPI would add nothing",
        "from kubeflow.trainer import CustomTrainer, TrainerClient\n\n"
        "TrainerClient().train(trainer=CustomTrainer(func=train, num_nodes=4))",
        f"{_TRAINER}user-guides/pytorch/",
    ),
    "deepspeed": Kind(
        "MPI job with DeepSpeed",
        "DeepSpeed's own launcher on several nodes is MPI underneath",
        "mpijob template use deepspeed",
        "docs/quickstart.md",
        here=True,
    ),
    "ray": Kind(
        "Ray job",
        "many small tasks that come and go are scheduled by Ray, not by ranks that wait for each other",
        "import ray\n\nray.init()\nresults = ray.get([work.remote(one) for one in todo])",
        "https://docs.ray.io/en/latest/cluster/kubernetes/index.html",
    ),
    "one": Kind(
        "a job with one worker",
        "on one node there is nothing to join: start simple, add workers when it is too slow",
        "mpijob run --workers 1 --slots 4 -- python train.py",
        "docs/quickstart.md",
        here=True,
    ),
}

_QUESTIONS = {
    "what": Question(
        "What does your program use to work together?",
        (
            Option("MPI, mpi4py or Horovod (it is started with mpirun or horovodrun)", "size"),
            Option("DeepSpeed", "deepspeed"),
            Option("PyTorch with torchrun or DistributedDataParallel", "torch"),
            Option("Many independent tasks", "ray"),
            Option("Nothing yet, or I do not know", "size"),
        ),
    ),
    "size": Question(
        "Does it fit on one node?",
        (Option("Yes", "one"), Option("No, or it should become faster with more nodes", "mpi")),
    ),
}

GLOSSARY = {
    "job": "One run of your program on all its workers: it succeeds or fails as a whole.",
    "launcher": "The one process that starts the ranks with mpirun and waits for them; it computes nothing itself.",
    "worker": "A place with its own CPU, memory and GPUs where ranks run; on a cluster a pod.",
    "rank": "One process of your program; ranks are numbered from 0 and talk to each other by MPI.",
    "slot": "Room for one rank on a worker; with GPUs usually one for each GPU.",
    "world": "All ranks of a job together; its size is workers × slots.",
    "queue": "Where jobs wait, in order, until there is room or quota for them.",
    "quota": "The most that a namespace may use at once.",
    "namespace": "Whose jobs belong together, with its own quota and rights; the page calls it a project.",
    "plan": "Exactly what would run, worked out before anything starts.",
}

GUIDE = Guide("what", _QUESTIONS, _KINDS, GLOSSARY)
