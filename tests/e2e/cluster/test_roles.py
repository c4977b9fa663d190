"""Who may do what: each role is bound to a real user in a namespace of its own, and the server is asked.

The table is the promise: every cell that it does not name is denied. An access review answers for each; a
sample is tried with real requests.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.support import Place, a_job, eventually, own_place

from mpijob.backends.kubernetes.auth.kubeconfig import load
from mpijob.backends.kubernetes.client import resources
from mpijob.backends.kubernetes.client.api import Api, ApiError
from mpijob.backends.kubernetes.client.resources import Kind
from mpijob.errors import NotAllowed

ROLES = Path(__file__).parents[3] / "deploy" / "base" / "roles"
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
USER = "dave"  # known by a token, and with no right in these namespaces but what is bound here
pytestmark = [pytest.mark.testbed, pytest.mark.security]

LOOK, CHANGE = "get list watch", "update patch"
JOBS = ("trainer.kubeflow.org/trainjobs", "kubeflow.org/mpijobs")
RUNTIMES = "trainer.kubeflow.org/trainingruntimes"
_READ = {
    "pods": LOOK,
    "pods/log": "get",
    "events": LOOK,
    "batch/jobs": LOOK,
    "jobset.x-k8s.io/jobsets": LOOK,
    "kueue.x-k8s.io/localqueues": LOOK,
    "kueue.x-k8s.io/workloads": LOOK,
    "resourcequotas": "get list",
    "limitranges": "get list",
    "persistentvolumeclaims": "get list",
    "networking.k8s.io/networkpolicies": "get list",
    RUNTIMES: LOOK,
}
# role → resource → the verbs that are allowed; every other cell of VERBS × RESOURCES is denied
TABLE: dict[str, dict[str, str]] = {
    "mpijob-viewer": _READ | dict.fromkeys(JOBS, LOOK),
    "mpijob-creator": _READ
    | dict.fromkeys((*JOBS, RUNTIMES), f"{LOOK} create delete")
    | {"configmaps": "create"},
    "mpijob-editor": _READ
    | dict.fromkeys((*JOBS, RUNTIMES), f"{LOOK} create delete {CHANGE}")
    | {"configmaps": "create", "kueue.x-k8s.io/workloads": f"{LOOK} patch"},
    "mpijob-admin": _READ
    | dict.fromkeys((*JOBS, RUNTIMES), f"{LOOK} create delete {CHANGE} deletecollection")
    | {
        "configmaps": "create",
        "pods": f"{LOOK} delete",
        "kueue.x-k8s.io/workloads": f"{LOOK} patch",
        "networking.k8s.io/networkpolicies": f"{LOOK} create delete {CHANGE}",
        "rbac.authorization.k8s.io/rolebindings": f"{LOOK} create delete",
    },
    "mpijob-debugger": dict.fromkeys((*JOBS, "pods"), LOOK) | {"pods/log": "get", "pods/exec": "get create"},
    "mpijob-namespace-runtime-admin": {RUNTIMES: f"{LOOK} create delete {CHANGE}"},
    "mpijob-runtime-admin": {},  # nothing in a namespace: it is for the whole cluster
}
VERBS = f"{LOOK} create delete {CHANGE} deletecollection".split()
RESOURCES = sorted(
    {name for row in TABLE.values() for name in row}
    | {"secrets", "serviceaccounts", "serviceaccounts/token", "services", "pods/exec", "pods/portforward"}
    | {"pods/ephemeralcontainers", "apps/deployments", "rbac.authorization.k8s.io/roles"}
    | {f"{job}/status" for job in JOBS}
)


@pytest.fixture(scope="module")
def roles(kubeconfig: Path) -> Iterator[None]:
    """Have the roles on the cluster, and leave it as it was."""
    api = Api(load(path=str(kubeconfig)))
    missing = [name for name in TABLE if api.find(CLUSTER_ROLE.path("", name)) is None]
    words = ("apply", "--server-side", "--force-conflicts", "-k", str(ROLES))
    subprocess.run(
        ["kubectl", f"--kubeconfig={kubeconfig}", *words], check=True, capture_output=True, timeout=60
    )
    yield
    for name in missing:
        api.delete(CLUSTER_ROLE.path("", name))
    api.close()


def bind(place: Place, role: str, user: str = USER) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    place.put(ROLE_BINDING, role, roleRef=reference, subjects=[subject])


def may(api: Api, namespace: str, verb: str, resource: str) -> bool:
    group, _, rest = (
        resource.rpartition("/") if resource.count("/") == 1 and "." in resource else ("", "", resource)
    )
    if resource.startswith(("batch/", "apps/")) or resource.count("/") == 2:
        group, _, rest = resource.partition("/")
    plural, _, sub = rest.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": sub}
    body = {"apiVersion": resources.ACCESS_REVIEW.api, "kind": resources.ACCESS_REVIEW.name}
    made = api.create(resources.ACCESS_REVIEW.path(), body | {"spec": {"resourceAttributes": asked}})
    return bool(made["status"].get("allowed"))


@pytest.mark.req("FR-024", "C-roles", "D-roles", "Q-OBS-003")
@pytest.mark.parametrize("role", TABLE)
def test_a_role_may_do_what_the_table_says_and_nothing_else(
    roles: None, kubeconfig: Path, kubeconfig_of: Callable[[str], Path], role: str
) -> None:
    with own_place(kubeconfig, "roles") as place, Api(load(path=str(kubeconfig_of(USER)))) as api:
        bind(place, role)
        if first := next(iter(TABLE[role]), ""):
            eventually(lambda: may(api, place.namespace, TABLE[role][first].split()[0], first), "it is bound")
        allowed = {
            (resource, verb)
            for resource in RESOURCES
            for verb in VERBS
            if may(api, place.namespace, verb, resource)
        }
        assert allowed == {(name, verb) for name, verbs in TABLE[role].items() for verb in verbs.split()}


@pytest.mark.req("FR-024", "C-roles", "D-roles")
@pytest.mark.parametrize(
    ("general", "given", "kept_back"),
    [
        ("view", {("get", JOBS[0]), ("get", "pods/log")}, {("create", JOBS[0]), ("patch", JOBS[1])}),
        ("edit", {("create", JOBS[0]), ("patch", JOBS[1])}, {("deletecollection", JOBS[0])}),
        ("admin", {("deletecollection", JOBS[0]), ("create", RUNTIMES)}, {("update", f"{JOBS[1]}/status")}),
    ],
)
def test_the_roles_of_kubernetes_take_ours_up(
    roles: None,
    kubeconfig: Path,
    kubeconfig_of: Callable[[str], Path],
    general: str,
    given: set[tuple[str, str]],
    kept_back: set[tuple[str, str]],
) -> None:
    with own_place(kubeconfig, "roles") as place, Api(load(path=str(kubeconfig_of(USER)))) as api:
        bind(place, general)
        for verb, resource in given:
            eventually(
                lambda verb=verb, resource=resource: may(api, place.namespace, verb, resource),  # type: ignore[misc]  # bound per turn
                f"{general} may {verb} {resource}",
            )
        refused = {one for one in kept_back if not may(api, place.namespace, *one)}
        theirs = kept_back - refused
        assert not theirs or general != "view", theirs


def test_no_role_is_for_everybody_and_none_reads_secrets() -> None:
    documents = [one for one in yaml.safe_load_all((ROLES / "roles.yaml").read_text()) if one]
    assert {one["kind"] for one in documents} == {"ClusterRole"}  # no binding: who gets what is a decision
    rules: list[Mapping[str, Any]] = [rule for one in documents for rule in one["rules"]]
    assert not [rule for rule in rules if "*" in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])]
    assert not [rule for rule in rules if "secrets" in rule["resources"]]
    assert not [rule for rule in rules for name in rule["resources"] if name.endswith("/status")]


@pytest.mark.req("FR-024", "FR-023")
def test_a_creator_runs_and_deletes_a_job_and_a_viewer_only_looks(
    roles: None, kubeconfig: Path, kubeconfig_of: Callable[[str], Path]
) -> None:
    with own_place(kubeconfig, "roles") as place:
        bind(place, "mpijob-creator", "dave")
        bind(place, "mpijob-viewer", "bob")
        dave = Place(kubeconfig_of("dave"), place.namespace, place.settings.home)
        bob = Place(kubeconfig_of("bob"), place.namespace, place.settings.home)
        job = dave.succeeded(a_job("made", "echo rank"))
        assert [one.ref.name for one in bob.client.list(namespace=place.namespace).items] == ["made"]
        assert "rank" in bob.mpijob("logs", "made").stdout
        with pytest.raises(NotAllowed, match="lacks 'create' permission"):
            bob.client.submit(a_job("refused"))
        with pytest.raises(ApiError) as refused:
            bob.api.delete(resources.TRAINJOB.path(place.namespace, "made"))
        assert refused.value.status == 403
        with pytest.raises(ApiError) as unread:
            dave.api.list(resources.SECRET.path(place.namespace))
        assert unread.value.status == 403
        job.delete()
        for one in (dave, bob):
            one.client.close()
            one.api.close()


@pytest.mark.req("FR-024")
def test_an_admin_of_a_namespace_gives_our_roles_and_no_others(
    roles: None, kubeconfig: Path, kubeconfig_of: Callable[[str], Path]
) -> None:
    with own_place(kubeconfig, "roles") as place, Api(load(path=str(kubeconfig_of(USER)))) as api:
        bind(place, "mpijob-admin")
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}

        def give(role: str) -> int:
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
            body = {
                "apiVersion": ROLE_BINDING.api,
                "kind": "RoleBinding",
                "metadata": {"name": f"give-{role}"},
            }
            try:
                api.create(
                    ROLE_BINDING.path(place.namespace), body | {"roleRef": reference, "subjects": [subject]}
                )
            except ApiError as error:
                return error.status
            return 201

        eventually(lambda: give("mpijob-viewer") in (201, 409), "the administrator is bound")
        assert {
            role: give(role) for role in ("mpijob-debugger", "cluster-admin", "edit", "mpijob-admin")
        } == {
            "mpijob-debugger": 201,
            "cluster-admin": 403,
            "edit": 403,
            "mpijob-admin": 201,  # what one has oneself, one may hand on
        }
