"""The commands create, run and plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpijob.cli import exit_codes, multi_job
from mpijob.cli.arguments.flags import job_flags
from mpijob.cli.arguments.job_args import JobArguments, TakesCommand, given_options
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command
from mpijob.cli.output import Format
from mpijob.cli.render import job_table
from mpijob.model import MPIJob, Plan
from mpijob.observation.redaction.masking import masked_plan

if TYPE_CHECKING:
    from mpijob.client import Job


@command("create", cls=TakesCommand)
@given_options
@job_flags
@click.option("--dry-run", is_flag=True, help="Show the plan without creating anything.")
@click.option("--server", is_flag=True, help="With --dry-run: also run a server-side dry run.")
@pass_app
def create(app: App, dry_run: bool, server: bool, **given: Any) -> None:
    """Create a job.

    Give NAME and a command after `--`, a job file with -f, or a SCRIPT. Flags override the file. Repeat -f,
    or use a file with several jobs, to create all of them. A Slurm, PBS, LSF or shell SCRIPT runs
    unchanged: its header sets the rest, flags override the header, and the words after `--` are its
    arguments.
    """
    if server and not dry_run:
        raise click.UsageError("--server requires --dry-run")
    asked = JobArguments.each(app, given)
    if several := multi_job.jobs_of(asked):
        _create_several(app, several, dry_run=dry_run)
        return
    if dry_run:
        _show_plan(app, _planned(app, asked[0], server=server))
        return
    state = _submitted(app, asked[0]).state()
    if app.out.structured:
        app.out.value(state)
    elif app.out.format is Format.NAME:
        app.out.line(state.ref.name)
    else:
        app.out.line(job_table.phase_line(state))
        app.out.note(f"follow it: {app.words(state.ref, 'logs -f')}")


@command("run", outputs=(Format.TABLE, Format.JSON), cls=TakesCommand)
@given_options
@job_flags
@click.option("--rm", "remove", is_flag=True, help="Delete the job when it ends.")
@click.option("--raw", is_flag=True, help="Print the job's output unchanged, including control characters.")
@click.option("--no-prefix", is_flag=True, help="Do not prefix lines with the rank.")
@click.option("--timestamps", is_flag=True, help="Prefix each line with its time.")
@pass_app
def run(app: App, remove: bool, raw: bool, no_prefix: bool, timestamps: bool, **given: Any) -> None:
    """Create a job and follow its output to the end.

    Give a command after `--`, a SCRIPT or a job file. A Slurm, PBS, LSF or shell SCRIPT runs unchanged: its
    header sets workers, memory and time, flags override the header, and the words after `--` are its
    arguments. Without NAME, the job is named after its program.

    Press Ctrl-C to detach: the job keeps running. Press it again within 2 s to cancel the job. The exit
    status is 1 if the job fails. Repeat -f to run several jobs.
    """
    from mpijob.cli.follow import FollowedState, Follower

    asked = JobArguments.each(app, given, nameless=True)
    look = FollowedState(raw=raw, prefix=not no_prefix, timestamps=timestamps)
    if several := multi_job.jobs_of(asked):
        multi_job.follow(app, multi_job.submit(app, several), look, stays=not remove)
        return
    handle = _submitted(app, asked[0])
    with app.client.reconciling(handle.ref):
        state = Follower(app, handle, look, stays=not remove).to_the_end()
    if remove:
        app.client.delete(handle.ref)
    exit_codes.end(exit_codes.after(state.phase))


@command("plan", outputs=(Format.TABLE, Format.JSON, Format.YAML), cls=TakesCommand)
@given_options
@job_flags
@click.option("--server", is_flag=True, help="Also run a server-side dry run.")
@pass_app
def plan(app: App, server: bool, **given: Any) -> None:
    """Show exactly what would run, without starting it."""
    asked = JobArguments.each(app, given, nameless=True)
    if several := multi_job.jobs_of(asked):
        _create_several(app, several, dry_run=True)
        return
    _show_plan(app, _planned(app, asked[0], server=server))


def _create_several(app: App, jobs: tuple[MPIJob, ...], *, dry_run: bool) -> None:
    from mpijob.client.submit import dependency_graph

    if not dry_run:
        multi_job.show(app, multi_job.submit(app, jobs))
        return
    for job in dependency_graph.ordered(jobs):
        _show_plan(app, app.client.plan(dependency_graph.alone(job, jobs)))


def _planned(app: App, asked: JobArguments, *, server: bool) -> Plan:
    job = asked.job()
    with asked.located(), app.out.progress("reading the free capacity …"):
        return app.client.plan(job, server=server)


def _submitted(app: App, asked: JobArguments) -> Job:
    job = asked.job()
    with asked.located(), app.out.progress(f"submitting {job.name} …"):
        return app.client.submit(job)


def _show_plan(app: App, plan: Plan) -> None:
    safe = masked_plan(plan)
    if app.out.structured:
        app.out.value(safe)
    else:
        app.out.lines(job_table.plan_lines(safe))
