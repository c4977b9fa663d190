"""Causes around memory: limits, the system's killer, Python and GPUs."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.launcher_reports import ended_by

_MORE = Remedy(
    "increase worker memory to at least {more_memory} (estimate)",
    {"resources": {"memory": "{more_memory}"}},
)
_FEWER = Remedy("run fewer ranks in each worker: {fewer_slots} slots", {"slots": "{fewer_slots}"})
# a line about shared memory, in which "No space left on device" is not about a disk
SHARED_MEMORY = (
    r"[^\n]*(?:/dev/shm|shm\.h|shmget|shm_|mm_posix|mm_sysv|shared memory|shared-memory|[Ss]emaphore)"
)
_HALF = Remedy("halve the batch size: {batch} → {half_batch}", {"command": "{smaller_batch}"})
_SMALLER = Remedy("make batches or chunks of data smaller")

RULES = (
    Rule(
        id="MEMORY_LIMIT",
        title="A worker used more memory than its limit",
        why="The job states how much memory a worker may use. All ranks of the worker and its share of "
        "/dev/shm count together. It used more, and was ended before it could harm others.",
        trust=Trust.FACT,
        facts=("memory-exceeded", "reason:MemoryLimitExceeded"),
        causes=(
            "Worker-{worker} exceeded memory limit ({limit_short}). Consider increasing memory request or "
            "reducing data batch size.",
            "A worker exceeded memory limit ({limit_short}). Consider increasing memory request or reducing "
            "data batch size.",
        ),
        remedies=(_MORE, _HALF, _FEWER, _SMALLER),
        confidence=1.0,
        field="resources.memory",
    ),
    Rule(
        id="OOM_KILLED",
        title="The system killed a process, probably for lack of memory",
        why="Signal 9 without a sender of ours is what the Linux kernel sends when memory runs out, in the "
        "worker's limit or on the whole machine. It can also be a person's kill -9.",
        trust=Trust.CAUSE,
        facts=("oom-killed", "rank-killed-by-system"),
        signs=(
            *ended_by(9),
            Sign("oom-kill", r"oom-kill(?:er)?:"),
            Sign("oom", r"[Dd]etected \d+ oom[-_]kill event"),
            Sign("Out Of Memory", r"srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[\d,-]*: Out Of Memory"),
            Sign("SIGKILL", r"Signal 9 \(SIGKILL\) received by PID"),
            Sign("Out of memory: Kill", r"Out of memory: Kill(?:ed)? process"),
            Sign("OOMKilled", r"OOMKilled"),
        ),
        causes=(
            "Worker-{worker} was terminated by the system, likely due to running out of memory (OOM). The "
            "process was forcibly killed to protect the node.",
            "A rank was terminated by the system, likely due to running out of memory (OOM). The process was "
            "forcibly killed to protect the node.",
        ),
        remedies=(
            _MORE,
            _HALF,
            _FEWER,
            _SMALLER,
            Remedy(
                "if memory was far below the limit, somebody sent SIGKILL: ask who, then mpijob retry JOB"
            ),
        ),
        confidence=0.6,
        field="resources.memory",
        yields_to=(
            *("MEMORY_LIMIT", "RANK_KILLED"),
            *("SEGFAULT", "BUS_ERROR", "FLOATING_POINT", "ILLEGAL_INSTRUCTION", "ABORTED"),
        ),
    ),
    Rule(
        id="RANK_KILLED",
        title="A rank was killed from outside",
        why="A rank was ended by signal 9 although its worker's memory was well below the limit: then it was "
        "not the system short of memory, but somebody or something with the same rights.",
        facts=("rank-killed",),
        causes=(
            "{who} was killed from outside by {signal_name}; its worker used {peak} of {limit} at most.",
            "{who} was killed from outside by {signal_name}.",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy(
                "see whether another tool ends processes: job limits of the shell, a watchdog, a clean-up "
                "script"
            ),
        ),
        yields_to=(
            "PYTHON_EXCEPTION",
            "IMPORT_ERROR",
            "MEMORY_ERROR",
            "MPI_ABORT",
            "MPI_CALL_ERROR",
            "LAUNCHER_KILLED",
        ),
        confidence=0.85,
    ),
    Rule(
        id="MEMORY_ERROR",
        title="A program asked for memory that it could not get",
        why="The program, or its language, asked for a block of memory and the system said no: the worker's "
        "address limit "
        "is reached, or the array is larger than memory.",
        signs=(
            Sign(
                "MemoryError", r"^(?:\S*[ ])?(?P<error>[\w.]*(?<!OutOf)MemoryError(?:: (?P<detail>[^\n]+))?)$"
            ),
            Sign("std::bad_alloc", r"(?P<error>std::bad_alloc)"),
            Sign("OutOfMemoryError", r"(?P<error>java\.lang\.OutOfMemoryError: (?P<detail>[^\n]{1,100}))"),
            Sign(
                "cannot allocate vector",
                r"Error: (?P<error>(?P<detail>cannot allocate vector of size [^\n]{1,40}))",
            ),
            Sign(
                "Allocation would exceed",
                r"Fortran runtime error: (?P<error>(?P<detail>Allocation would exceed memory limit))",
            ),
            Sign(
                "Cannot allocate memory",
                r"(?P<error>[^\n]{0,100}(?<!ibv)(?:malloc|mmap|fork|calloc|realloc|new)[^\n]{0,80}Cannot "
                r"allocate memory)",
            ),
            Sign(
                "allocate memory",
                r"(?P<error>(?:[Ff]ailed|[Uu]nable) to allocate (?:memory|\d+ bytes)[^\n]{0,80})",
            ),
        ),
        causes=(
            "{who} could not get the memory that it asked for: {detail}",
            "{who} ran out of memory: {error}",
        ),
        remedies=(_MORE, _HALF, _FEWER, _SMALLER),
        field="resources.memory",
        uncaught=True,
    ),
    Rule(
        id="CUDA_OOM",
        title="A GPU ran out of memory",
        why="The model, its optimizer's state and one batch did not fit into the memory of the GPU; or "
        "several ranks share one GPU.",
        signs=(
            Sign("out of memory", r"(?:CUDA|HIP)(?: error:)? out of memory"),
            Sign("OutOfMemoryError", r"(?:torch\.(?:cuda\.)?|cupy\.cuda\.memory\.)OutOfMemoryError"),
            Sign("CUDA_ERROR_OUT_OF_MEMORY", r"CUDA_ERROR_OUT_OF_MEMORY"),
            Sign("CUBLAS_STATUS_ALLOC_FAILED", r"CUBLAS_STATUS_ALLOC_FAILED"),
            Sign("cudaErrorMemoryAllocation", r"cudaErrorMemoryAllocation"),
            Sign("hipErrorOutOfMemory", r"hipErrorOutOfMemory"),
            Sign("RESOURCE_EXHAUSTED", r"RESOURCE_EXHAUSTED: [^\n]{0,80}(?:OOM|[Oo]ut of memory)"),
        ),
        causes=("Worker {worker} failed: CUDA out of memory", "{who} failed: CUDA out of memory"),
        remedies=(
            _HALF,
            Remedy(
                "let the allocator join free pieces",
                {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
            ),
            Remedy("halve the batch size"),
            Remedy("use mixed precision, gradient checkpointing or a sharded optimizer"),
            Remedy("give each rank a GPU of its own: one slot for each GPU of a worker"),
        ),
        uncaught=True,
    ),
    Rule(
        id="LOADER_KILLED",
        title="A data loader process was killed",
        why="A rank starts processes that load data. The system killed one of them, nearly always because memory ran "
        "out: each has its own copy of what the dataset holds.",
        signs=(
            Sign(
                "is killed by signal",
                r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal: (?!Bus)(?P<signal_name>\w+)",
            ),
            Sign("exited unexpectedly", r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) exited unexpectedly"),
        ),
        causes=(
            "A data loader process of {whom} was killed ({signal_name}), likely for lack of memory.",
            "A data loader process of {whom} ended, likely for lack of memory.",
        ),
        remedies=(_MORE, Remedy("use fewer data loader processes: num_workers"), _FEWER),
        confidence=0.8,
        field="resources.memory",
        yields_to=("MAIN_GUARD",),
    ),
    Rule(
        id="SHM_FULL",
        title="The shared memory /dev/shm is too small",
        why="Ranks on one worker exchange data through /dev/shm. In a container it has 64 MiB unless more is "
        "asked for; data loaders use it too.",
        signs=(
            Sign("shared-memory backing", r"not enough space for \S+ \(the shared-memory backing"),
            Sign("shared memory segment", r"Error while creating shared memory segment"),
            Sign("No space left on device", rf"^(?={SHARED_MEMORY})[^\n]*No space left on device"),
            Sign("Not enough memory to write", r"mm_posix\.c[^\n]{0,60}Not enough memory to write total"),
            Sign("posix_fallocate", r"posix_fallocate[^\n]{0,120}(?:No space left|failed)"),
            Sign("torch_", r"unable to (?:open|write to) (?:file )?</?torch_"),
            Sign("Bus error", r"killed by signal: Bus error"),
            Sign("Error while creating shared", r"Error while creating shared memory"),
            Sign("shared memory", r"[Uu]nable to (?:allocate|create|open|attach to) (?:a )?shared memory"),
            Sign(
                "shared memory init",
                r"system call failed during shared memory initialization[\s\S]{0,300}?(?:No space|Cannot allocate)",
            ),
            Sign("shared memory (shm)", r"out of shared memory|insufficient shared memory \(shm\)"),
        ),
        causes=("{who} ran out of space in /dev/shm.",),
        remedies=(
            Remedy("mount a larger /dev/shm (it counts as the worker's memory)", {"volumes": "{with_shm}"}),
            Remedy("make /dev/shm larger: docker run --shm-size=8g, or mount -o remount,size=8g /dev/shm"),
            Remedy("use fewer data loader processes"),
        ),
        confidence=0.75,
    ),
)
