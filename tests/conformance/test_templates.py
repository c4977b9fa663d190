"""Templates that a namespace shares: saved by one, used by all who may, under the rights of the place."""

from __future__ import annotations

import pytest

from mpijob import Client, MPIJob
from mpijob.client.submit.templates import Origin
from mpijob.errors import Conflict, InvalidJob, NotFound

from .builders import place

JOB = MPIJob(name="bert", workers=8, command=("train",), env={"LR": "0.1"}, description="fine-tune")


def shared(client: Client, namespace: str) -> list[str]:
    return [one.name for one in client.templates.list(namespace) if one.origin is Origin.SHARED]


@pytest.mark.req("PMV-010")
def test_a_shared_template_is_seen_by_another_client_of_the_namespace_and_by_no_other_namespace(
    client: Client,
) -> None:
    one, other = place.namespaces
    client.templates.save("bert", JOB, share=True, namespace=one)
    with Client(client.backend, settings=client.settings, namespace=one) as colleague:
        (found,) = [item for item in colleague.templates.list() if item.origin is Origin.SHARED]
        assert (found.name, found.namespace, found.description) == ("bert", one, "fine-tune")
        assert found.owner == client.whoami().user
        assert found.changed > 0
        assert found.writable
        assert colleague.templates.show("bert") == JOB
        assert colleague.templates.use("bert", {"env.LR": 0.2}, workers=2).env == {"LR": "0.2"}
        assert shared(colleague, other) == []
        colleague.templates.delete("bert", shared=True)
    assert shared(client, one) == []


def test_a_shared_template_is_not_overwritten_by_accident_and_changes_as_one(client: Client) -> None:
    namespace = place.namespaces[0]
    client.templates.save("bert", JOB, share=True, namespace=namespace)
    client.templates.save("gpt", JOB.replace(workers=3), share=True, namespace=namespace)
    with pytest.raises(Conflict, match="shares a template 'bert' already"):
        client.templates.save("bert", JOB.replace(workers=2), share=True, namespace=namespace)
    client.templates.save("bert", JOB.replace(workers=2), share=True, namespace=namespace, overwrite=True)
    assert client.templates.show("bert", namespace).workers == 2
    assert client.templates.show("gpt", namespace).workers == 3
    for name in ("bert", "gpt"):
        client.templates.delete(name, shared=True, namespace=namespace)
    with pytest.raises(NotFound, match="bert"):
        client.templates.delete("bert", shared=True, namespace=namespace)


@pytest.mark.security
def test_what_looks_like_a_secret_is_not_shared(client: Client) -> None:
    job = JOB.replace(env={"API_TOKEN": "canary-8f3a"})
    with pytest.raises(InvalidJob, match="API_TOKEN") as caught:
        client.templates.save("bert", job, share=True, namespace=place.namespaces[0])
    assert "canary" not in str(caught.value)
    assert shared(client, place.namespaces[0]) == []
