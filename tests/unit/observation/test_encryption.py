"""What of a job is encrypted: told for each of its ways and places, and nothing promised that nobody does."""

from __future__ import annotations

import pytest
from tests.unit.preflight_support import a_job

from mpijob.model import Secret, Volume, VolumeKind
from mpijob.observation.redaction.encryption import Encrypted, protections


@pytest.mark.req("C-encrypt", "Q-SEC-002")
def test_on_a_cluster_the_start_is_encrypted_and_mpi_data_is_not() -> None:
    told = {one.what: one.encrypted for one in protections(a_job(), cluster=True)}
    assert told == {"starting ranks": Encrypted.YES, "MPI data between workers": Encrypted.NO}
    here = protections(a_job(), cluster=False)
    assert [one.encrypted for one in here] == [Encrypted.LOCAL]


@pytest.mark.req("C-encrypt")
def test_every_server_and_volume_of_the_job_is_told_and_no_password() -> None:
    env = {
        "AWS_S3_ENDPOINT": "https://key:hidden@s3.example.org",
        "MLFLOW_TRACKING_URI": "http://mlflow.tracking.svc:5000",
        "NOTE": "see http docs",
        "ODD": "http://[broken",
    }
    volumes = tuple(Volume(mount=f"/{kind}", kind=kind, source="x") for kind in VolumeKind)
    job = a_job(env=env, volumes=volumes, secrets=(Secret(env="TOKEN", source="a/b"),))
    found = protections(job, cluster=True)
    told = {one.what: one.encrypted for one in found}
    assert told["AWS_S3_ENDPOINT (s3.example.org)"] is Encrypted.YES
    assert told["MLFLOW_TRACKING_URI (mlflow.tracking.svc)"] is Encrypted.NO
    assert not any(what.startswith(("NOTE", "ODD")) for what in told)
    assert all(told[f"volume /{kind}"] in (Encrypted.DEPENDS, Encrypted.LOCAL) for kind in VolumeKind)
    assert told["secrets in environment variables"] is Encrypted.DEPENDS
    assert "hidden" not in str(found)
