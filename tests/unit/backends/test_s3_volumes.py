"""S3 volumes in words: what a job file may say, what pods get, and that no key is in any of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.cluster_support import a_job, a_rich_job

from mpijob import checks
from mpijob.backends.s3_volumes import Connection, find_connection, from_variables, split_source
from mpijob.errors import InvalidJob
from mpijob.formats.jobfile import jobfile_reader
from mpijob.formats.kubernetes import mpijob, pod_template, trainjob
from mpijob.formats.kubernetes.metadata.well_known import Shape
from mpijob.model import Role, Volume, VolumeKind
from mpijob.settings import ObjectsSetting

SHAPE = Shape(service_image="services:1", user=1000)
IN = Volume(mount="/in", kind=VolumeKind.S3, source="lake/train/2026", read_only=True)
OUT = Volume(mount="/out", kind=VolumeKind.S3, source="lake/results")


@pytest.mark.req("D-storage", "Q14", "AC7")
def test_pods_fetch_every_volume_and_workers_store_those_that_may_be_written_to() -> None:
    job = a_job(volumes=(IN, OUT))
    worker = pod_template.template(job, SHAPE, Role.WORKER)["spec"]
    launcher = pod_template.template(job, SHAPE, Role.LAUNCHER)["spec"]
    for pod in (worker, launcher):
        assert [one["name"] for one in pod["initContainers"]] == [
            "mpijob-prepare",
            "mpijob-fetch-0",
            "mpijob-fetch-1",
        ]
    assert [one["name"] for one in worker["containers"]] == ["node", "mpijob-keep-1"]
    assert [one["name"] for one in launcher["containers"]] == ["node"]
    fetch = worker["initContainers"][1]
    assert (fetch["image"], fetch["args"]) == (
        "services:1",
        ["data", "fetch", "env/train/2026", "/mpijob/data"],
    )
    assert fetch["envFrom"] == [{"secretRef": {"name": "lake"}}]
    assert "envFrom" not in worker["containers"][0]  # the user's own container never sees the keys
    variables = {one["name"]: one["value"] for one in fetch["env"]}
    # the home is the volume: a profile that a job writes there must not count
    assert variables["HOME"] == "/mpijob/data"
    assert {variables["AWS_CONFIG_FILE"], variables["AWS_SHARED_CREDENTIALS_FILE"]} == {"/dev/null"}
    assert {"name": "mpijob-volume-0", "mountPath": "/in", "readOnly": True} in worker["containers"][0][
        "volumeMounts"
    ]
    assert worker["terminationGracePeriodSeconds"] == launcher["terminationGracePeriodSeconds"] + 600


@pytest.mark.parametrize("dialect", [trainjob, mpijob])
def test_a_job_with_s3_volumes_reads_back_as_itself_with_nothing_foreign(dialect: Any) -> None:
    wanted = a_rich_job(volumes=(IN, OUT))
    read = dialect.read(dialect.write(wanted, SHAPE))
    assert read.job == wanted
    assert read.foreign.documents == ()


def test_a_job_file_says_it_in_one_line_and_the_words_are_checked() -> None:
    job = jobfile_reader.read(
        "name: a\ncommand: [x]\nvolumes: [{mount: /in, kind: s3, source: lake/train}]\n"
    )
    assert job.volumes == (Volume(mount="/in", kind=VolumeKind.S3, source="lake/train"),)
    for source in ("", "Lake/x", "lake//x", "lake/../x"):
        wrong = job.replace(volumes=(Volume(mount="/in", kind=VolumeKind.S3, source=source),))
        assert [one.code for one in checks.run(wrong)] == ["BAD_VOLUME"], source


@pytest.mark.security
def test_a_connection_shows_no_key_and_says_what_it_lacks() -> None:
    assert "k3y" not in repr(Connection("https://s3", "b", "a", "k3y"))
    with pytest.raises(InvalidJob, match="lacks AWS_S3_BUCKET, AWS_SECRET_ACCESS_KEY"):
        from_variables({"AWS_S3_ENDPOINT": "https://s3", "AWS_ACCESS_KEY_ID": "a"})
    with pytest.raises(InvalidJob, match="cannot read the key file"):
        find_connection("lake", {"lake": ObjectsSetting("https://s3", "b", secret_key_file="/nowhere")}, {})
    assert split_source("lake/a/b") == ("lake", "a/b")
