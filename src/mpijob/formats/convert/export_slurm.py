"""A job as a Slurm batch script, with a report on every field that it sets; `batch_script` is the inverse.

Fields that Slurm has become directives or options of srun. A job's own script is kept unchanged below the directives.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from mpijob.formats.convert import own_exports
from mpijob.formats.convert.header import lines, units
from mpijob.formats.convert.report import FieldEntry, Notes
from mpijob.model import Family, MPIJob
from mpijob.model.spec.command import own_launcher

_PLAIN = re.compile(r"[-\w./:,@%+]+")
_IN_TABLE = re.compile(r"[-\w./:=,@+]+")
_MPI = {Family.OPENMPI: "pmix", Family.MPICH: "pmi2", Family.INTEL: "pmi2"}
_BIND = {"core": "cores", "hwthread": "threads", "socket": "sockets", "numa": "ldoms", "none": "none"}
_MIB = 1024**2
_EOF, _TABLE = "MPIJOB_END", "programs.conf"


def write(job: MPIJob, script: str | None = None) -> tuple[str, tuple[FieldEntry, ...]]:
    """Return the job's batch script and the report; `script` is the text of the job's own script."""
    return Writer(job).script(script)


class Writer:
    """Writes one script, and reports every field that the job sets once."""

    system, submit, directive = "Slurm", "sbatch", "#SBATCH"
    name_variable, array_variable, array_option = "SLURM_JOB_NAME", "SLURM_ARRAY_TASK_ID", "--array=1-10"

    def __init__(self, job: MPIJob) -> None:
        self.job = job
        self.notes = Notes()
        self.unreported = own_exports.fields(job)
        self.cores = 1

    def script(self, script: str | None) -> tuple[str, tuple[FieldEntry, ...]]:
        """Return the text and the report; `script` is the text of the job's own script."""
        text = self._with_own_script(script) if self.job.script else self._text()
        return text, tuple(self.notes.entries)

    def _text(self) -> str:
        head = self._head()
        body = [*self._files(), *self._variables(), *self._launch()]
        self._rest()
        return "\n".join(["#!/bin/bash", *head, "", *body]) + "\n"

    def _with_own_script(self, script: str | None) -> str:
        """Return the job's own script below our directives and without its old ones."""
        first = script.split("\n", 1)[0] if script is not None else ""
        shell = first if first.startswith("#!") else "#!/bin/bash"
        head, variables = self._head(), self._variables()
        if script is None:
            todo = (
                f"run it in the script's directory: mpijob convert JOB.yaml --to {self.directive[1:].lower()}"
            )
            self.notes.dropped(
                "script", self.unreported.pop("script"), "the script file was not found", todo, blocks=True
            )
        else:
            self._exact("script", "the lines below the directives")
        if self.job.args:
            self._changed("args", "", *self._arguments(shlex.join(self.job.args)))
        if "csh" in shell:
            variables = [re.sub(r"^export (\w+)=", r"setenv \1 ", line) for line in variables]
        files = self._files(besides=self.job.script)
        self._dropped(
            "mpi",
            "the script uses the MPI library that its program was built with",
            "load the site's MPI module",
        )
        self._rest()
        return "\n".join([shell, *head, *files, *variables, lines.body(script or "")])

    def _arguments(self, words: str) -> tuple[str, str]:
        return "sbatch takes them on its command line", f"sbatch FILE {words}"

    def _head(self) -> list[str]:
        return [f"{self.directive} {one}" for one in (*self._shape(), *self._limits(), *self._places())]

    def _exact(self, field: str, ours: str, note: str = "") -> None:
        if field in self.unreported:
            self.notes.exact(field, self.unreported.pop(field), ours, note)

    def _changed(self, field: str, ours: str, note: str, todo: str = "") -> None:
        if field in self.unreported:
            self.notes.changed(field, self.unreported.pop(field), ours, note, todo)

    def _dropped(self, field: str, note: str, todo: str) -> None:
        if field in self.unreported:
            self.notes.dropped(field, self.unreported.pop(field), note, todo)

    def _shape(self) -> list[str]:
        job = self.job
        name = job.env.get(self.name_variable, job.name)
        lines = [f"--job-name={word(name)}", f"--nodes={job.workers}", f"--ntasks-per-node={job.slots}"]
        self._exact("name", "--job-name")
        self._exact("workers", "--nodes")
        self._exact("slots", "--ntasks-per-node")
        if job.ranks is not None and not job.programs:
            lines.append(f"--ntasks={job.ranks}")
            self._exact("ranks", "--ntasks")
        self.cores = self._cores()
        lines.append(f"--cpus-per-task={self.cores}")
        memory = -(-job.resources.memory_bytes // _MIB)
        if not job.script or "resources.memory" in self.unreported:
            lines.append(f"--mem={memory}M")
        if job.resources.memory_bytes % _MIB:
            self._changed("resources.memory", "--mem", f"rounded up to {memory}M")
        else:
            self._exact("resources.memory", "--mem", "the limit of a worker becomes the limit of a node")
        if job.resources.gpu:
            lines.append(f"--gres=gpu:{job.resources.gpu}")
            self._exact("resources.gpu", "--gres")
        self._dropped("resources.gpu_kind", "GPU names are specific to the site", "write --gres=gpu:TYPE:N")
        self._dropped(
            "resources.others", "these resources exist only on that cluster", "use a --gres name of the site"
        )
        return lines

    def _cores(self) -> int:
        job = self.job
        whole = job.cores_per_rank * job.slots
        if job.resources.cores == whole:
            self._exact("resources.cpu", "--cpus-per-task")
        elif job.cores_per_rank > 1 or job.resources.cores < job.slots:
            note = f"Slurm counts cores per rank: {job.slots} ranks × {job.cores_per_rank}"
            self._changed("resources.cpu", "--cpus-per-task", note)
        else:
            cores = max(1, int(job.resources.cores // job.slots))
            self._changed("resources.cpu", "--cpus-per-task", f"Slurm counts cores per rank: {cores} each")
            return cores
        self._exact("cores_per_rank", "--cpus-per-task")
        return job.cores_per_rank

    def _limits(self) -> list[str]:
        job, lines = self.job, []
        if job.deadline_seconds is not None:
            lines.append(f"--time={units.clock(job.deadline_seconds)}")
            if job.deadline_seconds == int(job.deadline_seconds):
                self._exact(
                    "deadline_seconds",
                    "--time",
                    "Slurm counts it from the start of the job, in whole minutes",
                )
            else:
                self._changed("deadline_seconds", "--time", "rounded up to whole seconds")
        if job.signal.seconds_before > 0 or "signal.name" in self.unreported:
            name = job.signal.name.removeprefix("SIG")
            lines.append(f"--signal={name}@{int(job.signal.seconds_before)}")
            fits = job.signal.seconds_before == int(job.signal.seconds_before) and name == job.signal.name
            for field in ("signal.name", "signal.seconds_before"):
                self._exact(field, "--signal") if fits else self._changed(
                    field, "--signal", "in Slurm's notation"
                )
        if job.retry.limit or job.requeue_on_lost_worker:
            lines.append("--requeue")
            note = (
                "Slurm restarts a job after a node failure or preemption, but not after a failure of the job"
            )
            for field in ("retry.limit", "requeue_on_lost_worker"):
                self._changed(
                    field,
                    "--requeue",
                    note,
                    "to retry failures, call scontrol requeue $SLURM_JOB_ID in the script",
                )
        return lines

    def _places(self) -> list[str]:
        job, lines = self.job, []
        if job.queue:
            lines.append(f"--partition={word(job.queue)}")
            self._changed("queue", "--partition", "the site must have a partition of this name")
        if job.placement.exclude_nodes:
            lines.append(f"--exclude={word(','.join(job.placement.exclude_nodes))}")
            self._changed("placement.exclude_nodes", "--exclude", "the site has other node names")
        if job.description and "\n" not in job.description:
            lines.append(
                f"--comment={shlex.quote(job.description)}" if "'" not in job.description else "--comment="
            )
            self._exact("description", "--comment") if "'" not in job.description else None
        account = job.cost.get("account")
        if account and set(job.cost) == {"account"}:
            lines.append(f"--account={word(account)}")
            self._changed("cost", "--account", "the account must exist at the site")
        return [line for line in lines if not line.endswith("=")]

    def _files(self, besides: str = "") -> list[str]:
        lines: list[str] = []
        files = {name: text for name, text in self.job.code.files.items() if name != besides}
        for name, text in files.items():
            end = _EOF
            while end in text:
                end += "_"
            folder = name.rpartition("/")[0]
            lines += [f"mkdir -p {shlex.quote(folder)}"] if folder else []
            lines += [f"cat > {shlex.quote(name)} <<'{end}'", text.rstrip("\n"), end]
        if not files:
            self.unreported.pop("code.files", None)
        note = f"they are written into the directory where {self.submit} is called, and replace files of these names"
        self._changed("code.files", "here-documents", note)
        self._changed(
            "code.path",
            "",
            f"{self.submit} runs the job in the directory in which it is called",
            "call it in that directory",
        )
        for field in ("code.include", "code.exclude"):
            self._changed(field, "", "nothing is copied, because the directory is shared")
        return lines

    def _variables(self) -> list[str]:
        env = dict(self.job.env)
        in_array = env.pop(self.array_variable, None) is not None
        theirs = [name for name in env if name.startswith(self.name_variable.partition("_")[0] + "_")]
        env = {name: value for name, value in env.items() if name not in theirs}
        lines = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
        if in_array:
            note = f"{self.system} sets it for each task of an array"
            self._changed(
                "env",
                self.array_option,
                note,
                f"pass the values: {self.submit} {self.array_option} FILE",
            )
        elif theirs:
            self._changed("env", "export", f"{self.system} sets {', '.join(theirs)} itself")
        else:
            self._exact("env", "export")
        for secret in self.job.secrets:
            kind, _, where = secret.source.partition(":")
            if kind == "env":
                lines.append(f'export {secret.env}="${{{where}:?set {where} before calling {self.submit}}}"')
            elif kind == "file":
                lines.append(f'export {secret.env}="$(cat {shlex.quote(where)})"')
        self._changed(
            "secrets",
            "export",
            "the files are read on the first node when the job starts",
            "Secrets exist only on a cluster; read the values from a file",
        )
        settings = self.job.launch.settings
        lines += [f"export {_setting(key)}={shlex.quote(value)}" for key, value in settings.items()]
        self._changed("launch.settings", "export", "set as environment variables")
        return lines

    def _launch(self) -> list[str]:
        job = self.job
        srun = ["srun", *self._layout()]
        # Since Slurm 22.05 srun does not inherit --cpus-per-task from sbatch.
        if self.cores > 1:
            srun.append(f"--cpus-per-task={self.cores}")
        if job.programs:
            return self._programs(srun)
        own_one = own_launcher(job.argv)
        words = shlex.join(job.argv)
        for field in ("command", "args"):
            self._exact(field, "srun" if own_one is None else "")
        if own_one is not None:
            return [words]
        return [" ".join([*srun, words])]

    def _programs(self, srun: list[str]) -> list[str]:
        """Return the file for several programs and the line that starts them."""
        several = self.job.programs
        argvs = [(*job.command, *job.args) for job in several]
        unreported = [all(_fits_table(word) for word in argv) for argv in argvs]
        lines: list[str] = []
        for index, argv in enumerate(argvs):
            if not unreported[index]:
                name = self._free(f"program-{index}.sh")
                lines += [f"cat > {name} <<'{_EOF}'", f"exec {shlex.join(argv)}", _EOF]
                argvs[index] = ("bash", name)
        if all(unreported) and not any(job.env for job in several):
            self._exact("programs", "srun --multi-prog")
        else:
            note = (
                "arguments with special characters go into scripts; variables of one program are not exported"
            )
            self._changed("programs", "srun --multi-prog", note, "set such variables in the program")
        table = _table([(one.ranks, argv) for one, argv in zip(several, argvs, strict=True)])
        name, ranks = self._free(_TABLE), sum(job.ranks for job in several)
        lines += [f"cat > {name} <<'{_EOF}'", table.rstrip("\n"), _EOF]
        return [*lines, " ".join([*srun, f"--ntasks={ranks}", "--multi-prog", name])]

    def _free(self, name: str) -> str:
        while name in self.job.code.files:
            name = f"_{name}"
        return name

    def _layout(self) -> list[str]:
        launch, words = self.job.launch, []
        if self.job.mpi in _MPI:
            words.append(f"--mpi={_MPI[self.job.mpi]}")
            self._changed("mpi", "srun --mpi", "this MPI library must be loaded first", "module load …")
        self._dropped(
            "mpi", "srun uses the MPI library that the program was built with", "load the site's MPI module"
        )
        word = {"slot": "block", "node": "cyclic"}.get(launch.map_by)
        if word:
            words.append(f"--distribution={word}")
            self._exact("launch.map_by", "srun --distribution")
        if launch.bind_to in _BIND:
            words.append(f"--cpu-bind={_BIND[launch.bind_to]}")
            self._exact("launch.bind_to", "srun --cpu-bind")
        if launch.stdin:
            words.append(f"--input={shlex.quote(launch.stdin)}")
            self._changed("launch.stdin", "srun --input", "with srun every rank reads it")
        if "--oversubscribe" in launch.flags:
            words.append("--overcommit")
            if launch.flags == ("--oversubscribe",):
                self._exact("launch.flags", "srun --overcommit")
        return words

    def _rest(self) -> None:
        for field in list(self.unreported):
            note, todo = _GONE.get(
                field,
                _GONE.get(
                    field.partition(".")[0],
                    (f"{self.system} has no equivalent", "check whether the job needs it"),
                ),
            )
            self._dropped(field, note, todo)


def _setting(key: str) -> str:
    return key if key.isupper() else f"OMPI_MCA_{key}"


def _table(commands: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Return the file for `srun --multi-prog` from (ranks, words), by rank."""
    found, first = [], 0
    for ranks, words in commands:
        last = first + ranks - 1
        span = f"{first}-{last}" if last > first else str(first)
        found.append(
            " ".join([span, *(word if _IN_TABLE.fullmatch(word) else f"'{word}'" for word in words)])
        )
        first = last + 1
    return "\n".join(found) + "\n"


def _fits_table(word: str) -> bool:
    """Return whether the file can contain a word: srun supports single quotes only (tested with 22.05)."""
    return word != "" and not any(letter in word for letter in "%\\\n'\"")


def word(text: str) -> str:
    """Return a directive's value, quoted if necessary."""
    return text if _PLAIN.fullmatch(text) else shlex.quote(text)


_CLUSTER = "applies only to a cluster"
# Fields without an equivalent, in the terms of most batch systems.
_GONE = {
    "image": (
        "programs installed at the site are used",
        "build the program at the site, or run this image with the site's container tool",
    ),
    "namespace": (_CLUSTER, "nothing"),
    "volumes": ("the site's directories are used", "check that each directory exists at the site"),
    "pull_secrets": (_CLUSTER, "nothing"),
    "pull_policy": (_CLUSTER, "nothing"),
    "after": (
        "Slurm identifies jobs by number",
        "submit that job first, then this one with --dependency=afterok:NUMBER",
    ),
    "launcher": ("srun needs no such settings", "nothing"),
    "priority": ("Slurm computes priorities itself", "use --qos"),
    "placement": ("node labels exist only on a cluster", "use --constraint or --nodelist"),
    "labels": ("Slurm has no labels", "nothing, or --comment"),
    "owner": ("the owner is the user who calls sbatch", "nothing"),
    "cost": ("Slurm has only one account per job", "use --account"),
    "retention": ("the site decides how long records are kept", "keep the output files"),
    "gang_timeout_seconds": ("a job always starts with all its nodes", "nothing"),
    "grace_seconds": ("the site sets how long a job may take to stop (KillWait)", "nothing"),
    "keep_on_failure_seconds": ("resources of a failed job are released immediately", "nothing"),
    "census": ("srun does not check the number of ranks", "nothing"),
    "profile_mpi": ("only mpijob can count MPI calls", "use the site's own tool, such as mpiP or IPM"),
    "model": (
        "there is no model registry at the site",
        "run mpijob register afterwards, or use the registry's client",
    ),
}
