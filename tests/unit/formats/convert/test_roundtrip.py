"""What a report calls exact is exact: a job goes out and comes back with it, whatever its fields hold."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cluster_support import a_job, a_rich_job
from tests.unit.formats.convert.test_golden import SOURCES
from tests.unit.formats.test_trainjob import whole_jobs
from tests.unit.properties import examples

from mpijob.client.convert.convert_jobs import Conversion, FieldOutcome, Stage, convert
from mpijob.formats.convert.header.request import name_of
from mpijob.formats.jobfile import jobfile_reader
from mpijob.model import Code, Family, Launch, MPIJob, Program, Resources, Retry, Signal

SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
words = st.text(
    st.characters(exclude_characters="\0\n\r", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8
)
plain = st.sampled_from(
    ["python", "./model", "a b", "it's", "$HOME", "x=1", "-n", "--lr=0.1", "*", "~", "\\", '"', "#x", ";"]
)
names = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
variables = st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,6}", fullmatch=True), words | plain, max_size=3)
commands = st.tuples(st.sampled_from(["python", "./model", "/opt/x"]), *[plain | words] * 2).map(
    lambda found: tuple(word for word in found if word != ":")
)


@st.composite
def slurm_jobs(draw: st.DrawFn) -> MPIJob:
    """Jobs as people have them, with whatever in their words."""
    slots, cores = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    programs: tuple[Program, ...] = ()
    workers = draw(st.integers(1, 9))
    if draw(st.booleans()) and workers * slots >= 2:
        first = draw(st.integers(1, workers * slots - 1))
        programs = (
            Program(ranks=first, command=draw(commands)),
            Program(ranks=workers * slots - first, command=draw(commands)),
        )
    ranks = draw(st.none() | st.integers(1, workers * slots)) if not programs else None
    return MPIJob(
        name=draw(names),
        description=draw(st.sampled_from(["", "nightly run", "it's"])),
        workers=workers,
        slots=slots,
        ranks=None if ranks == workers * slots else ranks,
        cores_per_rank=cores,
        command=() if programs else draw(commands),
        programs=programs,
        env=draw(variables),
        code=Code(files=draw(st.dictionaries(st.sampled_from(["in.txt", "a/b.cfg"]), words, max_size=2))),
        resources=Resources(
            cpu=draw(st.sampled_from([str(slots * cores), "3", "500m"])),
            memory=draw(st.sampled_from(["512Mi", "16Gi", "1000000", "1.5Gi"])),
            gpu=draw(st.integers(0, 4)),
        ),
        launch=Launch(
            map_by=draw(st.sampled_from(["", "slot", "node", "numa"])),
            bind_to=draw(st.sampled_from(["", "core", "none", "l3cache"])),
        ),
        deadline_seconds=draw(st.none() | st.sampled_from([60.0, 3600.0, 90061.0, 59.5])),
        signal=draw(st.sampled_from([Signal(), Signal(name="USR1", seconds_before=60.0)])),
        retry=Retry(limit=draw(st.integers(0, 2))),
        queue=draw(st.sampled_from(["", "gpu"])),
        labels=draw(st.sampled_from([{}, {"team": "cv"}])),
    )


WORDS = {
    "programs": ("--multi-prog programs.conf\n", "mpiexec -n "),
    "launch.map_by": ("srun --distribution=",),
    "launch.bind_to": (" --cpu-bind=",),
}


def at(job: MPIJob, path: str) -> Any:
    value: Any = job
    for part in path.split("."):
        value = getattr(value, part)
    return value


def same(field: str, there: MPIJob, back: MPIJob, text: str) -> bool:
    """Return whether a field came back: in the header's fields, or in the words of the script."""
    if field == "resources.memory":
        return there.resources.memory_bytes == back.resources.memory_bytes
    if field == "resources.cpu":
        return there.resources.cores == back.resources.cores
    if field in ("command", "args"):
        return text.endswith(f" {shlex.join(there.argv)}\n")
    if field == "env":
        return all(f"\nexport {name}={shlex.quote(value)}\n" in text for name, value in there.env.items())
    if field in WORDS:
        return any(words in text for words in WORDS[field])
    return bool(at(there, field) == at(back, field))


def exact_fields(one: Conversion) -> list[str]:
    return [entry.field for entry in one.written if entry.fate is FieldOutcome.EXACT]


@pytest.mark.thorough
@pytest.mark.req("C-hpc", "D-migrate")
@SETTINGS
@given(slurm_jobs(), st.sampled_from(["sbatch", "pbs"]))
def test_a_job_as_batch_script_comes_back_with_everything_that_was_called_exact(job: MPIJob, to: str) -> None:
    (out,) = convert(jobfile_reader.write(job), to=to)
    (back,) = convert(out.texts[0], file=f"x.{to}")
    (returned,) = back.jobs
    assert {"name", "command"} & set(exact_fields(out))
    for field in exact_fields(out):
        assert same(field, job, returned, out.texts[0]), (field, out.texts[0], at(returned, field))


@pytest.mark.thorough
@pytest.mark.req("D-migrate")
@settings(SETTINGS, max_examples=examples(20))
@given(
    whole_jobs.filter(lambda job: len(job.name) < 40 and job.name), st.sampled_from(["trainjob", "mpijob"])
)
def test_a_job_as_a_manifest_comes_back_whole(job: MPIJob, to: str) -> None:
    job = job.replace(mpi=Family.AUTO)
    try:
        (out,) = convert(jobfile_reader.write(job), to=to)
    except Exception as error:
        pytest.fail(f"{error}")
    if not out.texts:
        assert out.blockers
        return
    (back,) = convert(out.texts[0], to=to)
    assert back.jobs == (job,)
    assert back.count(FieldOutcome.DROPPED) == out.count(FieldOutcome.DROPPED)


@pytest.mark.thorough
@pytest.mark.req("D-migrate")
@pytest.mark.parametrize(
    "name", ["horovod-v2beta1.yaml", "launcher-as-worker.yaml", "training-operator-v1.yaml"]
)
def test_an_mpijob_written_again_keeps_what_a_job_has_no_word_for(name: str) -> None:
    text = (SOURCES / name).read_text()
    (again,) = convert(text, to="mpijob")
    kept = [entry for entry in again.entries if entry.note == "kept unchanged"]
    (plain_job,) = convert(text)
    no_word = [entry for entry in plain_job.entries if entry.note == "a job has no equivalent"]
    assert {entry.field for entry in no_word} <= {entry.field for entry in kept}
    (third,) = convert(again.texts[0], to="mpijob")
    assert third.jobs == again.jobs


@pytest.mark.thorough
@pytest.mark.req("D-migrate")
def test_a_job_goes_round_all_forms_and_stays_itself() -> None:
    job = a_rich_job(secrets=(), volumes=())
    text = jobfile_reader.write(job)
    for to in ("trainjob", "mpijob", "trainjob", "job"):
        (one,) = convert(text, to=to)
        text = one.texts[0]
    assert jobfile_reader.read(text) == job


@pytest.mark.req("D-migrate")
def test_a_manifest_needs_an_image_and_says_so() -> None:
    text = jobfile_reader.write(a_job(image=""))
    (one,) = convert(text, to="trainjob")
    assert one.stage is Stage.BLOCKED
    assert "image" in one.blockers[0]
    (one,) = convert(text, to="trainjob", image="example/mpi:1")
    assert one.stage is Stage.READY


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fields", "to", "field"),
    [
        ({"retry": Retry(limit=2)}, "trainjob", "retry.limit"),
        ({"retry": Retry(limit=2)}, "mpijob", "retry.limit"),
        ({"code": Code(path="src")}, "trainjob", "code.path"),
        ({"labels": {"a": "b"}}, "sbatch", "labels"),
        ({"priority": "high"}, "sbatch", "priority"),
    ],
)
def test_what_another_form_cannot_do_is_told(fields: dict[str, Any], to: str, field: str) -> None:
    (one,) = convert(jobfile_reader.write(a_job(**fields)), to=to)
    (entry,) = [entry for entry in one.written if entry.field == field]
    assert entry.fate is FieldOutcome.DROPPED
    assert entry.todo


@pytest.mark.parametrize(
    ("wanted", "named"), [("a--0", "a--0"), ("A B", "a-b"), ("7x", "job-7x"), ("-a-", "a"), ("é!", "e")]
)
def test_a_name_that_a_job_may_have_stays_as_it_is(wanted: str, named: str) -> None:
    assert name_of(wanted) == named
