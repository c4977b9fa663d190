"""Causes around memory: limits, the system's killer, Python and GPUs."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.launcher_reports import ended_by

_MORE = Remedy(
    "raise the memory of each worker to {more_memory}; this is an estimate, the total need is not known",
    {"resources": {"memory": "{more_memory}"}},
)
_FEWER = Remedy("run fewer ranks in each worker: {fewer_slots} slots", {"slots": "{fewer_slots}"})
# a line about shared memory, in which "No space left on device" is not about a disk
SHARED_MEMORY = (
    r"[^\n]*(?:/dev/shm|shm\.h|shmget|shm_|mm_posix|mm_sysv|shared memory|shared-memory|[Ss]emaphore)"
)
_HALF = Remedy("halve the batch size: {batch} → {half_batch}", {"command": "{smaller_batch}"})
_HEAP = Remedy(
    "double the heap limit of the JVM or Node.js: {larger_heap_text}", {"command": "{larger_heap}"}
)
_SMALLER = Remedy("use smaller batches or chunks of data")

RULES = (
    Rule(
        id="MEMORY_LIMIT",
        title="A worker used more memory than its limit",
        why="The job sets a memory limit for each worker. All ranks of the worker and its share of "
        "/dev/shm count together. The worker used more and was stopped.",
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
        title="The kernel killed a process, probably because memory ran out",
        why="If mpijob did not send signal 9, it usually comes from the Linux kernel: the worker reached "
        "its memory limit, or the whole machine ran out of memory. It can also come from a kill -9.",
        trust=Trust.CAUSE,
        facts=("oom-killed", "rank-killed-by-system"),
        signs=(
            *ended_by(9),
            Sign("oom-kill", r"oom-kill(?:er)?:"),
            Sign("oom", r"[Dd]etected \d+ oom[-_]kill event"),
            Sign(
                "emory limit",
                r"slurmstepd: error: (?:Step|Job) \S+ exceeded memory limit \([^)\n]{1,60}\), being killed",
            ),
            Sign(
                "xceeded ", r"slurmstepd: error: Exceeded (?:job|step) memory limit\n[\s\S]{0,600}?CANCELLED"
            ),
            Sign("TERM_MEMLIMIT", r"TERM_MEMLIMIT: job killed"),
            Sign("PBS: job killed:", r"PBS: job killed: v?mem \d+\w* exceeded limit"),
            Sign("out of memory: Killed", r"(?:cgroup|System) out of memory: Killed process"),
            Sign("Out Of Memory", r"srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)[\d,-]*: Out Of Memory"),
            Sign("SIGKILL", r"Signal 9 \(SIGKILL\) received by PID"),
            Sign("Out of memory: Kill", r"Out of memory: Kill(?:ed)? process"),
            Sign("OOMKilled", r"OOMKilled"),
            Sign("Signals.SIGKILL", r"(?P<child>Command) [^\n]{0,2000}died with <Signals\.SIGKILL: 9>"),
        ),
        causes=(
            "A process that {whom} had started was killed (SIGKILL), probably because memory ran out.{child:.0}",
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
                "if memory was far below the limit, another user or tool sent SIGKILL: find out "
                "which, then mpijob retry JOB"
            ),
        ),
        example="Worker-1 was terminated by the system, likely due to running out of memory (OOM). The "
        "process was forcibly killed to protect the node.",
        confidence=0.6,
        field="resources.memory",
        yields_to=(
            *("MEMORY_LIMIT", "RANK_KILLED"),
            *("SEGFAULT", "BUS_ERROR", "FLOATING_POINT", "ILLEGAL_INSTRUCTION", "ABORTED"),
        ),
    ),
    Rule(
        id="RANK_KILLED",
        title="Another process killed a rank",
        why="Signal 9 ended a rank although its worker's memory was well below the limit. So the kernel "
        "did not send it because of memory; a user or a process with the same permissions did.",
        facts=("rank-killed",),
        causes=(
            "Another process killed {whom} with {signal_name}; its worker used at most {peak} of {limit}.",
            "Another process killed {whom} with {signal_name}.",
        ),
        remedies=(
            Remedy("run it again: mpijob retry JOB"),
            Remedy("check for tools that kill processes: limits of the shell, a watchdog, a clean-up script"),
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
        title="A memory allocation failed",
        why="The program or its runtime requested memory, and the system denied the request: the address "
        "space limit is reached, or the array is larger than the memory.",
        signs=(
            Sign(
                "MemoryError", r"^(?:\S*[ ])?(?P<error>[\w.]*(?<!OutOf)MemoryError(?:: (?P<detail>[^\n]+))?)$"
            ),
            Sign("std::bad_alloc", r"(?P<error>std::bad_alloc)"),
            Sign("OutOfMemoryError", r"(?P<error>java\.lang\.OutOfMemoryError: (?P<detail>[^\n]{1,100}))"),
            Sign("heap out of memory", r"(?P<error>(?P<detail>[^\n:]{0,80}JavaScript heap out of memory))"),
            Sign(
                "cannot allocate vector",
                r"Error: (?P<error>(?P<detail>cannot allocate vector of size [^\n]{1,40}))",
            ),
            Sign(
                "Allocation would exceed",
                r"Fortran runtime error: (?P<error>(?P<detail>Allocation would exceed memory limit))",
            ),
            Sign(
                "Cannot allocate memory",  # but for locked memory, and for a process that cannot be started
                rf"^(?!{SHARED_MEMORY}|[^\n]*(?:ibv_|mlx\d|[Vv]erbs|UCX|libfabric|locked|NCCL|posix_spawn|fork))"
                r"(?P<error>[^\n]{0,200}Cannot allocate memory)(?!\s*[:.]? ?Please set max locked)",
            ),
            Sign(
                "alloc",
                r"(?P<error>(?!Cannot allocate memory|[^\n]*shared memory)(?:[Ff]ailed|[Uu]nable|[Cc]annot|[Cc]ould not"
                r"|[Nn]ot enough memory\.?|[Ee]rror:?) (?:\S+ ){0,2}?"
                r"(?:m|c|re)?alloc(?:at(?:e|ing))?\b[^\n]{0,60}?(?:memory|\d[\d.]* ?(?:bytes|[kKMGT]i?B"
                r"|elements))[^\n]{0,80})",
            ),
            Sign("request more memory", r"(?P<error>unable to request more memory space)"),
            Sign("nsufficient ", r"(?P<error>[Ii]nsufficient (?:virtual )?memory[^\n]{0,80})"),
            Sign("ot enough memory", r"(?P<error>[Nn]ot enough memory(?! to write)[^\n]{0,120})"),
        ),
        causes=(
            "A memory allocation of {whom} failed: {detail}",
            "A memory allocation of {whom} failed: {error}",
        ),
        remedies=(_HEAP, _MORE, _HALF, _FEWER, _SMALLER),
        field="resources.memory",
        uncaught=True,
    ),
    Rule(
        id="CUDA_OOM",
        title="A GPU ran out of memory",
        why="The model, the optimizer's state and one batch do not fit into the GPU's memory, or "
        "several ranks share one GPU.",
        signs=(
            Sign("out of memory", r"(?:CUDA|HIP)(?: error:)? out of memory"),
            Sign(
                "out of memory",
                r"(?:cuda(?:Malloc|Success|Error|Free)|hipMalloc|CUDA|HIP|GPU)\w*\b[^\n]{0,60}\bout of memory",
            ),
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
                "reduce fragmentation: let the allocator expand its segments",
                {"env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
            ),
            Remedy("halve the batch size"),
            Remedy("use mixed precision, gradient checkpointing or a sharded optimizer"),
            Remedy("use one slot for each GPU of a worker, so that each rank has its own"),
        ),
        uncaught=True,
    ),
    Rule(
        id="LOADER_KILLED",
        title="A data loader process was killed",
        why="A rank starts processes that load data. The kernel killed one of them, nearly always "
        "because memory ran out: each process holds its own copy of the dataset object.",
        signs=(
            Sign(
                "is killed by signal",
                r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal: (?!Bus)(?P<signal_name>\w+)",
            ),
            Sign("exited unexpectedly", r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) exited unexpectedly"),
        ),
        causes=(
            "A data loader process of {whom} was killed ({signal_name}), likely because memory ran out.",
            "A data loader process of {whom} ended unexpectedly, likely because memory ran out.",
        ),
        remedies=(_MORE, Remedy("use fewer data loader processes: num_workers"), _FEWER),
        confidence=0.8,
        field="resources.memory",
        yields_to=("MAIN_GUARD",),
    ),
    Rule(
        id="SHM_FULL",
        title="The shared memory /dev/shm is too small",
        why="Ranks on one worker exchange data through /dev/shm, and data loaders use it too. In a "
        "container its default size is 64 MiB.",
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
