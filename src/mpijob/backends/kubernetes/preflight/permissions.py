"""The user's permissions in a namespace, from one rules review, and access reviews only where it is incomplete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mpijob.backends.kubernetes.client import concurrent, resources
from mpijob.formats.kubernetes.metadata.well_known import Document
from mpijob.formats.sizing.engine_selection import Engine
from mpijob.model import MPIJob

if TYPE_CHECKING:
    from mpijob.backends.kubernetes.client.api import Api


class Right(NamedTuple):
    """A verb on a kind of object."""

    verb: str
    resource: str
    group: str = ""
    sub: str = ""

    def __str__(self) -> str:
        name = f"{self.resource}/{self.sub}" if self.sub else self.resource
        return f"{self.verb} {name}" + (f".{self.group}" if self.group else "")


_TRAINER, _OPERATOR = resources.TRAINJOB.group, resources.MPIJOB.group
TO_CREATE = {
    Engine.TRAINER: (
        Right("create", "trainingruntimes", _TRAINER),
        Right("create", "trainjobs", _TRAINER),
    ),
    Engine.MPI_OPERATOR: (Right("create", "mpijobs", _OPERATOR),),
}
_KIND = {Engine.TRAINER: ("trainjobs", _TRAINER), Engine.MPI_OPERATOR: ("mpijobs", _OPERATOR)}
_ON_THE_JOB = {"get": "get", "list": "list", "delete": "delete", "cancel": "patch"}
LOGS, EXEC = Right("get", "pods", sub="log"), Right("create", "pods", sub="exec")
SEE_PODS = Right("list", "pods")
NETWORK = tuple(Right(verb, "networkpolicies", "networking.k8s.io") for verb in ("create", "patch"))
CREATE_FILES, CREATE_SECRETS = Right("create", "configmaps"), Right("create", "secrets")


class Rights:
    """The user's permissions, as far as the server reported them."""

    def __init__(self, allowed: Mapping[Right, bool]) -> None:
        self._allowed = allowed

    def may(self, right: Right) -> bool:
        """Return whether the user has the permission; True for one that was not checked, which the server decides."""
        return self._allowed.get(right, True)

    def lacking(self, rights: Iterable[Right]) -> tuple[str, ...]:
        """Return the missing permissions as texts for messages."""
        return tuple(str(right) for right in rights if not self.may(right))

    def verbs(self, engine: Engine) -> frozenset[str]:
        """Return the job verbs (`create`, `logs` …) that the user has with an engine."""
        plural, group = _KIND[engine]
        found = {word for word, verb in _ON_THE_JOB.items() if self.may(Right(verb, plural, group))}
        if not self.lacking(TO_CREATE[engine]):
            found.add("create")
        found |= {word for word, right in (("logs", LOGS), ("exec", EXEC)) if self.may(right)}
        return frozenset(found)


def additional(job: MPIJob) -> tuple[Right, ...]:
    """Return the permissions that a job needs besides those on its kind."""
    needed = [CREATE_FILES] if job.code.path or job.code.files else []
    if any(secret.source.startswith(("env:", "file:")) for secret in job.secrets):
        needed.append(CREATE_SECRETS)
    return tuple(needed)


def review(api: Api, namespace: str) -> Rights:
    """Return the user's permissions in a namespace."""
    body = {"apiVersion": resources.RULES_REVIEW.api, "kind": resources.RULES_REVIEW.name}
    status = api.create(resources.RULES_REVIEW.path(), body | {"spec": {"namespace": namespace}})["status"]
    rules = status.get("resourceRules") or ()
    allowed = {right: any(_covers(rule, right) for rule in rules) for right in all_rights()}
    # Webhook authorizers cannot list their rules, so what is missing may be allowed.
    if status.get("incomplete") and not all(allowed.values()):
        allowed |= _check_each(api, namespace, [right for right, ok in allowed.items() if not ok])
    return Rights(allowed)


def all_rights() -> tuple[Right, ...]:
    """Return every permission that a job may need."""
    on_jobs = [
        Right(verb, plural, group) for plural, group in _KIND.values() for verb in _ON_THE_JOB.values()
    ]
    creating = [right for rights in TO_CREATE.values() for right in rights]
    return (*on_jobs, *creating, LOGS, EXEC, SEE_PODS, CREATE_FILES, CREATE_SECRETS, *NETWORK)


def _covers(rule: Mapping[str, Any], right: Right) -> bool:
    # The rule is valid for some objects only.
    if rule.get("resourceNames"):
        return False
    name = f"{right.resource}/{right.sub}" if right.sub else right.resource
    names = {"*", name, *([f"*/{right.sub}"] if right.sub else ())}
    return (
        bool({"*", right.verb} & set(rule.get("verbs") or ()))
        and bool({"*", right.group} & set(rule.get("apiGroups") or ()))
        and bool(names & set(rule.get("resources") or ()))
    )


def _check_each(api: Api, namespace: str, rights: Iterable[Right]) -> dict[Right, bool]:
    # Access reviews work with every authorizer.
    names = {str(right): right for right in rights}
    results = concurrent.together(
        {name: lambda right=right: _access(api, namespace, right) for name, right in names.items()}  # type: ignore[misc]  # the default binds each right
    )
    return {right: bool(results[name].value) for name, right in names.items()}


def _access(api: Api, namespace: str, right: Right) -> bool:
    attributes: Document = {
        "namespace": namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.sub,
    }
    body = {"apiVersion": resources.ACCESS_REVIEW.api, "kind": resources.ACCESS_REVIEW.name}
    created = api.create(resources.ACCESS_REVIEW.path(), body | {"spec": {"resourceAttributes": attributes}})
    return bool(created["status"].get("allowed"))
