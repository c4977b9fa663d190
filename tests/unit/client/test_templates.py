"""Templates: saved, listed, used with changes, shared, deleted; nothing outside their directories."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mpijob import Client, MPIJob, checks
from mpijob.backends.local import LocalBackend
from mpijob.client.submit.templates import Origin, Templates
from mpijob.errors import Conflict, InvalidJob, NotAllowed, NotFound, Severity
from mpijob.model.team_template import LARGEST, TeamTemplate
from mpijob.settings import Settings, load

LIBRARY = ["deepspeed", "hello", "horovod", "intel-mpi", "mpi4py", "osu-benchmarks"]
JOB = MPIJob(name="bert", workers=8, command=("train",), env={"LR": "0.1"}, description="fine-tune")


def shelf(own: Path, team: Path | None = None, user: str = "me") -> Templates:
    """The templates of a user of this machine, with a directory for those of teams or without."""
    engine = LocalBackend(Settings(templates="" if team is None else str(team)))
    return Templates(own, engine, namespace="cv", user=lambda: user)


@pytest.fixture
def templates(tmp_path: Path) -> Templates:
    return shelf(tmp_path / "own", tmp_path / "team")


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
    colleague = shelf(tmp_path / "colleague", tmp_path / "team")
    assert colleague.show("bert") == JOB
    assert [one.origin for one in colleague.list() if one.name == "bert"] == [Origin.SHARED]
    assert colleague.list("nlp") == Templates(None).list(), "another namespace sees none of it"


def test_an_own_template_hides_a_shared_one_that_can_still_be_read_and_deleted(templates: Templates) -> None:
    templates.save("bert", JOB, share=True)
    templates.save("bert", JOB.replace(workers=2))
    assert (templates.show("bert").workers, templates.show("bert", shared=True).workers) == (2, 8)
    templates.delete("bert")
    with pytest.raises(NotAllowed, match="shared by namespace 'cv'"):
        templates.delete("bert")
    templates.delete("bert", shared=True)
    with pytest.raises(NotFound, match="bert"):
        templates.show("bert")


def test_what_lies_in_the_directory_itself_is_shared_by_all_namespaces(
    templates: Templates, tmp_path: Path
) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "all.yaml").write_text("name: a\ncommand: [a]\nworkers: 2\n")
    assert templates.show("all", "cv").workers == templates.show("all", "nlp").workers == 2


def test_a_team_whose_directory_may_not_be_read_leaves_the_other_templates(tmp_path: Path) -> None:
    class Closed(LocalBackend):
        def team_templates(self, namespace: str) -> tuple[TeamTemplate, ...]:
            raise NotAllowed(f"you may not read the templates of namespace '{namespace}'")

    closed = Templates(tmp_path / "own", Closed(Settings()), namespace="cv")
    closed.save("mine", JOB)
    found = closed.shelf()
    assert {one.name for one in found.items} == {"mine", *LIBRARY}
    assert (found.notice, found.may_share) == ("you may not read the templates of namespace 'cv'", False)


@pytest.mark.security
def test_a_shared_template_is_read_through_no_link_and_only_so_much_of_it(
    templates: Templates, tmp_path: Path
) -> None:
    team = tmp_path / "team" / "cv"
    team.mkdir(parents=True)
    (tmp_path / "victim").write_text("name: a\ncommand: [a]\n")
    (team / "link.yaml").symlink_to(tmp_path / "victim")
    (team / "dir.yaml").mkdir()
    os.mkfifo(team / "pipe.yaml")
    (team / "UP.yaml").write_text("name: a\ncommand: [a]\n")
    (team / "huge.yaml").write_bytes(b"name: a\ncommand: [a]\ndescription: " + b"x" * (2 * LARGEST))
    found = {one.name for one in templates.list() if one.origin is Origin.SHARED}
    assert found == {"huge"}
    assert (
        len(LocalBackend(Settings(templates=str(tmp_path / "team"))).team_templates("cv")[1].text) <= LARGEST
    )


def test_sharing_needs_a_place(tmp_path: Path) -> None:
    own = shelf(tmp_path)
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
    with pytest.raises(NotFound, match="you have no template 'hello'"):
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
    assert stat.S_IMODE((tmp_path / "team" / "cv" / "bert.yaml").stat().st_mode) == 0o644


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
    settings = Settings(home=str(tmp_path / "home"), templates=str(tmp_path / "team"))
    with Client(settings=settings, namespace="cv") as client:
        client.templates.save("bert", JOB)
        client.templates.share("bert")
        acts = [
            one
            for one in client.audit()
            if one.object_ref is not None and one.object_ref.resource == "templates"
        ]
    assert (tmp_path / "templates" / "bert.yaml").exists()
    assert (tmp_path / "team" / "cv" / "bert.yaml").exists()
    assert {one.verb for one in acts} == {"create"}
