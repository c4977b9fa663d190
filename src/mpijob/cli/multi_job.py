"""Files with several jobs and their dependencies: submitted together, followed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mpijob.cli import exit_codes
from mpijob.cli.arguments.job_args import JobArguments
from mpijob.cli.context import App
from mpijob.cli.follow import FollowedState, Follower
from mpijob.cli.render.job_table import show_states
from mpijob.model import JobState, MPIJob, Phase

if TYPE_CHECKING:
    from mpijob.client import Job


def jobs_of(asked: Sequence[JobArguments]) -> tuple[MPIJob, ...]:
    """Return the jobs of several files, or of one file with several jobs; none for any other command line."""
    several = [one for one in asked if _holds_several(one)]
    if len(asked) == 1 and not several:
        return ()
    if {change.path for change in asked[0].changes} - {"namespace"}:
        holder = f"{several[0].file} holds" if len(asked) == 1 else f"{len(asked)} files hold"
        raise click.UsageError(f"{holder} several jobs: NAME and flags cannot be used with them")
    return tuple(job for one in asked for job in (_all_of(one) if one in several else (one.job(),)))


def _holds_several(asked: JobArguments) -> bool:
    if not asked.file or asked.text.count("---") == 0:
        return False
    from mpijob.formats.jobfile import yaml_tree

    return len(yaml_tree.parse(asked.text, asked.file).roots) > 1


def _all_of(asked: JobArguments) -> tuple[MPIJob, ...]:
    from mpijob.client.submit.templates import beside
    from mpijob.formats.jobfile import jobfile_reader

    file = asked.file or ""
    found = jobfile_reader.read_all(asked.text, file=file)
    placed = found if file == "-" else tuple(beside(job, file) for job in found)
    changes = {change.path: change.value for change in asked.changes}
    return tuple(job.replace(**changes) for job in placed)


def submit(app: App, jobs: Sequence[MPIJob]) -> list[Job]:
    """Submit the jobs in the order of their dependencies."""
    with app.out.progress(f"submitting {len(jobs)} jobs …"):
        return app.client.submit_all(jobs)


def show(app: App, made: Sequence[Job]) -> None:
    states = [one.state() for one in made]
    if app.out.structured:
        app.out.value(states)
    else:
        show_states(app, states, namespaced=False)


def follow(app: App, made: Sequence[Job], look: FollowedState, *, stays: bool) -> None:
    """Follow the jobs in the order of their dependencies; exit with the first failure."""
    ended: list[JobState] = []
    with app.client.reconciling(*(one.ref for one in made)):
        for one in made:
            app.out.note(f"-- {one.name}")
            ended.append(Follower(app, one, look, stays=stays).to_the_end())
    if not stays:
        for one in made:
            app.client.delete(one.ref)
    wrong = [state.phase for state in ended if state.phase is not Phase.SUCCEEDED]
    exit_codes.end(exit_codes.after(wrong[0] if wrong else Phase.SUCCEEDED))
