"""Causes around batch systems other than Slurm, and what a batch script sets up: modules and containers."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

RULES = (
    Rule(
        id="BATCH_TIME_LIMIT",
        title="The batch system ended the job at its time limit",
        why="Every batch job has a time limit: walltime (PBS), -W (LSF), h_rt (Grid Engine), "
        "--time-limit (Flux). The job was still running at this limit, and the batch system ended it.",
        signs=(
            Sign(
                "PBS: job killed: walltime",
                r"PBS: job killed: walltime (?P<used>\d+) exceeded limit (?P<limit_seconds>\d+)",
            ),
            Sign("TERM_RUNLIMIT", r"TERM_RUNLIMIT: (?P<detail>[^\n]{4,120})"),
            Sign(
                "exceeded hard wallclock time",
                r"(?P<detail>job \d+[^\n]{0,60}exceeded hard wallclock time[^\n]{0,60})",
            ),
            Sign("resource allocation expired", r"(?P<detail>resource allocation expired)"),
        ),
        causes=(
            "The batch system ended the job at its time limit of {limit_seconds} s.",
            "The batch system ended the job at its time limit: {detail}",
        ),
        example="The batch system ended the job at its time limit of 3600 s.",
        remedies=(
            Remedy("request more time: #PBS -l walltime=…, #BSUB -W …, #$ -l h_rt=…, flux: --time-limit=…"),
            Remedy("write checkpoints, and start the next job from the last one"),
        ),
        confidence=0.85,
        field="deadline_seconds",
    ),
    Rule(
        id="BATCH_CANCELLED",
        title="The batch job was cancelled",
        why="The owner, an administrator (qdel, bkill) or the scheduler (for a job of higher priority) "
        "ended the job.",
        signs=(
            Sign(
                "TERM_",
                r"(?P<detail>TERM_(?:OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN|PREEMPT|REQUEUE_\w+): [^\n]{4,120})",
            ),
            Sign("PBS: job killed:", r"PBS: job killed: (?P<detail>(?!walltime|mem|vmem)[^\n]{4,120})"),
        ),
        causes=("The batch job was cancelled: {detail}",),
        example="The batch job was cancelled: TERM_OWNER: job killed by owner.",
        remedies=(
            Remedy(
                "see who ended it: tracejob JOBID (PBS), bhist -l JOBID (LSF), qacct -j JOBID (Grid Engine)"
            ),
            Remedy("submit it again"),
        ),
        confidence=0.8,
        yields_to=("BATCH_TIME_LIMIT", "OOM_KILLED"),
    ),
    Rule(
        id="MODULE_NOT_FOUND",
        title="An environment module does not exist",
        why="The batch script loads a module that this system does not have under that name or version, or the module "
        "command is not set up in the shell of the job. Programs that the module provides are then missing, too.",
        signs=(
            Sign(
                "module(s) are unknown",
                r"The following module\(s\) are unknown: \"(?P<module>[^\"\n]{1,120})\"",
            ),
            Sign(
                "module(s) exist but cannot be loaded",
                r"These module\(s\)(?: or extension\(s\))? exist but cannot be loaded as requested: "
                r"\"(?P<blocked>[^\"\n]{1,120})\"",
            ),
            Sign("locate a modulefile for", r"Unable to locate a modulefile for '(?P<module>[^'\n]{1,120})'"),
            Sign(  # the shell goes on: what fails by itself afterwards is another matter
                "module: ",
                r"^(?:\S+[ ])?\S*: (?:line )?\d+: (?P<command>module): (?:command )?not found$"
                r"(?![\s\S]*(?:\n(?:\S+ )?Traceback|\r|\\r'))",
                code=127,
            ),
        ),
        causes=(
            "The module {module} does not exist on this system.",
            "The module {blocked} exists, but another module must be loaded first.",
            "The job's shell has no module command.",
        ),
        remedies=(
            Remedy("check its name and version: module spider {module}"),
            Remedy("load the modules that it needs first: module spider {blocked}"),
            Remedy(
                "define the {command} command first: source /etc/profile.d/modules.sh, or start the script "
                "with bash -l"
            ),
            Remedy("list the modules of this system: module avail"),
        ),
        confidence=0.85,
        field="command",
    ),
    Rule(
        id="CONTAINER_FAILED",
        title="The container could not be started",
        why="Apptainer, Docker, Podman or enroot could not prepare the container: the image, a "
        "mount or a device is not "
        "there, or not allowed. The program inside it did not start.",
        signs=(
            Sign("FATAL: ", r"^(?:\S+[ ])?FATAL:[ ]{2,}(?P<detail>[^\n]{4,240})"),
            Sign("Error response from daemon:", r"Error response from daemon: (?P<detail>[^\n]{4,300})"),
            Sign(
                "OCI runtime",
                r"(?:OCI runtime (?:create|exec) failed|OCI runtime error): (?P<detail>[^\n]{4,300})",
            ),
            Sign(
                "pyxis: ",
                r"slurmstepd: error: pyxis: (?P<detail>(?!printing)[^\n]{4,160}"
                r"(?:[\s\S]{0,400}?\[ERROR\][ ][^\n]{4,200})?)",
            ),
            Sign("enroot", r"^\[ERROR\] (?P<detail>[^\n]{4,200})(?=[\s\S]{0,400}enroot)"),
        ),
        causes=("The container could not be started: {detail}",),
        example="The container could not be started: could not open image /home/u/app.sif: no such file or directory",
        remedies=(
            Remedy(
                "check that the image, the mounted folders and the devices exist on the node where it runs"
            ),
            Remedy("run it manually on that node with the same options and --debug"),
        ),
        confidence=0.8,
        field="image",
        yields_to=(
            "NO_GPU",
            "MISSING_EXECUTABLE",
            "NOT_EXECUTABLE",
            "IMAGE_REFUSED",
            "IMAGE_PULL_FAILED",
            "IMAGE_NOT_FOUND",
        ),
    ),
)
