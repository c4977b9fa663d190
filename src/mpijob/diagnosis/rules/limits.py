"""Causes in the limits of a process: files, processes, threads."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

RULES = (
    Rule(
        id="TOO_MANY_FILES",
        title="A process has too many files open",
        why="The number of open files and sockets of a process is limited (ulimit -n). A rank or the "
        "launcher reached the limit: data loaders that keep files open, or too many connections "
        "between ranks.",
        signs=(
            Sign("Too many open files", r"Too many open files(?:: '(?P<path>[^'\n]{1,200})')?"),
            Sign(
                "number of files",
                r"[Ss]ystem limit exceeded on number of (?:files|open files|network connections)",
            ),
            Sign("number of pipes", r"system limit (?:exceeded )?on (?:the )?number of pipes"),
            Sign("file descriptors", r"(?:out of|not enough|too many|exceeded)[^\n]{0,40} file descriptors"),
            Sign("EMFILE", r"\bEMFILE\b"),
            Sign("items of ancdata", r"received 0 items of ancdata"),
            Sign("PMIX_ERR_SYS_LIMITS", r"PMIX_ERR_SYS_LIMITS_(?:PIPES|FILES)"),
        ),
        causes=("{who} reached the limit on open files (ulimit -n).",),
        remedies=(
            Remedy("raise the limit of each rank to the system's maximum", {"command": "{with_files}"}),
            Remedy("raise the limit in the command: bash -c 'ulimit -n 65536; exec PROGRAM'"),
            Remedy("use fewer data loader processes"),
        ),
        confidence=0.9,
        uncaught=True,
    ),
    Rule(
        id="FILE_SIZE_LIMIT",
        title="A file exceeded the limit on file size",
        why="A file became larger than the user's limit (ulimit -f) or the file system allows.",
        signs=(
            Sign("File too large", r"File too large(?:: '(?P<path>[^'\n]{1,200})')?"),
            Sign("File size limit exceeded", r"File size limit exceeded(?! \(signal)"),
        ),
        causes=(
            "{who} wrote more to {path} than the file size limit allows (ulimit -f).",
            "{who} wrote a file larger than the file size limit allows (ulimit -f).",
        ),
        remedies=(Remedy("raise the limit in the command: bash -c 'ulimit -f unlimited; exec PROGRAM'"),),
        confidence=0.85,
        uncaught=True,
    ),
    Rule(
        id="PROCESS_LIMIT",
        title="The limit on processes or threads is reached",
        why="The number of processes and threads of a pod, job or user is limited. By default "
        "libraries start one thread for each core of the machine, in every rank.",
        signs=(
            Sign("fork", r"(?:fork|vfork|posix_spawn)[^\n]{0,60}Resource temporarily unavailable"),
            Sign("number of processes", r"system limit exceeded on number of processes that can be started"),
            Sign("number of children", r"system limit on number of children a process can have was reached"),
            Sign("start new thread", r"can't start new thread"),
            Sign(
                "pthread_create",
                r"pthread_create(?:\(\))? (?:failed|failure)[^\n]{0,80}Resource temporarily unavailable",
            ),
            Sign("blas_thread_init", r"blas_thread_init: pthread_create failed"),
            Sign("Thread creation failed", r"libgomp: Thread creation failed"),
            Sign("OpenBLAS", r"OpenBLAS[^\n]{0,80}(?:pthread_create|RLIMIT_NPROC)"),
            Sign("retry: Resource temporarily", r"fork: retry: Resource temporarily unavailable"),
            Sign(" limit", r"(?:pids|process|thread) limit[^\n]{0,40}(?:reached|exceeded)"),
        ),
        causes=("{who} could not start another process or thread: the limit is reached.",),
        remedies=(
            Remedy(
                "use one thread for each rank",
                {"env": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}},
            ),
            Remedy("run fewer ranks in each worker: {fewer_slots} slots", {"slots": "{fewer_slots}"}),
        ),
        confidence=0.85,
    ),
)
