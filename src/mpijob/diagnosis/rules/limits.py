"""Causes in the limits of a process: files, processes, threads."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

RULES = (
    Rule(
        id="TOO_MANY_FILES",
        title="A process has too many files open",
        why="Every process may hold so many files and connections (ulimit -n). A rank reached the limit: data loaders "
        "that keep files open, or a world so large that the connections alone are too many.",
        signs=(Sign("Too many open files", r"Too many open files"),),
        causes=("{who} has too many files open.",),
        remedies=(
            Remedy("raise the limit in the command: bash -c 'ulimit -n 65536; exec PROGRAM'"),
            Remedy("use fewer data loader processes"),
        ),
        confidence=0.9,
        uncaught=True,
    ),
    Rule(
        id="PROCESS_LIMIT",
        title="No more processes or threads may be started",
        why="The pod or the user may have so many processes and threads. Libraries start a thread for each core of the "
        "machine unless they are told otherwise.",
        signs=(
            Sign("fork", r"(?:fork|vfork|posix_spawn)[^\n]{0,60}Resource temporarily unavailable"),
            Sign("start new thread", r"can't start new thread"),
            Sign(
                "pthread_create",
                r"pthread_create (?:failed|failure)[^\n]{0,80}Resource temporarily unavailable",
            ),
            Sign("blas_thread_init", r"blas_thread_init: pthread_create failed"),
            Sign("Thread creation failed", r"libgomp: Thread creation failed"),
        ),
        causes=("{who} could not start another process or thread: the limit is reached.",),
        remedies=(
            Remedy(
                "one thread for each rank",
                {"env": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}},
            ),
            Remedy("run fewer ranks in each worker: {fewer_slots} slots", {"slots": "{fewer_slots}"}),
        ),
        confidence=0.85,
    ),
)
