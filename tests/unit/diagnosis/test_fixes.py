"""Every change that a rule offers gives a job that the checks accept, and every command names the job."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.failures import a_job, said

from mpijob import checks
from mpijob.diagnosis import Evidence, Memory, explain, fixed
from mpijob.diagnosis.rule import Remedy, Rule
from mpijob.diagnosis.rules import RULES
from mpijob.diagnosis.template_fields import field_values, fill_patch
from mpijob.errors import Fix, Severity
from mpijob.model import Code, Exit, Resources

JOB = a_job(
    deadline_seconds=60.0,
    slots=4,
    workers=4,
    command=("python", "train.py", "--batch-size", "128"),
    resources=Resources(gpu=2, memory="4Gi"),
)
SEEN = Evidence(spec=JOB, memory=(Memory(1, 5 << 30, 4 << 30),))
NATIVE = msgspec.structs.replace(SEEN, spec=JOB.replace(command=("./heat", "--steps", "10")))
FIXES = [
    pytest.param(remedy, id=f"{rule.id}-{number}")
    for rule in RULES
    for number, remedy in enumerate(rule.remedies, start=1)
    if remedy.patch
]


@pytest.mark.thorough
@pytest.mark.req("FR-UI-007", "B-11")
@pytest.mark.parametrize("remedy", FIXES)
def test_the_change_gives_a_job_that_the_checks_accept(remedy: Remedy) -> None:
    seen = NATIVE if "{with_gdb}" in remedy.patch.values() else SEEN
    if "{larger_heap}" in remedy.patch.values():
        seen = msgspec.structs.replace(SEEN, spec=SEEN.spec.replace(command=("java", "-Xmx2g", "Steps")))
    switched = {field: not value for field, value in remedy.patch.items() if isinstance(value, bool)}
    seen = msgspec.structs.replace(seen, spec=seen.spec.replace(**switched))
    chosen = {
        "own_setting": "pml",
        "library_path": "vendor/lib",
        "emptied_setting": {"pml": ""},
        "emptied_variable": {"OMPI_MCA_pml": ""},
    }
    values = chosen | {"node": "gpu-17", "wanted_mpi": "openmpi", "as_script": "run.sh", "script_args": ["x"]}
    patch = fill_patch(remedy.patch, field_values(seen, 1, 4, values))
    job = fixed(seen.spec, Fix(remedy.text, patch))
    assert job != seen.spec
    assert [one for one in checks.run(job) if one.severity is Severity.ERROR] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_offers_something(rule: Rule) -> None:
    assert rule.remedies
    assert rule.why.endswith((".", "!"))


def test_a_command_is_apart_from_its_sentence_and_names_the_job() -> None:
    (first, *_) = explain(Evidence(spec=a_job(name="bert"), launcher=Exit(signal=9)))
    commands = [fix.command for fix in first.fixes if fix.command]
    assert commands == ["mpijob retry bert"]


GDB = "gdb -q -batch -return-child-result -ex run -ex bt --args"
CRASH = (Exit(signal=11, index=1, worker=0, time=1.0),)


@pytest.mark.parametrize(
    ("fields", "text", "patch"),
    [
        ({"command": ("python3.11", "a.py")}, "PYTHONFAULTHANDLER=1", {"env": {"PYTHONFAULTHANDLER": "1"}}),
        ({"command": ("sh", "-c", "cd x; python a.py")}, "PYTHONFAULTHANDLER=1", {"env": {"PYTHONFAULTHANDLER": "1"}}),
        ({"command": ("./heat", "--steps", "1")}, "gdb", {"command": [*GDB.split(), "./heat", "--steps", "1"]}),
        ({"command": ("bash", "rank.sh"), "code": Code(files={"rank.sh": "exec ./heat\n"})}, GDB, {}),
        ({"command": ("bash", "rank.sh"), "code": Code(files={"rank.sh": "exec python x.py\n"})},
         "PYTHONFAULTHANDLER=1", {"env": {"PYTHONFAULTHANDLER": "1"}}),
        # what is there already is not offered again
        ({"command": ("python", "a.py"), "env": {"PYTHONFAULTHANDLER": "1"}}, "a single rank", {}),
        ({"command": (*GDB.split(), "./heat")}, "a single rank", {}),
    ],
)  # fmt: skip
def test_the_line_of_a_crash_is_looked_for_with_what_the_program_has(
    fields: dict[str, Any], text: str, patch: dict[str, Any]
) -> None:
    (crash, *_) = explain(Evidence(spec=a_job(**fields), ranks=CRASH))
    assert crash.code == "SEGFAULT"
    assert text in crash.fixes[0].text
    assert crash.fixes[0].patch == patch


def test_a_program_whose_log_shows_python_is_one_of_python() -> None:
    lines = said("Fatal Python error: Segmentation fault", rank=1, worker=0)
    (crash, *_) = explain(Evidence(spec=a_job(command=("./start",)), ranks=CRASH, logs=lines))
    assert crash.fixes[0].patch == {"env": {"PYTHONFAULTHANDLER": "1"}}


def test_a_fix_keeps_what_the_job_has_beside_it() -> None:
    job = a_job(env={"LR": "0.1"})
    changed = fixed(job, Fix("", {"env": {"NCCL_DEBUG": "INFO"}}))
    assert changed.env == {"LR": "0.1", "NCCL_DEBUG": "INFO"}


def test_a_patch_that_fits_no_job_is_refused() -> None:
    patch: dict[str, Any] = {"wrokers": 3}
    with pytest.raises(msgspec.ValidationError):
        fixed(a_job(), Fix("", patch))


@pytest.mark.req("FR-UI-007", "B-11")
@pytest.mark.parametrize(
    ("command", "smaller"),
    [
        ("python train.py --batch-size 128 --lr 0.1", "python train.py --batch-size 64 --lr 0.1"),
        (
            "python train.py --per_device_train_batch_size=9",
            "python train.py --per_device_train_batch_size=4",
        ),
        ("python train.py data.batch_size=32", "python train.py data.batch_size=16"),
        ("python train.py -b 256", "python train.py -b 128"),
        ("bash -c|exec python t.py --batch 8 --amp", "bash -c|exec python t.py --batch 4 --amp"),
        ("python train.py --batch-size 1", None),
        ("python train.py --batch-size auto", None),
        ("python train.py --steps 128", None),
    ],
)
def test_the_batch_in_the_users_own_command_is_halved(command: str, smaller: str | None) -> None:
    job = a_job(command=_split(command))
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    (first, *_) = explain(Evidence(spec=job, logs=said(error, rank=0, worker=0), launcher=Exit(code=1)))
    offered = [fixed(job, fix).command for fix in first.fixes if "command" in fix.patch]
    assert offered == ([_split(smaller)] if smaller else [])
    assert not smaller or "→" in first.fixes[0].text


def _split(command: str) -> tuple[str, ...]:
    head, _, line = command.partition("|")
    return (*head.split(), *([line] if line else []))
