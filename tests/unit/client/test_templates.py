"""Templates: saved, listed, used with changes, shared, deleted; nothing outside their directories."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mpijob import MPIJob, checks
from mpijob.client.submit.templates import Origin, Templates
from mpijob.errors import Conflict, InvalidJob, NotAllowed, NotFound, Severity
from mpijob.settings import Settings, load

LIBRARY = ["deepspeed", "hello", "horovod", "intel-mpi", "mpi4py", "osu-benchmarks"]
JOB = MPIJob(name="bert", workers=8, command=("train",), env={"LR": "0.1"}, description="fine-tune")


@pytest.fixture
def templates(tmp_path: Path) -> Templates:
    return Templates(tmp_path / "own", tmp_path / "team")


@pytest.mark.req("PMV-001", "R9")
def test_a_saved_template_is_listed_shown_and_used_with_changes(templates: Templates) -> None:
    templates.save("bert", JOB)
    assert [(one.name, one.description) for one in templates.list() if one.origin is Origin.OWN] == [
        ("bert", "fine-tune")
    ]
    assert templates.show("bert") == JOB
    job = templates.use("bert", {"env.LR": 0.2}, name="bert-big", workers=16)
    assert (job.name, job.workers, job.env) == ("bert-big", 16, {"LR": "0.2"})


@pytest.mark.req("PMV-010")
def test_the_library_has_what_is_promised_and_every_template_is_well_formed(templates: Templates) -> None:
    assert [one.name for one in templates.list()] == LIBRARY
    for name in LIBRARY:
        found = checks.run(templates.show(name), max_workers=100)
        assert [finding for finding in found if finding.severity is Severity.ERROR] == [], name


def test_an_own_template_hides_the_librarys_until_it_is_deleted(templates: Templates) -> None:
    templates.save("hello", JOB)
    assert templates.show("hello") == JOB
    templates.delete("hello")
    assert templates.show("hello").name == "hello"
    with pytest.raises(NotAllowed, match="library"):
        templates.delete("hello")


def test_a_shared_template_is_seen_by_others(templates: Templates, tmp_path: Path) -> None:
    templates.save("bert", JOB)
    templates.share("bert")
    colleague = Templates(tmp_path / "colleague", tmp_path / "team")
    assert colleague.show("bert") == JOB
    assert [one.origin for one in colleague.list() if one.name == "bert"] == [Origin.SHARED]


def test_sharing_needs_a_place(tmp_path: Path) -> None:
    own = Templates(tmp_path)
    own.save("bert", JOB)
    with pytest.raises(NotAllowed, match="MPIJOB_TEMPLATES"):
        own.share("bert")


def test_a_template_is_not_overwritten_by_accident(templates: Templates) -> None:
    templates.save("bert", JOB)
    with pytest.raises(Conflict, match="bert"):
        templates.save("bert", JOB.replace(workers=2))
    templates.save("bert", JOB.replace(workers=2), overwrite=True)
    assert templates.show("bert").workers == 2


def test_an_unknown_template_is_not_found(templates: Templates) -> None:
    with pytest.raises(NotFound, match="nobody"):
        templates.show("nobody")
    with pytest.raises(NotFound, match="own template 'hello'"):
        templates.share("hello")


def test_a_broken_template_is_listed_and_explained(templates: Templates, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "odd.yaml").write_text("wrokers: 3\n")
    assert [one.description for one in templates.list() if one.name == "odd"] == ["(cannot be read)"]
    with pytest.raises(InvalidJob, match="wrokers"):
        templates.show("odd")


@pytest.mark.security
@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/b", "..", "", ".hidden", "A", "x" * 64, "a\n", "a\0b"]
)
def test_names_that_lead_elsewhere_are_refused(templates: Templates, name: str, tmp_path: Path) -> None:
    for act in (
        lambda: templates.save(name, JOB),
        lambda: templates.show(name),
        lambda: templates.delete(name),
    ):
        with pytest.raises(InvalidJob, match="not a name"):
            act()
    assert list(tmp_path.rglob("*.yaml")) == []


@pytest.mark.security
def test_own_templates_are_closed_to_other_users(templates: Templates, tmp_path: Path) -> None:
    templates.save("bert", JOB)
    path = tmp_path / "own" / "bert.yaml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    templates.share("bert")
    assert stat.S_IMODE((tmp_path / "team" / "bert.yaml").stat().st_mode) == 0o644


@pytest.mark.security
def test_saving_replaces_a_link_instead_of_writing_through_it(templates: Templates, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bert.yaml").symlink_to(victim)
    templates.save("bert", JOB, overwrite=True)
    assert victim.read_text() == "precious"
    assert templates.show("bert") == JOB


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAllowed, match="cannot be written"):
        Templates(tmp_path / "file" / "own").save("bert", JOB)


def test_the_settings_say_where_shared_templates_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load({"HOME": str(tmp_path), "MPIJOB_TEMPLATES": "/team"}).templates == "/team"
    monkeypatch.setenv("MPIJOB_SETTINGS", str(tmp_path / "settings.toml"))
    places = Templates.of(Settings(templates=str(tmp_path / "team")))
    places.save("bert", JOB)
    places.share("bert")
    assert (tmp_path / "templates" / "bert.yaml").exists()
    assert (tmp_path / "team" / "bert.yaml").exists()
