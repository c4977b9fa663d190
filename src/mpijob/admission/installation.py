"""Findings of `mpijob doctor` about the engines of a cluster: installed, compatible, responding.

Incompatible versions are data, each with its effect; the sources are the engines' issue threads (kueue#11931:
admitted, but suspended forever). The cluster is read by its engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from mpijob.errors import Finding, Severity
from mpijob.model.platform.installation import Answering, Component, Installation, Product

ERROR, WARNING, NOTICE = _ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTICE)
# Versions that this project is tested with.
TESTED = {
    Product.KUBERNETES: (1, 34),
    Product.TRAINER: (2, 2),
    Product.JOBSET: (0, 12),
    Product.MPI_OPERATOR: (0, 8),
    Product.KUEUE: (0, 19),
}
OLDEST_KUBERNETES = (1, 27)
_LOW_QPS, _DEFAULT_QPS = 10.0, 5.0
_LARGE_JOB = 100


class VersionConflict(msgspec.Struct, frozen=True):
    """Two products with incompatible versions: bounds are `from` (inclusive) and `below` (exclusive)."""

    first: Product
    first_from: tuple[int, ...]
    first_below: tuple[int, ...]
    second: Product
    second_from: tuple[int, ...]
    second_below: tuple[int, ...]
    effect: str
    remedy: str


_ANY_NEWER = (9999,)
VERSION_CONFLICTS = (
    VersionConflict(
        Product.KUEUE, (0, 17), _ANY_NEWER, Product.TRAINER, (0,), (2, 2),
        "Kueue sets runtimePatches, which this Trainer does not support: queued jobs are admitted, but stay suspended",
        "upgrade Trainer to 2.2 or later, or use Kueue 0.16",
    ),
    VersionConflict(
        Product.KUEUE, (0, 15), (0, 17), Product.TRAINER, (2, 2), _ANY_NEWER,
        "Kueue sets podTemplateOverrides, which this Trainer removed: queued jobs are admitted, but stay suspended",
        "upgrade Kueue to 0.17 or later",
    ),
    VersionConflict(
        Product.KUEUE, (0, 15), (0, 17), Product.TRAINER, (0,), (2, 1),
        "Kueue sets podTemplateOverrides, introduced in Trainer 2.1: queued jobs are admitted, but stay suspended",
        "upgrade Trainer to 2.1, or both: Kueue 0.17 with Trainer 2.2",
    ),
    VersionConflict(
        Product.KUEUE, (0,), (0, 15), Product.TRAINER, (2, 1), _ANY_NEWER,
        "this Kueue was built for Trainer 2.0: queued jobs are admitted, but stay suspended",
        "upgrade Kueue to 0.17 or later",
    ),
    VersionConflict(
        Product.JOBSET, (0,), (0, 8), Product.TRAINER, (2, 0), _ANY_NEWER,
        "JobSet before 0.8 has no dependsOn: the launcher starts before its workers",
        "upgrade JobSet to 0.8 or later",
    ),
)  # fmt: skip
# Known bugs of single versions: from, below, effect, remedy.
_KNOWN_BUGS = {
    Product.KUEUE: (
        ((0, 19), (0, 20), "drops tolerations of a runtime on admission (kueue#15162): pods may not be scheduled",
         "upgrade Kueue to 0.20, or set the tolerations in the flavor"),
    ),
    Product.MPI_OPERATOR: (
        ((0,), (0, 8), "numbers workers in another order than Kueue's topology-aware placement (kueue#8471)",
         "upgrade the MPI Operator to 0.8 if placement matters"),
    ),
}  # fmt: skip


def examine(installation: Installation) -> tuple[Finding, ...]:
    """Return what is installed, incompatible or not responding, errors first."""
    parts = (
        _engines(installation),
        _version_conflicts(installation),
        _legacy_operator(installation),
        _silent_webhooks(installation),
        _unready_components(installation),
        _known_bugs(installation),
        _operator_options(installation),
        _optional_apis(installation),
        _versions(installation),
        _keys(installation),
        _unread(installation),
    )
    findings = [finding for part in parts for finding in part]
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity)))


def cluster_finding(context: str, server: str) -> Finding:
    """Return which cluster responded."""
    return finding("DOCTOR_OK", NOTICE, f"cluster {context} responds at {server}")


def permission_findings(
    namespace: str, lacks: Mapping[str, tuple[str, ...]], others: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield the user's missing permissions in a namespace: for each engine, and others."""
    ask = f"ask an administrator of namespace '{namespace}'"
    usable = [name for name, missing in lacks.items() if not missing]
    for name, missing in lacks.items():
        if not missing:
            continue
        message = (
            f"no permission to run jobs with {name} in namespace '{namespace}': missing {', '.join(missing)}"
        )
        yield (
            finding("DOCTOR_RIGHTS", WARNING, message, ask)
            if usable
            else finding("DOCTOR_RIGHTS", ERROR, message, ask)
        )
    if usable:
        yield finding(
            "DOCTOR_OK", NOTICE, f"you may create jobs in namespace '{namespace}' ({', '.join(usable)})"
        )
    if others:
        yield finding(
            "DOCTOR_RIGHTS",
            NOTICE,
            f"missing permissions in namespace '{namespace}': {', '.join(others)}",
            ask,
        )


def parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: `0.19.2-rc.1` is (0, 19, 2); () if unknown."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0]))


def _engines(installation: Installation) -> Iterator[Finding]:
    trainer, jobset = installation.find(Product.TRAINER), installation.find(Product.JOBSET)
    operator = installation.find(Product.MPI_OPERATOR)
    if trainer is None and operator is None:
        message = "neither Kubeflow Trainer nor the MPI Operator is installed: no job can run here"
        yield finding(
            "DOCTOR_ENGINE",
            ERROR,
            message,
            "install Kubeflow Trainer 2.2 with JobSet, or the MPI Operator 0.8",
        )
    elif operator is None:
        message = "the MPI Operator is not installed: jobs with MPICH or Intel MPI cannot run here"
        yield finding("DOCTOR_ENGINE", WARNING, message, "install the MPI Operator 0.8 if you need such jobs")
    elif trainer is None:
        message = "Kubeflow Trainer is not installed: all jobs use the MPI Operator"
        yield finding(
            "DOCTOR_ENGINE", WARNING, message, "no action needed, unless you run jobs of the Kubeflow SDK"
        )
    if trainer is not None and jobset is None:
        message = "JobSet is not installed, and Kubeflow Trainer cannot start jobs without it"
        yield finding("DOCTOR_ENGINE", ERROR, message, "install JobSet 0.12")
    if installation.find(Product.KUEUE) is None:
        message = "Kueue is not installed: jobs are not queued; quotas reject jobs instead of delaying them"
        yield finding("DOCTOR_OK", NOTICE, message)


def _version_conflicts(installation: Installation) -> Iterator[Finding]:
    for clash in VERSION_CONFLICTS:
        first, second = installation.find(clash.first), installation.find(clash.second)
        if first is None or second is None:
            continue
        if _within(first, clash.first_from, clash.first_below) and _within(
            second, clash.second_from, clash.second_below
        ):
            message = (
                f"{first.product} {first.version} and {second.product} {second.version} are incompatible: "
                f"{clash.effect}"
            )
            yield finding("DOCTOR_PAIR", ERROR, message, clash.remedy)


def _within(component: Component, lower: tuple[int, ...], upper: tuple[int, ...]) -> bool:
    version = parse_version(component.version)
    return bool(version) and lower <= version < upper


def _legacy_operator(installation: Installation) -> Iterator[Finding]:
    if installation.old_mpijob:
        message = (
            "MPIJob is served as kubeflow.org/v1 by the Training Operator: the MPI Operator's MPIJob has the "
            "same name, so only one of the two can be installed"
        )
        hint = "remove the Training Operator's MPIJob, then install the MPI Operator 0.8"
        served = "kubeflow.org/v2beta1" in installation.served
        yield finding("DOCTOR_OLD_MPIJOB", WARNING if served else ERROR, message, hint)


def _silent_webhooks(installation: Installation) -> Iterator[Finding]:
    for service in installation.silent_webhooks:
        message = f"webhook service {service} has no ready endpoint: all creations of its kinds are rejected"
        yield finding(
            "DOCTOR_WEBHOOK",
            ERROR,
            message,
            f"check its pods: kubectl get pods -n {service.partition('/')[0]}",
        )


def _unready_components(installation: Installation) -> Iterator[Finding]:
    for component in installation.components:
        if component.ready is False:
            namespace, _, name = component.place.partition("/")
            message = f"{component.product} is installed ({component.place}), but not ready: its jobs do not progress"
            yield finding(
                "DOCTOR_ENGINE", ERROR, message, f"kubectl describe deployment {name} -n {namespace}"
            )


def _known_bugs(installation: Installation) -> Iterator[Finding]:
    for component in installation.components:
        for lower, upper, effect, remedy in _KNOWN_BUGS.get(component.product, ()):
            if _within(component, lower, upper):
                yield finding(
                    "DOCTOR_PAIR", NOTICE, f"{component.product} {component.version} {effect}", remedy
                )


def _operator_options(installation: Installation) -> Iterator[Finding]:
    operator = installation.find(Product.MPI_OPERATOR)
    if operator is None or not operator.place:
        return
    try:
        qps = float(operator.options.get("kube-api-qps") or _DEFAULT_QPS)
    except ValueError:
        qps = _DEFAULT_QPS
    if qps <= _LOW_QPS:
        message = (
            f"the MPI Operator is limited to {qps:g} API calls per second (--kube-api-qps): creating the pods of a "
            f"job with {_LARGE_JOB} workers takes about {_LARGE_JOB / qps:.0f} s"
        )
        yield finding("DOCTOR_QPS", WARNING, message, "set --kube-api-qps=50 --kube-api-burst=100")
    if namespace := operator.options.get("namespace"):
        message = f"the MPI Operator handles namespace {namespace} only: jobs elsewhere do not start"
        yield finding(
            "DOCTOR_ENGINE",
            WARNING,
            message,
            "remove its option --namespace, or create jobs in that namespace",
        )


def _optional_apis(installation: Installation) -> Iterator[Finding]:
    states = (
        (
            "the metrics API (metrics.k8s.io)",
            installation.metrics,
            "mpijob top shows no CPU and memory usage",
            "metrics-server",
        ),
        (
            "Kueue's visibility API",
            installation.visibility,
            "no queue position is shown",
            "Kueue's visibility server",
        ),
    )
    for name, state, loss, server in states:
        if name.startswith("Kueue") and installation.find(Product.KUEUE) is None:
            continue
        if state is Answering.DOWN:
            yield finding(
                "DOCTOR_API", WARNING, f"{name} is registered but does not respond: {loss}", f"check {server}"
            )
        elif state is Answering.ABSENT:
            yield finding(
                "DOCTOR_API", NOTICE, f"{name} is not installed: {loss}", f"install {server} if you need it"
            )
        else:
            yield finding("DOCTOR_OK", NOTICE, f"{name} responds")


def _versions(installation: Installation) -> Iterator[Finding]:
    for component in installation.components:
        version, tested = parse_version(component.version), TESTED.get(component.product)
        description = f"{component.product} {component.version or '(unknown version)'}" + (
            f" in {component.place}" if component.place else ""
        )
        if component.product is Product.KUBERNETES and version and version[:2] < OLDEST_KUBERNETES:
            yield finding(
                "DOCTOR_VERSION",
                WARNING,
                f"{description} is older than 1.27, which the engines require",
                "upgrade it",
            )
        elif tested and version and version[:2] != tested:
            order = "older" if version[:2] < tested else "newer"
            tested_version = ".".join(map(str, tested))
            yield finding(
                "DOCTOR_VERSION",
                NOTICE,
                f"{description} is {order} than {tested_version}, which mpijob is tested with",
                "no action needed",
            )
        else:
            yield finding("DOCTOR_OK", NOTICE, description)
    if installation.patches:
        yield finding("DOCTOR_OK", NOTICE, f"TrainJobs override their runtime with {installation.patches}")
    if installation.openshift:
        yield finding(
            "DOCTOR_OK", NOTICE, "OpenShift: pods get their user IDs from the namespace (restricted-v2)"
        )


def _keys(installation: Installation) -> Iterator[Finding]:
    if installation.find(Product.TRAINER) or installation.find(Product.MPI_OPERATOR):
        message = (
            "ssh keys: ECDSA P-521, generated for each job by its engine and deleted with it (allowed "
            "under FIPS 186)"
        )
        yield finding("DOCTOR_OK", NOTICE, message)


def _unread(installation: Installation) -> Iterator[Finding]:
    for unread in installation.unread:
        yield finding(
            "NOT_READ",
            NOTICE,
            f"cannot read {unread.what} ({unread.why}): {unread.unknown}",
            "ask an administrator",
        )


def finding(code: str, severity: Severity, message: str, hint: str = "") -> Finding:
    """Build one line of the doctor's report."""
    return Finding(code=code, message=message, hint=hint, severity=severity)
