"""Access of a server's visitors to the cluster, with their own tokens.

Such an access contains nothing of the server's own identity: no certificate, no token file, no plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mpijob.backends.kubernetes.auth.access import Access
from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.errors import Finding, InvalidJob
from mpijob.model import MPIJob
from mpijob.model.platform.permission import Question
from mpijob.outbound import policy
from mpijob.outbound.policy import Policy

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api
    from mpijob.settings import Settings

AGAIN = "sign in again: your cluster session has expired"
_LANES = 8


def access_of(server: Access, token: str) -> Access:
    """Return the access of a visitor with this token to the cluster of a server."""
    return Access(
        server=server.server,
        namespace=server.namespace,
        context=server.context,
        cluster=server.cluster,
        user="a visitor",
        ca=server.ca,
        token=token,
        proxy=server.proxy,
        tls_server_name=server.tls_server_name,
        insecure=server.insecure,
        compress=server.compress,
        again=AGAIN,
    )


def outbound(settings: Settings, server: Access) -> Policy:
    """Return where a server may connect on behalf of visitors."""
    # Not to the API server or services of the platform: they trust the network that this server is in.
    services = (
        settings.broker,
        settings.history_database,
        settings.loki,
        settings.mlflow,
        settings.model_registry,
        settings.prometheus,
        settings.traces,
    )
    return policy.server_policy(settings.outbound, (urlsplit(server.server).hostname or "", *services))


def check_access(api: Api, questions: Sequence[Question]) -> tuple[bool, ...]:
    """Return the API server's decisions, from access reviews with the visitor's own token."""
    calls = {
        str(at): (lambda question=question: _allowed(api, question)) for at, question in enumerate(questions)
    }
    results = concurrent.together(calls, min(_LANES, api.lanes()))
    for answer in results.values():
        if answer.error is not None:
            raise answer.error
    return tuple(bool(results[str(at)].value) for at in range(len(questions)))


def _allowed(api: Api, question: Question) -> bool:
    name, _, group = question.resource.partition(".")
    resource, _, sub = name.partition("/")
    attributes = {
        "namespace": question.namespace,
        "verb": question.verb,
        "group": group,
        "resource": resource,
        "subresource": sub,
        **({"name": question.name} if question.name else {}),
    }
    body = {"apiVersion": resources.ACCESS_REVIEW.api, "kind": resources.ACCESS_REVIEW.name}
    review = api.create(resources.ACCESS_REVIEW.path(), body | {"spec": {"resourceAttributes": attributes}})
    return bool((review.get("status") or {}).get("allowed"))


def refuse_own_files(job: MPIJob) -> None:
    """Raise InvalidJob for a job that would read files or variables of the server's machine."""
    wrong = []
    if job.code.path:
        message = f"files of this server cannot be uploaded with a job: code.path is {job.code.path!r}"
        hint = "put the code into the image, a volume or code.files; `mpijob create` uploads a directory"
        wrong.append(Finding("SERVER_FILES", message, hint, field="code.path"))
    if job.code.git.url:
        message = f"this server fetches no repositories for visitors: code.git is {job.code.git.url!r}"
        hint = "`mpijob create` fetches it with your own git; or put the code into the image or code.files"
        wrong.append(Finding("SERVER_FILES", message, hint, field="code.git"))
    for at, secret in enumerate(job.secrets):
        if secret.source.startswith(("env:", "file:")):
            message = f"a job cannot use secrets of this server: {secret.env} is from {secret.source!r}"
            hint = "keep it in a Secret of your namespace and name it as NAME/KEY"
            wrong.append(Finding("SERVER_FILES", message, hint, field=f"secrets[{at}].source"))
    if wrong:
        raise InvalidJob.of(tuple(wrong))
