"""The root of all commands: which one is meant, and with which status it ends.

The commands are in `commands`, imported one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

import click

from mpijob import __version__
from mpijob.cli import exit_codes
from mpijob.cli.context import App
from mpijob.cli.lazy_group import CommandEntry, LazyGroup
from mpijob.cli.options import SETTINGS
from mpijob.cli.output import Format

_RUN, _SEE, _STEER, _MORE, _HELP = "Run", "See", "Steer", "Reuse", "Learn"
_ADMIN, _SERVICE = "Admin", "Services"

ENTRIES: dict[str, CommandEntry] = {
    "create": CommandEntry("submit", _RUN, "Create a job."),
    "run": CommandEntry("submit", _RUN, "Create a job and follow it to its end."),
    "plan": CommandEntry("submit", _RUN, "Show exactly what would run; start nothing."),
    "alloc": CommandEntry("exec", _RUN, "Hold workers for an interactive shell."),
    "array": CommandEntry("array", _RUN, "Create one job for each combination of values."),
    "schedule": CommandEntry(
        "schedule", _RUN, "Run jobs again and again, at times that a cron expression gives."
    ),
    "list": CommandEntry("list", _SEE, "List jobs, newest first.", "list_jobs"),
    "get": CommandEntry("list", _SEE, "Show where jobs stand."),
    "describe": CommandEntry("describe", _SEE, "Show everything known of a job, and what went wrong."),
    "runs": CommandEntry("runs", _SEE, "List all runs of a name and their attempts, newest first."),
    "why": CommandEntry("why", _SEE, "Explain why a job failed, waits or is silent, and how to fix it."),
    "logs": CommandEntry("logs", _SEE, "Print the merged output of launcher, workers and ranks."),
    "events": CommandEntry("logs", _SEE, "Print what happened to a job, in order."),
    "stacks": CommandEntry("stacks", _SEE, "Show where every rank of a running job stands, grouped."),
    "top": CommandEntry(
        "top", _SEE, "Show the CPU, memory and GPUs that workers use, and their ranks' time in MPI."
    ),
    "profile": CommandEntry("profile", _SEE, "Show MPI time, messages and bytes of a job's ranks."),
    "curves": CommandEntry(
        "curves", _SEE, "Show the metrics of a training, how far it is and when it will end."
    ),
    "mlflow": CommandEntry("tracking", _SEE, "Send what trainings tell to an MLflow server."),
    "tensorboard": CommandEntry("tracking", _SEE, "Run TensorBoard for a job."),
    "watch": CommandEntry("watch", _SEE, "Watch jobs live."),
    "ui": CommandEntry("ui", _SEE, "Open the page: create, watch and mend jobs in a browser."),
    "wait": CommandEntry("lifecycle", _SEE, "Wait until jobs have ended, or have reached a phase."),
    "queue": CommandEntry("top", _SEE, "Show which jobs wait, in order, what for, and when each will start."),
    "quota": CommandEntry("top", _SEE, "Show what there is, what is free and what the namespace may use."),
    "bundle": CommandEntry(
        "bundle", _SEE, "Write everything known of a job into one archive, without secrets."
    ),
    "patterns": CommandEntry("patterns", _SEE, "Show which causes made jobs fail, and how often."),
    "audit": CommandEntry("audit", _SEE, "Show who did what to which job, and check that nobody changed it."),
    "network": CommandEntry(
        "network", _SEE, "Measure how fast workers talk to each other, and show who talked to whom."
    ),
    "acct": CommandEntry("acct", _SEE, "Show what ran, how it ended, what it used and what that cost."),
    "trace": CommandEntry(
        "trace", _SEE, "Show how long a job was in each stage of its life, as an OpenTelemetry trace."
    ),
    "artifacts": CommandEntry("artifacts", _SEE, "List and fetch the files that a job left."),
    "cancel": CommandEntry("lifecycle", _STEER, "End jobs with grace; their records stay."),
    "suspend": CommandEntry(
        "lifecycle", _STEER, "End the processes of jobs and keep the jobs to be resumed."
    ),
    "resume": CommandEntry("lifecycle", _STEER, "Queue suspended jobs again."),
    "scale": CommandEntry("lifecycle", _STEER, "Give an elastic job another number of workers."),
    "delete": CommandEntry(
        "delete", _STEER, "End jobs if needed and remove them; their records stay for a while."
    ),
    "retry": CommandEntry("resubmit", _STEER, "Run a finished job again with the same configuration."),
    "exec": CommandEntry(
        "exec", _STEER, "Run a command in a worker, beside a rank or in the launcher.", "execute"
    ),
    "register": CommandEntry("register", _MORE, "Write the model of a job down in the model registry."),
    "data": CommandEntry("data", _MORE, "Fetch and store folders of buckets by their data connections."),
    "clone": CommandEntry("resubmit", _MORE, "Create a copy of a job with changes."),
    "compare": CommandEntry("resubmit", _MORE, "Show how jobs differ: configuration, duration, result."),
    "move": CommandEntry("move", _MORE, "Plan a job on another engine and show every difference."),
    "export": CommandEntry("resubmit", _MORE, "Print a job as a job file."),
    "template": CommandEntry("templates", _MORE, "Save, share and use job templates."),
    "convert": CommandEntry(
        "convert", _MORE, "Convert MPIJobs, TrainJobs, Slurm and PBS scripts to a job, and jobs to them."
    ),
    "image": CommandEntry("image", _MORE, "Look into container images before jobs run in them."),
    "rules": CommandEntry("rules", _HELP, "List the causes that are known, and check rules of your own."),
    "explain": CommandEntry("about", _HELP, "Explain a field of the job file, or a code."),
    "schema": CommandEntry("about", _HELP, "Print the JSON Schema of the job file."),
    "doctor": CommandEntry("about", _HELP, "Check whether this machine, or a cluster, is ready to run jobs."),
    "mpi": CommandEntry("about", _HELP, "List and install MPI families."),
    "completion": CommandEntry("about", _HELP, "Print the completion script of a shell."),
    "version": CommandEntry("about", _HELP, "Print the version."),
    "admin": CommandEntry("admin", _ADMIN, "Set what namespaces may do, and see the whole cluster."),
    "runtimes": CommandEntry(
        "runtimes", _ADMIN, "List, check, install and try runtimes for TrainJobs of a cluster."
    ),
    "record": CommandEntry(
        "archive", _ADMIN, "Back the record of jobs up, put it back, erase a person's part of it."
    ),
    "recorder": CommandEntry(
        "services", _SERVICE, "Record the jobs of a cluster, so that they are known when they are gone."
    ),
    "controller": CommandEntry(
        "services", _SERVICE, "Tend the jobs of a cluster when nobody waits for them."
    ),
    "webhook": CommandEntry(
        "services", _SERVICE, "Judge jobs when they reach a cluster: limits, quota, owners, secrets."
    ),
    "operator": CommandEntry(
        "services", _SERVICE, "Keep the platform of a cluster as its MPIJobPlatform says."
    ),
    "broker": CommandEntry("services", _SERVICE, "Tell users of a cluster whether their jobs would start."),
    "notifier": CommandEntry(
        "services",
        _SERVICE,
        "Call the webhooks of the settings when jobs change: signed, again until they answer.",
    ),
    "exporter": CommandEntry(
        "services", _SERVICE, "Answer Prometheus: jobs, stages, failures, queues, what workers use."
    ),
}


class Root(LazyGroup):
    """The root of all commands; it alone decides the exit status."""

    entries = ENTRIES
    aliases = {"ls": "list", "runtime": "runtimes", "history": "acct", "sacct": "acct"}

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run one command line and end the process with its status."""
        words = list(sys.argv[1:] if args is None else args)
        app = extra.setdefault("obj", App()) or App()
        extra["obj"] = app
        app.called(prog_name or app.program)
        app.out.format = Format.JSON if _wants_json(words) else app.out.format
        sys.exit(self._status(app, words, prog_name, complete_var, extra))

    def _status(
        self,
        app: App,
        words: list[str],
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        try:
            ended = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        except Exception as error:  # the outermost place: whatever it is, the user gets a sentence
            return exit_codes.told(app.out, error, app.program)
        return (
            ended if isinstance(ended, int) else exit_codes.OK
        )  # click returns the status of ctx.exit(status)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of our output who has gone ends it quietly."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            ctx.find_object(App).out.silence()  # type: ignore[union-attr]  # the root always has one
            return None
        return result

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes under the help."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes.MEANINGS.items()])


@click.group(cls=Root, context_settings=SETTINGS, no_args_is_help=True)
@click.version_option(__version__, "--version", message="mpijob %(version)s")
def cli() -> None:
    """Run MPI jobs: one launcher, N workers, one spec for this machine and a cluster."""


def _wants_json(words: list[str]) -> bool:
    """Return whether JSON was asked for, also in a command line that cannot be parsed."""
    own = words[: words.index("--")] if "--" in words else words
    return any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(own)) or any(
        word in ("-ojson", "--output=json") for word in own
    )
