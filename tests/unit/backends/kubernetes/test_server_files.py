"""What a visitor's job may not take from the machine on which the page's server runs."""

from __future__ import annotations

import pytest

from mpijob.backends.kubernetes.auth import delegated
from mpijob.errors import InvalidJob
from mpijob.model import Code, GitSource, MPIJob, Secret

pytestmark = pytest.mark.security


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"code": Code(path="/etc")}, "code.path"),
        ({"code": Code(git=GitSource(url="http://169.254.169.254/x"))}, "code.git"),
        ({"secrets": (Secret(env="A", source="file:/etc/shadow"),)}, "secrets[0].source"),
    ],
)
def test_a_visitors_job_takes_nothing_of_the_server_along(fields: dict[str, object], named: str) -> None:
    job = MPIJob(name="j", image="x", command=("true",)).replace(**fields)
    with pytest.raises(InvalidJob) as refused:
        delegated.refuse_own_files(job)
    assert [(one.code, one.field) for one in refused.value.findings] == [("SERVER_FILES", named)]
