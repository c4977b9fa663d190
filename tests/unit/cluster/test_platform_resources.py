"""The platform's resources: their definitions follow from the values, and the values read what they define."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tools import deploy

from mpijob.cluster import crds
from mpijob.model.platform.governance import (
    Engines,
    Management,
    NamespaceLimits,
    Platform,
    Queue,
    Retention,
    effective,
    limits_of,
    platform_of,
)

RICH = Platform(
    source="/sources",
    registry="mirror.example.org/kubeflow",
    engines=Engines(),
    runtimes=Management.REMOVED,
    queues=(Queue(name="shared", quota={"cpu": "400m", "nvidia.com/gpu": "8"}, namespaces=("team-a",)),),
    defaults=NamespaceLimits(max_workers=64, retention=Retention(audit_days=365)),
)


def schema_of(definition: dict[str, Any], part: str) -> dict[str, Any]:
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema["properties"][part]  # type: ignore[no-any-return] # plain JSON


def every_part(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [*schema.get("properties", {}).values()]
    inner += [schema[word] for word in ("items", "additionalProperties") if word in schema]
    return [schema, *(part for one in inner for part in every_part(one))]


@pytest.mark.thorough
def test_the_files_of_the_definitions_are_up_to_date() -> None:
    for path, text in deploy.written().items():
        assert path.read_text() == text, "run: python -m tools.deploy"


@pytest.mark.parametrize("definition", crds.documents(), ids=lambda one: one["metadata"]["name"])
def test_definitions_are_structural_and_governed_by_cluster_administrators(
    definition: dict[str, Any],
) -> None:
    spec = definition["spec"]
    assert spec["scope"] == "Cluster"
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    for part in every_part(schema):
        assert isinstance(part.get("type"), str), part
        assert "$ref" not in part
        assert "anyOf" not in part
    assert schema["properties"]["spec"]["description"]


def fits(document: dict[str, Any], schema: dict[str, Any]) -> bool:
    from jsonschema import Draft4Validator  # takes seconds to load: only who needs it pays

    return Draft4Validator(schema).is_valid(document)


@pytest.mark.thorough
@pytest.mark.parametrize("value", [Platform(), RICH])
def test_what_a_platform_says_fits_its_definition_and_is_read_back(value: Platform) -> None:
    document = msgspec.json.decode(msgspec.json.encode(value))
    assert fits(document, schema_of(crds.platform(), "spec"))
    assert platform_of({"spec": document}) == value


@pytest.mark.thorough
def test_a_newer_field_is_passed_over_and_an_impossible_one_refused() -> None:
    assert limits_of({"spec": {"maxWorkers": 8, "ofTheFuture": 1}}).max_workers == 8
    for wrong in ({"maxWorkers": 0}, {"enforcement": "Perhaps"}, {"maxDurationSeconds": -1}):
        with pytest.raises(msgspec.ValidationError):
            limits_of({"spec": wrong})
        assert not fits(wrong, schema_of(crds.limits(), "spec"))


def test_an_optional_part_stays_optional_when_something_of_it_is_said() -> None:
    said = platform_of(
        {"spec": {"engines": {"mpiOperator": {"version": "v0.8.2"}}, "services": {"page": {}}}}
    )
    assert said.engines.mpi_operator.management_state is Management.UNMANAGED
    assert said.services.page == Platform().services.page
    engines = schema_of(crds.platform(), "spec")["properties"]["engines"]["properties"]
    assert engines["mpiOperator"]["properties"]["managementState"]["default"] == "Unmanaged"
    assert engines["trainer"]["properties"]["managementState"]["default"] == "Managed"


def test_no_resource_means_no_limit_and_defaults_fill_what_is_left_open() -> None:
    assert limits_of(None) == NamespaceLimits()
    defaults = NamespaceLimits(max_workers=16, queue="main", max_duration_seconds=3600)
    own = NamespaceLimits(max_workers=64, allowed_images=("registry.example.org/*",))
    both = effective(own, defaults)
    assert (both.max_workers, both.queue, both.max_duration_seconds) == (64, "main", 3600)
    assert both.allowed_images == ("registry.example.org/*",)
    assert effective(None, defaults) == defaults
