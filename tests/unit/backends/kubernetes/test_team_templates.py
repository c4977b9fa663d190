"""Templates of a namespace as keys of one config map."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kube_store import Store

from mpijob.backends.kubernetes.actions.team_templates import NAME, SharedTemplates
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api_errors import ApiError
from mpijob.errors import InvalidJob, NotAllowed
from mpijob.model.team_template import TeamTemplate

PATH = resources.CONFIG_MAP.path("cv", NAME)


def a_template(name: str = "bert", text: str = "name: a\n") -> TeamTemplate:
    return TeamTemplate("cv", name, text, "ann")


class Refusing(Store):
    """An API server that refuses one verb."""

    def __init__(self, verb: str) -> None:
        super().__init__()
        self.refused = verb

    def get(self, path: str, **query: Any) -> Any:
        self._judge("get")
        return super().get(path, **query)

    def patch(self, path: str, body: Any, **more: Any) -> Any:
        self._judge("patch")
        return super().patch(path, body, **more)

    def _judge(self, verb: str) -> None:
        if verb == self.refused:
            raise ApiError("forbidden", status=403)


def test_two_templates_are_two_keys_of_one_object_with_who_saved_them() -> None:
    api = Store()
    shared = SharedTemplates(api)
    for name in ("gpt", "bert"):
        shared.save(a_template(name), overwrite=False)
    assert [(one.name, one.owner, one.changed > 0) for one in shared.all("cv")] == [
        ("bert", "ann", True), ("gpt", "ann", True),
    ]  # fmt: skip
    assert set(api.objects[PATH]["data"]) == {"bert.yaml", "gpt.yaml"}
    shared.delete("cv", "bert")
    assert [one.name for one in shared.all("cv")] == ["gpt"]
    assert not any("bert" in key for key in api.objects[PATH]["metadata"]["annotations"])


def test_what_somebody_put_there_by_hand_is_shown_or_passed_over() -> None:
    api = Store()
    notes = {"template.mpijob.dev/odd": "no json"}
    metadata = {"name": NAME, "namespace": "cv", "annotations": notes}
    api.objects[PATH] = {"metadata": metadata, "data": {"odd.yaml": "x", "README": "not a template"}}
    assert SharedTemplates(api).all("cv") == (TeamTemplate("cv", "odd", "x"),)


@pytest.mark.security
def test_who_may_not_read_or_write_is_told_so() -> None:
    with pytest.raises(NotAllowed, match="may not read the templates of namespace 'cv'"):
        SharedTemplates(Refusing("get")).all("cv")
    api = Refusing("patch")
    shared = SharedTemplates(api)
    shared.save(a_template(), overwrite=False)
    with pytest.raises(NotAllowed):
        shared.save(a_template("gpt"), overwrite=False)


def test_more_than_a_config_map_holds_is_refused_before_it_is_sent() -> None:
    shared = SharedTemplates(Store())
    for at in range(4):
        shared.save(a_template(f"t{at}", "x" * 220_000), overwrite=False)
    with pytest.raises(InvalidJob, match="would exceed 900000 bytes in total"):
        shared.save(a_template("t4", "x" * 220_000), overwrite=False)
    shared.save(a_template("t3", "small"), overwrite=True)
    shared.save(a_template("t4", "x" * 220_000), overwrite=False)
