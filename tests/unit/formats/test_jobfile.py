"""Job files: what is read, what is told about a wrong one, and what never gets in."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from mpijob import checks
from mpijob.errors import Finding, InvalidJob
from mpijob.formats.jobfile import jobfile_reader
from mpijob.model import Family, MPIJob, Resources, Volume, VolumeKind


def refused(text: str | bytes, file: str = "job.yaml") -> tuple[Finding, ...]:
    with pytest.raises(InvalidJob) as caught:
        jobfile_reader.read(text, file=file)
    return caught.value.findings


def the_one(text: str | bytes) -> Finding:
    findings = refused(text)
    assert len(findings) == 1, [str(finding) for finding in findings]
    return findings[0]


@pytest.mark.req("FR-007")
def test_a_job_is_read_from_yaml_and_from_json() -> None:
    text = """
    name: bert
    workers: 8
    mpi: openmpi
    command: [python, train.py]
    resources: {cpu: 500m, memory: 4Gi, gpu: 1}
    volumes:
      - {mount: /data, kind: claim, source: train}
    """
    wanted = MPIJob(
        name="bert",
        workers=8,
        mpi=Family.OPENMPI,
        command=("python", "train.py"),
        resources=Resources(cpu="500m", memory="4Gi", gpu=1),
        volumes=(Volume(mount="/data", kind=VolumeKind.CLAIM, source="train"),),
    )
    assert jobfile_reader.read(text) == wanted
    assert jobfile_reader.read(jobfile_reader.write(wanted, format="json")) == wanted
    assert jobfile_reader.read(b"\xef\xbb\xbf" + jobfile_reader.write(wanted).encode()) == wanted


def test_json_as_other_programs_write_it_is_read() -> None:
    values = {"name": "x", "command": ["a"], "description": "tab\t/ \\ \U0001f600 \\ud83d", "env": {"A": "é"}}
    for text in (json.dumps(values), json.dumps(values, indent="\t"), json.dumps(values, ensure_ascii=False)):
        job = jobfile_reader.read(text)
        assert job.description == values["description"]
        assert job.env == {"A": "é"}


@pytest.mark.security
def test_a_command_in_one_line_is_split_and_never_given_to_a_shell() -> None:
    job = jobfile_reader.read("name: x\ncommand: python train.py --lr 0.1 '$(id)' ; reboot")
    assert job.command == ("python", "train.py", "--lr", "0.1", "$(id)", ";", "reboot")
    assert "unbalanced quote" in the_one("name: x\ncommand: it's").message


def test_env_values_are_the_text_as_written() -> None:
    job = jobfile_reader.read(
        "name: x\nenv: {A: 1, B: true, C: 1.10, D: yes, E: 0x1F, F: '', G: 007, H: 1_000}"
    )
    assert job.env == dict(
        zip("ABCDEFGH", ["1", "true", "1.10", "yes", "0x1F", "", "007", "1_000"], strict=True)
    )


def test_a_number_where_text_is_wanted_is_taken_as_written_and_a_boolean_is_not() -> None:
    assert jobfile_reader.read("name: x\nimage: 1.10\nargs: [1, true]\nqueue: 12").image == "1.10"
    assert jobfile_reader.read("name: x\nargs: [1, true, 1e3]").args == ("1", "true", "1e3")
    finding = the_one("name: x\nimage: true")
    assert finding.message == "expected text, got true"
    assert finding.hint == 'put it in quotes: "true"'


@pytest.mark.parametrize(
    ("word", "right"), [("yes", "true"), ("on", "true"), ("Off", "false"), ("no", "false")]
)
def test_yes_and_on_are_not_booleans_and_the_right_word_is_told(word: str, right: str) -> None:
    finding = the_one(f"name: x\ncensus: {word}")
    assert finding.message == f"expected true or false, got '{word}'"
    assert finding.hint == f"write {right}"


@pytest.mark.req("FR-007", "FR-CLI-005", "FR-030")
def test_everything_wrong_in_a_file_is_told_at_once_with_its_place() -> None:
    text = "name: x\nworker: 8\nslots: four\nenv:\n  A: [1]\nresources:\n  cpus: 2\nmpi: opnmpi\nslots: 2\n"
    told = [str(finding) for finding in refused(text)]
    assert told == [
        "job.yaml:2:1: worker: unknown field 'worker'; did you mean 'workers'?",
        "job.yaml:3:8: slots: expected a whole number, got 'four'",
        "job.yaml:5:6: env.A: expected text, got a list",
        "job.yaml:7:3: resources.cpus: unknown field 'cpus' in resources; did you mean 'cpu'?",
        "job.yaml:8:6: mpi: 'opnmpi' is not a valid value",
        "job.yaml:9:1: 'slots' is given twice, first in line 3",
    ]


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("workers: 2", "MISSING_FIELD", 1, 1),
        ("name: x\nprograms:\n- ranks: 1", "MISSING_FIELD", 3, 3),
        ("name: x\nranks: 1.5", "WRONG_TYPE", 2, 8),
        ("name: x\nworkers: '4'", "WRONG_TYPE", 2, 10),
        ("name: x\nworkers: true", "WRONG_TYPE", 2, 10),
        ("name: x\nworkers:", "WRONG_TYPE", 2, 9),
        ("name: x\nworkers: .inf", "WRONG_TYPE", 2, 10),
        ("name: x\ndeadline_seconds: 1e999", "WRONG_TYPE", 2, 19),
        ("name: x\nworkers: " + "9" * 5000, "WRONG_TYPE", 2, 10),
        ("name: x\ncommand: {a: b}", "WRONG_TYPE", 2, 10),
        ("name: x\nlaunch: [1]", "WRONG_TYPE", 2, 9),
        ("name: x\nlaunch: {custom: {command: [a], tags: x}}", "UNKNOWN_FIELD", 2, 33),
        ("- a\n- b", "WRONG_TYPE", 1, 1),
        ("just text", "WRONG_TYPE", 1, 1),
        ("", "EMPTY", 1, 1),
        ("# nothing\n---\n", "EMPTY", 1, 1),
        ("name: x\n---\nname: y", "SEVERAL_JOBS", 3, 1),
        ("name: x\nenv: {A: 1\n\n", "SYNTAX", 2, 11),
        ("name: x\nenv: {A: 1", "SYNTAX", 2, 11),
        ("name: a: b", "SYNTAX", 1, 8),
        ("? [a]\n: b\nname: x", "SYNTAX", 1, 3),
        ("name: x\n<<: {a: 1}", "UNKNOWN_FIELD", 2, 1),
    ],
)
def test_a_wrong_file_is_told_at_its_place(text: str, code: str, line: int, column: int) -> None:
    finding = the_one(text)
    assert (finding.code, finding.line, finding.column) == (code, line, column)


@pytest.mark.security
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("name: !!python/object/apply:os.system ['id']", "TAG"),
        ("name: !custom x", "TAG"),
        ("name: !!str x", "TAG"),
        ("!!map {name: x}", "TAG"),
        ("name: &a x", "ALIAS"),
        ("name: x\nenv: {A: *b}", "ALIAS"),
        ("name: x\nname: y", "DUPLICATE_KEY"),
        ("name: x\nenv: {A: 1, A: 2}", "DUPLICATE_KEY"),
        ("name: x\nenv:\n\tA: 1", "SYNTAX"),
        ("name: x\0", "NOT_TEXT"),
        (b"name: \xff\xfe", "NOT_TEXT"),
        ("name: \ud800", "NOT_TEXT"),
        ("name: \x01", "NOT_TEXT"),
        ("name: x\nenv: " + "{a: " * 60 + "}" * 60, "TOO_DEEP"),
    ],
)
def test_what_does_not_belong_into_a_job_file_is_refused(text: str | bytes, code: str) -> None:
    assert code in {finding.code for finding in refused(text)}


def test_an_alias_is_named_and_a_tab_is_explained() -> None:
    told = [finding.message for finding in refused("name: &n x\nimage: *n")]
    assert told == ["the anchor &n is not allowed", "the alias *n is not allowed"]
    assert "tab" in the_one("name: x\nenv:\n\tA: 1").message


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)


@pytest.mark.thorough
@pytest.mark.security
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 1_000_000, id="brackets"),
        pytest.param("{a: " * 250_000, id="braces"),
        pytest.param("- " * 500_000, id="dashes"),
        pytest.param("name: x\nenv:\n" + "".join(f"  A{n}: 1\n" for n in range(60_000)), id="many values"),
        pytest.param("name: x\n" * 100_000, id="duplicates"),
        pytest.param("name: !t x\n" * 90_000, id="tags"),
        pytest.param(BOMB, id="alias bomb"),
        pytest.param("x" * 50_000_000, id="huge"),
        pytest.param("name: '" + "y" * 1_000_000, id="open quote"),
        pytest.param("? " * 500_000, id="complex keys"),
    ],
)
def test_hostile_files_are_refused_quickly_with_bounded_memory(text: str) -> None:
    tracemalloc.start()
    begin = time.process_time()
    findings = refused(text)
    taken, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert findings
    assert len(findings) <= 50
    assert taken < 3
    assert peak < 40 * 1024 * 1024


@pytest.mark.security
def test_a_long_text_inside_the_limit_is_read() -> None:
    assert len(jobfile_reader.read("name: x\ndescription: '" + "y" * 900_000 + "'").description) == 900_000


@pytest.mark.req("FR-007")
@pytest.mark.parametrize(
    ("manifest", "code", "said"),
    [
        (
            "apiVersion: kubeflow.org/v2beta1\nkind: TrainJob\nspec: {trainingFramework: mpi}",
            "NO_SUCH_API",
            "trainer.kube",
        ),
        (
            "apiVersion: kubeflow.org/v2alpha1\nkind: TrainJob\nspec: {mpiImplementation: x}",
            "NO_SUCH_API",
            "v2beta1",
        ),
        ("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {}", "MANIFEST", "mpijob convert"),
        ("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {}", "MANIFEST", "mpijob convert"),
        ("apiVersion: v1\nkind: Pod", "MANIFEST", "no apiVersion"),
        ("kind: [x]", "MANIFEST", "no apiVersion"),
    ],
)
def test_a_kubernetes_manifest_is_answered_with_the_right_form(manifest: str, code: str, said: str) -> None:
    finding = the_one(manifest)
    assert finding.code == code
    assert said in finding.hint


def test_several_jobs_are_read_together_and_all_their_errors_told_at_once() -> None:
    jobs = jobfile_reader.read_all("name: a\n---\nname: b\n---\n")
    assert [job.name for job in jobs] == ["a", "b"]
    with pytest.raises(InvalidJob) as caught:
        jobfile_reader.read_all("name: a\nx: 1\n---\nname: b\ny: 1\n")
    assert [(finding.line, finding.field) for finding in caught.value.findings] == [(2, "x"), (5, "y")]
    with pytest.raises(InvalidJob, match="empty"):
        jobfile_reader.read_all("---\n---\n")


@pytest.mark.req("FR-CLI-005")
def test_findings_of_checks_are_brought_back_to_their_lines() -> None:
    text = "name: x\nworkers: 400\ncommand: [a]\nvolumes:\n  - mount: data\n    source: /srv\n"
    found = jobfile_reader.locate(text, checks.run(jobfile_reader.read(text)), file="j.yaml")
    assert [(finding.field, finding.line, finding.column) for finding in found] == [
        ("workers", 2, 10),
        ("volumes[0].mount", 5, 12),
    ]
    lost = jobfile_reader.locate(text, (Finding(code="X", message="m", field="retry.limit"),), file="j.yaml")[
        0
    ]
    assert (lost.file, lost.line) == ("j.yaml", 1)


def test_a_job_is_written_plainly_with_its_defaults_left_out() -> None:
    fields: dict[str, Any] = {"gang_timeout_seconds": 150.0 * 2, "env": {"A": "yes", "B": "1", "C": "plain"}}
    job = MPIJob(workers=8, name="bert", command=("python", "train.py", "--lr", "0.1"), **fields)
    assert jobfile_reader.write(job) == (
        "name: bert\n"
        "workers: 8\n"
        'command: [python, train.py, --lr, "0.1"]\n'
        "env:\n"
        "  A: 'yes'\n"
        '  B: "1"\n'
        "  C: plain\n"
    )
    assert json.loads(jobfile_reader.write(MPIJob(name="x"), format="json")) == {"name": "x"}


def test_a_launcher_of_the_workers_default_size_is_not_lost() -> None:
    job = MPIJob(name="x", launcher=Resources())
    assert jobfile_reader.read(jobfile_reader.write(job)) == job
