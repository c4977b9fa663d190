"""A job as a PBS script, with a report on every field that it sets; `header/pbs` is the inverse."""

from __future__ import annotations

import shlex

from mpijob.formats.convert.export_slurm import Writer, word
from mpijob.formats.convert.header import units
from mpijob.formats.convert.report import FieldEntry
from mpijob.model import MPIJob
from mpijob.model.spec.command import own_launcher

_KIB = 1024


def write(job: MPIJob, script: str | None = None) -> tuple[str, tuple[FieldEntry, ...]]:
    """Return the job's script and the report; `script` is the text of the job's own script."""
    return _Writer(job).script(script)


class _Writer(Writer):
    """Writes one script for qsub: its directives, and the launch with mpiexec."""

    system, submit, directive = "PBS", "qsub", "#PBS"
    name_variable, array_variable, array_option = "PBS_JOBNAME", "PBS_ARRAY_INDEX", "-J 1-10"

    def _arguments(self, words: str) -> tuple[str, str]:
        return "qsub takes them after --", f"qsub -- FILE {words}, if the site's PBS supports it"

    def _shape(self) -> list[str]:
        job = self.job
        self.cores = self._cores()
        parts = [f"select={job.workers}", f"ncpus={self.cores * job.slots}", f"mpiprocs={job.slots}"]
        if self.cores > 1:
            parts.append(f"ompthreads={self.cores}")
        for field in ("workers", "slots"):
            self._exact(field, "-l select")
        self._exact("name", "-N")
        memory = -(-job.resources.memory_bytes // _KIB)
        if memory:
            parts.append(f"mem={memory}kb")
        if job.resources.memory_bytes % _KIB:
            self._changed("resources.memory", "-l select", f"rounded up to {memory}kb")
        self._exact("resources.memory", "-l select", "the limit of a worker becomes the limit of a chunk")
        if job.resources.gpu:
            parts.append(f"ngpus={job.resources.gpu}")
            self._exact("resources.gpu", "-l select")
        if job.ranks is not None and not job.programs:
            note = f"mpiexec starts {job.ranks} ranks; the chunks have slots for {job.workers * job.slots}"
            self._changed("ranks", "mpiexec -n", note)
        return [f"-N {word(job.env.get(self.name_variable, job.name))}", f"-l {':'.join(parts)}"]

    def _limits(self) -> list[str]:
        job, lines = self.job, []
        if job.deadline_seconds is not None:
            lines.append(f"-l walltime={units.clock(job.deadline_seconds)}")
            if job.deadline_seconds != int(job.deadline_seconds):
                self._changed("deadline_seconds", "-l walltime", "rounded up to whole seconds")
            self._exact("deadline_seconds", "-l walltime", "PBS counts it from the start of the job")
        if job.retry.limit or job.requeue_on_lost_worker:
            lines.append("-r y")
            note = "PBS restarts a job after a node failure, but not after a failure of the job"
            for field in ("retry.limit", "requeue_on_lost_worker"):
                self._changed(field, "-r y", note)
        return lines

    def _places(self) -> list[str]:
        job, lines = self.job, []
        if job.queue:
            lines.append(f"-q {word(job.queue)}")
            self._changed("queue", "-q", "the site must have a queue of this name")
        account = job.cost.get("account")
        if account and set(job.cost) == {"account"}:
            lines.append(f"-A {word(account)}")
            self._changed("cost", "-A", "the account must exist at the site")
        return lines

    def _launch(self) -> list[str]:
        job = self.job
        own_one = own_launcher(job.argv)
        if any(program.env for program in job.programs):
            note = "variables of a single program are not exported"
            self._changed("programs", "mpiexec", note, "set such variables in the program")
        for field in ("command", "args", "programs"):
            self._exact(field, "mpiexec" if own_one is None else "")
        self._dropped(
            "mpi",
            "mpiexec of the site is used; it must match the program's MPI library",
            "load the site's MPI module",
        )
        lines = ['cd "$PBS_O_WORKDIR"']
        if own_one is not None:
            return [*lines, shlex.join(job.argv)]
        parts = [(program.ranks, (*program.command, *program.args)) for program in job.programs] or [
            (job.world, job.argv)
        ]
        return [*lines, "mpiexec " + " : ".join(f"-n {ranks} {shlex.join(argv)}" for ranks, argv in parts)]
