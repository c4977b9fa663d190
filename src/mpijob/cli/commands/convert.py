"""The `convert` command: jobs of other systems as mpijob's and back, with a report on every field."""

from __future__ import annotations

import os
import shlex
from collections.abc import Container, Iterable
from pathlib import Path

import click

from mpijob.cli import exit_codes
from mpijob.cli.arguments.job_args import read_file
from mpijob.cli.context import App, pass_app
from mpijob.cli.options import command
from mpijob.cli.output import Format
from mpijob.cli.render import text
from mpijob.client.convert import convert_jobs
from mpijob.client.convert.convert_jobs import UNASKED, Conversion, FieldEntry, FieldOutcome, Stage

_AT_WILL = "nothing, or "
_SIGNS = {FieldOutcome.EXACT: "exact", FieldOutcome.CHANGED: "changed", FieldOutcome.DROPPED: "dropped"}


@command("convert", outputs=(Format.YAML, Format.JSON))
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--to",
    type=click.Choice(convert_jobs.TARGETS),
    default="job",
    help="Output format; default: a job file.",
)
@click.option(
    "--report",
    type=click.Choice(["text", "json"]),
    help="Print a report on every field instead of the jobs.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 if a field was dropped.")
@click.option("--image", default="", metavar="IMAGE", help="Image to use if the source names none.")
@click.option("--openshift", is_flag=True, help="Write manifests for OpenShift, which assigns user IDs.")
@click.option("--dir", "directory", metavar="DIR", help="Convert all jobs in the files below this directory.")
@click.option("--out", metavar="DIR", help="Write each job to a file in this directory.")
@click.option("--overwrite", is_flag=True, help="With --out: overwrite existing files that differ.")
@click.option("--cluster", is_flag=True, help="Convert all MPIJobs of a namespace on a cluster.")
@click.option("-A", "--all-namespaces", is_flag=True, help="With --cluster: include all namespaces.")
@pass_app
def convert(
    app: App, files: tuple[str, ...], to: str, report: str | None, strict: bool, image: str,
    openshift: bool, directory: str | None, out: str | None, overwrite: bool, cluster: bool, all_namespaces: bool,
) -> None:  # fmt: skip
    """Convert MPIJobs, TrainJobs, Slurm and PBS scripts, both ways.

    FILE is an MPIJob (v2beta1, v1, v1alpha), a TrainJob with its runtime, a Slurm, PBS or LSF script, an
    Arena command, SageMaker or Azure ML settings, or a job file; `-` is stdin. Jobs go to stdout, and a
    report of inexact fields to stderr. Only the header of a script is converted; the body runs unchanged
    (`mpijob run SCRIPT` does both). Nothing is executed.
    """
    if sum((bool(files), directory is not None, cluster)) != 1:
        raise click.UsageError("give files, --dir or --cluster")
    if folder := next((file for file in files if os.path.isdir(file)), ""):
        raise click.UsageError(f"{folder} is a directory: --dir {folder}")
    form = "json" if app.out.format is Format.JSON else "yaml"
    if files:
        done = tuple(
            one
            for file in files
            for one in convert_jobs.convert(
                read_file(file),
                to=to,
                file="" if file == "-" else file,
                image=image,
                format=form,
                openshift=openshift,
                moved=os.path.relpath("." if file == "-" else Path(file).parent, out or "."),
                folder="." if file == "-" else str(Path(file).parent),
            )
        )
        moved = None
    elif directory is not None:
        done = tuple(
            convert_jobs.directory(
                directory, to=to, image=image, format=form, openshift=openshift, out=out or ""
            )
        )
        moved = 0
    else:
        from mpijob.client.convert import cluster_migration

        settings = app.settings()
        done, moved = cluster_migration.of_cluster(
            settings, everywhere=all_namespaces, to=to, image=image, format=form, openshift=openshift
        )
        for said in cluster_migration.retiring(settings, everywhere=all_namespaces).values():
            app.out.note(said)
    written = _written(app, done, Path(out), directory is not None, overwrite) if out is not None else {}
    _show(app, done, report, moved, written)
    _end(done, strict)


def _show(
    app: App, done: tuple[Conversion, ...], report: str | None, moved: int | None, written: dict[str, Path]
) -> None:
    if moved is not None:
        _show_fleet(app, done, report, moved)
    elif report == "json":
        app.out.format = Format.JSON
        app.out.value(done)
    elif report == "text":
        for one in done:
            app.out.lines([*_table(one, one.every), *_commands(one, written)])
    else:
        if not written:
            _show_texts(app, done)
        for one in done:
            for line in (*_brief(one), *_commands(one, written)):
                app.out.note(line)


def _show_texts(app: App, done: tuple[Conversion, ...]) -> None:
    texts = [each for one in done for each in one.texts]
    if not texts:
        return
    if done[0].to in convert_jobs.BATCH_SCRIPTS:
        _refuse_one_stream(len(texts))
        app.out.text(texts[0])
    elif app.out.format is Format.JSON:
        app.out.text(texts[0] if len(texts) == 1 else f"[{','.join(texts)}]")
    else:
        app.out.text("---\n".join(texts))


def _refuse_one_stream(scripts: int) -> None:
    if scripts > 1:
        message = f"a batch script holds one job, not {scripts}: use --out DIR to write one file per job"
        raise click.UsageError(message)


def _show_fleet(app: App, done: tuple[Conversion, ...], report: str | None, moved: int) -> None:
    from mpijob.client.convert import cluster_migration

    found = cluster_migration.progress(done, moved)
    if report == "json" or app.out.format is Format.JSON:
        app.out.format = Format.JSON
        app.out.value(found)
        return
    if report == "text":
        for one in done:
            app.out.lines([*_table(one, one.every), ""])
    rows = (
        (
            row.file,
            row.source,
            row.stage.value,
            str(row.exact),
            str(row.changed),
            str(row.dropped),
            f"{row.automatic:.0%}",
            _cut(row.blocks),
        )
        for row in found.rows
    )
    header = ("FROM", "KIND", "STAGE", "EXACT", "CHANGED", "DROPPED", "AUTOMATIC", "TO DO")
    app.out.lines(text.table(header, rows) if found.rows else ["there is nothing to convert"])
    told = f"{len(found.rows)} to move: {found.ready} ready, {found.check} to check, {found.blocked} blocked"
    share = f"; {moved} of {found.total} jobs run by mpijob already" if moved else ""
    app.out.line(f"{told}; {found.automatic:.0%} of all fields automatic{share}")


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= 90 else sentence[:89] + "…"


def _brief(one: Conversion) -> list[str]:
    """Return the lines for stderr: a count with what was not asked for, then what is not exact."""
    rest = [entry for entry in one.every if entry.fate is not FieldOutcome.EXACT]
    unasked = [f"{entry.note}; {entry.todo}" for entry in rest if entry.value == UNASKED]
    where = f"{one.file or 'stdin'} ({one.source})"
    counted = ", ".join(f"{one.count(fate)} {fate.value}" for fate in FieldOutcome)
    lines = ["; ".join([f"{where}: {counted}", _STAGES[one.stage], *unasked])]
    return lines + [f"  {line}" for entry in rest if entry.value != UNASKED for line in _entry_lines(entry)]


def _commands(one: Conversion, written: dict[str, Path]) -> list[str]:
    """Return the command that runs a script: alone, as an array, or after its dependency."""
    if one.to != "job" or one.stage is Stage.BLOCKED or not one.jobs or not one.jobs[0].script:
        return []
    name = one.jobs[0].name
    what = f"-f {written[name]}" if name in written else shlex.quote(one.file) if one.file else "-f FILE"
    values = "".join(f" --values {key}={','.join(listed)}" for key, listed in one.values.items())
    after = f" --after {one.after}" if one.after else ""
    return [f"  run it: mpijob {'array' if values else 'run'} {what}{after}{values}"]


_STAGES = {
    Stage.READY: "ready",
    Stage.CHECK: "check: ready after the listed steps",
    Stage.BLOCKED: "blocked: change the marked fields first",
}


def _entry_lines(entry: FieldEntry) -> list[str]:
    place = f"line {entry.line}: " if entry.line else ""
    value = f" {text.one_line(entry.value)}" if entry.value else ""
    ours = f" → {entry.ours}" if entry.ours else ""
    mark = "BLOCKS " if entry.blocks else ""
    lines = [f"{mark}{_SIGNS[entry.fate]}: {place}{_short(entry.field)}{value}{ours}: {entry.note}"]
    if entry.matters:
        lines.append(f"  to do: {entry.todo}")
    elif entry.todo.startswith(_AT_WILL):
        lines.append(f"  if you want: {entry.todo.removeprefix(_AT_WILL)}")
    return lines


def _short(field: str) -> str:
    return field.replace("spec.mpiReplicaSpecs.", "").replace("template.spec.", "").removeprefix("spec.")


def _table(one: Conversion, entries: Iterable[FieldEntry]) -> list[str]:
    head = f"{one.file or 'stdin'} ({one.source}) → {one.to}: {_STAGES[one.stage]}, {one.automatic:.0%} automatic"
    rows = [
        (
            str(entry.line or "-"), _short(entry.field), _cut(entry.value), _SIGNS[entry.fate], entry.ours,
            "; ".join(part for part in (entry.note, entry.todo) if part),
        )
        for entry in entries
    ]  # fmt: skip
    return [head, *text.table(("LINE", "FIELD", "VALUE", "FATE", "HERE", "WHY, AND WHAT TO DO"), rows)]


def _written(
    app: App, done: tuple[Conversion, ...], folder: Path, nested: bool, overwrite: bool
) -> dict[str, Path]:
    """Write each job into a file of its own, and return the files by the names of the jobs."""
    texts: dict[Path, tuple[str, str]] = {}
    for one in done:
        for job, content in zip(one.jobs, one.texts, strict=False):
            below = Path(one.file).parent if nested else Path()
            texts[_place(job.name, one.ending, folder / below, texts)] = (job.name, content)
    try:
        if not overwrite:
            _refuse_changed(texts)
        for place, (_, content) in texts.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
            app.out.note(f"{place} written")
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error
    return {name: place for place, (name, _) in texts.items()}


def _refuse_changed(texts: dict[Path, tuple[str, str]]) -> None:
    """Refuse to overwrite a file with other content: the user may have edited an earlier conversion."""
    other = [
        place for place, (_, text) in texts.items() if place.exists() and place.read_bytes() != text.encode()
    ]
    if other:
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        message = f"{other[0]}{more} exists and differs: use --overwrite, or another --out"
        raise click.UsageError(message)


def _place(name: str, ending: str, folder: Path, taken: Container[Path]) -> Path:
    """Return a file of its own for a job."""
    place = folder / f"{name}{ending}"
    count = 2
    while place in taken:
        place = folder / f"{name}-{count}{ending}"
        count += 1
    return place


def _end(done: tuple[Conversion, ...], strict: bool) -> None:
    blocked = any(one.stage is Stage.BLOCKED for one in done)
    if blocked or (strict and any(entry.fate is FieldOutcome.DROPPED for one in done for entry in one.every)):
        exit_codes.end(exit_codes.FAILED)
