"""Whether a cluster's engines are there, fit together and answer: the sentences of `mpijob doctor` about it.

Pairs that do not fit are data, each with what happens; their source is the engines' own issue threads
(kueue#11931: admitted, and suspended for ever). Reading the cluster is the business of its engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from mpijob.errors import Finding, Severity
from mpijob.model.platform.installation import Answering, Component, Installation, Product

ERROR, WARNING, NOTICE = _ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTICE)
TESTED = {  # what the tests of this project run on
    Product.KUBERNETES: (1, 34),
    Product.TRAINER: (2, 2),
    Product.JOBSET: (0, 12),
    Product.MPI_OPERATOR: (0, 8),
    Product.KUEUE: (0, 19),
}
OLDEST_KUBERNETES = (1, 27)
_LOW_QPS, _DEFAULT_QPS = 10.0, 5.0
_LARGE_JOB = 100


class Clash(msgspec.Struct, frozen=True):
    """Two products whose versions do not fit: bounds are `from` (inclusive) and `below`."""

    one: Product
    one_from: tuple[int, ...]
    one_below: tuple[int, ...]
    other: Product
    other_from: tuple[int, ...]
    other_below: tuple[int, ...]
    happens: str
    remedy: str


_ALWAYS = (9999,)
CLASHES = (
    Clash(
        Product.KUEUE, (0, 17), _ALWAYS, Product.TRAINER, (0,), (2, 2),
        "Kueue writes runtimePatches, which this Trainer does not know: queued jobs are admitted and stay suspended",
        "upgrade Trainer to 2.2 or later, or use Kueue 0.16",
    ),
    Clash(
        Product.KUEUE, (0, 15), (0, 17), Product.TRAINER, (2, 2), _ALWAYS,
        "Kueue writes podTemplateOverrides, which this Trainer dropped: queued jobs are admitted and stay suspended",
        "upgrade Kueue to 0.17 or later",
    ),
    Clash(
        Product.KUEUE, (0, 15), (0, 17), Product.TRAINER, (0,), (2, 1),
        "Kueue writes podTemplateOverrides, which came with Trainer 2.1: queued jobs are admitted and stay suspended",
        "upgrade Trainer to 2.1, or better both: Kueue 0.17 with Trainer 2.2",
    ),
    Clash(
        Product.KUEUE, (0,), (0, 15), Product.TRAINER, (2, 1), _ALWAYS,
        "this Kueue was built for Trainer 2.0: queued jobs are admitted and stay suspended",
        "upgrade Kueue to 0.17 or later",
    ),
    Clash(
        Product.JOBSET, (0,), (0, 8), Product.TRAINER, (2, 0), _ALWAYS,
        "JobSet before 0.8 has no dependsOn: the launcher starts before its workers",
        "upgrade JobSet to 0.8 or later",
    ),
)  # fmt: skip
_FAULTS = {  # known faults of single versions: from, below, what happens, remedy
    Product.KUEUE: (
        ((0, 19), (0, 20), "drops tolerations of a runtime on admission (kueue#15162): pods may not be scheduled",
         "upgrade Kueue to 0.20, or let the flavor carry the tolerations"),
    ),
    Product.MPI_OPERATOR: (
        ((0,), (0, 8), "numbers workers in another order than Kueue's topology-aware placement (kueue#8471)",
         "upgrade the MPI Operator to 0.8 if placement matters"),
    ),
}  # fmt: skip


def examine(found: Installation) -> tuple[Finding, ...]:
    """Return what is there, what does not fit and what does not answer, the troubles first."""
    parts = (
        _engines(found),
        _clashes(found),
        _old_operator(found),
        _silent(found),
        _not_ready(found),
        _faults(found),
        _operator_options(found),
        _services(found),
        _versions(found),
        _keys(found),
        _unread(found),
    )
    found_ = [one for part in parts for one in part]
    return tuple(sorted(found_, key=lambda one: _ORDER.index(one.severity)))


def reached(context: str, server: str) -> Finding:
    """Return which cluster is spoken of."""
    return finding("DOCTOR_OK", NOTICE, f"cluster {context} answers at {server}")


def permitted(
    namespace: str, lacks: Mapping[str, tuple[str, ...]], others: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield what the user may not do in a namespace: with each engine, and beside them."""
    ask = f"ask an administrator of namespace '{namespace}'"
    usable = [name for name, missing in lacks.items() if not missing]
    for name, missing in lacks.items():
        if not missing:
            continue
        message = (
            f"you may not run jobs with {name} in namespace '{namespace}': you lack {', '.join(missing)}"
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
            "DOCTOR_RIGHTS", NOTICE, f"in namespace '{namespace}' you lack {', '.join(others)}", ask
        )


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers: `0.19.2-rc.1` is (0, 19, 2); () where it is not known."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0]))


def _engines(found: Installation) -> Iterator[Finding]:
    trainer, jobset = found.find(Product.TRAINER), found.find(Product.JOBSET)
    operator = found.find(Product.MPI_OPERATOR)
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
        yield finding(
            "DOCTOR_ENGINE", WARNING, message, "install the MPI Operator 0.8, if such jobs are wanted"
        )
    elif trainer is None:
        message = "Kubeflow Trainer is not installed: every job goes to the MPI Operator"
        yield finding(
            "DOCTOR_ENGINE", WARNING, message, "nothing, unless jobs of the Kubeflow SDK are wanted as well"
        )
    if trainer is not None and jobset is None:
        message = "JobSet is not installed, and Kubeflow Trainer cannot start anything without it"
        yield finding("DOCTOR_ENGINE", ERROR, message, "install JobSet 0.12")
    if found.find(Product.KUEUE) is None:
        message = "Kueue is not installed: jobs do not queue, and quotas refuse instead of letting jobs wait"
        yield finding("DOCTOR_OK", NOTICE, message)


def _clashes(found: Installation) -> Iterator[Finding]:
    for clash in CLASHES:
        one, other = found.find(clash.one), found.find(clash.other)
        if one is None or other is None:
            continue
        if _within(one, clash.one_from, clash.one_below) and _within(
            other, clash.other_from, clash.other_below
        ):
            message = (
                f"{one.product} {one.version} and {other.product} {other.version} do not fit: {clash.happens}"
            )
            yield finding("DOCTOR_PAIR", ERROR, message, clash.remedy)


def _within(one: Component, first: tuple[int, ...], below: tuple[int, ...]) -> bool:
    version = numbers(one.version)
    return bool(version) and first <= version < below


def _old_operator(found: Installation) -> Iterator[Finding]:
    if found.old_mpijob:
        message = (
            "MPIJob is served as kubeflow.org/v1, by the old Training Operator: the MPI Operator's MPIJob has the "
            "same name and cannot be installed beside it"
        )
        hint = "remove the Training Operator's MPIJob, then install the MPI Operator 0.8"
        served = "kubeflow.org/v2beta1" in found.served
        yield finding("DOCTOR_OLD_MPIJOB", WARNING if served else ERROR, message, hint)


def _silent(found: Installation) -> Iterator[Finding]:
    for service in found.silent_webhooks:
        message = f"webhook service {service} has no ready endpoint: every create of its kinds is refused"
        yield finding(
            "DOCTOR_WEBHOOK",
            ERROR,
            message,
            f"look at its pods: kubectl get pods -n {service.partition('/')[0]}",
        )


def _not_ready(found: Installation) -> Iterator[Finding]:
    for one in found.components:
        if one.ready is False:
            place, _, name = one.place.partition("/")
            message = f"{one.product} is installed ({one.place}) and not ready: its jobs do not move"
            yield finding("DOCTOR_ENGINE", ERROR, message, f"kubectl describe deployment {name} -n {place}")


def _faults(found: Installation) -> Iterator[Finding]:
    for one in found.components:
        for first, below, happens, remedy in _FAULTS.get(one.product, ()):
            if _within(one, first, below):
                yield finding("DOCTOR_PAIR", NOTICE, f"{one.product} {one.version} {happens}", remedy)


def _operator_options(found: Installation) -> Iterator[Finding]:
    operator = found.find(Product.MPI_OPERATOR)
    if operator is None or not operator.place:
        return
    try:
        qps = float(operator.options.get("kube-api-qps") or _DEFAULT_QPS)
    except ValueError:
        qps = _DEFAULT_QPS
    if qps <= _LOW_QPS:
        message = (
            f"the MPI Operator makes {qps:g} calls a second (--kube-api-qps): the pods of a job of "
            f"{_LARGE_JOB} workers take about {_LARGE_JOB / qps:.0f} s to be created"
        )
        yield finding("DOCTOR_QPS", WARNING, message, "give it --kube-api-qps=50 --kube-api-burst=100")
    if namespace := operator.options.get("namespace"):
        message = f"the MPI Operator serves namespace {namespace} only: jobs elsewhere do not move"
        yield finding(
            "DOCTOR_ENGINE", WARNING, message, "take its option --namespace away, or create jobs there"
        )


def _services(found: Installation) -> Iterator[Finding]:
    states = (
        (
            "the metrics API (metrics.k8s.io)",
            found.metrics,
            "mpijob top shows no CPU and memory",
            "metrics-server",
        ),
        (
            "Kueue's visibility API",
            found.visibility,
            "no position in the queue is shown",
            "Kueue's visibility server",
        ),
    )
    for name, state, loss, server in states:
        if name.startswith("Kueue") and found.find(Product.KUEUE) is None:
            continue
        if state is Answering.DOWN:
            yield finding(
                "DOCTOR_API", WARNING, f"{name} is announced and does not answer: {loss}", f"look at {server}"
            )
        elif state is Answering.ABSENT:
            yield finding(
                "DOCTOR_API", NOTICE, f"{name} is not there: {loss}", f"install {server}, if it is wanted"
            )
        else:
            yield finding("DOCTOR_OK", NOTICE, f"{name} answers")


def _versions(found: Installation) -> Iterator[Finding]:
    for one in found.components:
        version, tested = numbers(one.version), TESTED.get(one.product)
        told = f"{one.product} {one.version or '(version not told)'}" + (
            f" in {one.place}" if one.place else ""
        )
        if one.product is Product.KUBERNETES and version and version[:2] < OLDEST_KUBERNETES:
            yield finding(
                "DOCTOR_VERSION", WARNING, f"{told} is older than 1.27, which the engines need", "upgrade it"
            )
        elif tested and version and version[:2] != tested:
            order = "older" if version[:2] < tested else "newer"
            wanted = ".".join(map(str, tested))
            yield finding(
                "DOCTOR_VERSION",
                NOTICE,
                f"{told} is {order} than {wanted}, with which mpijob is tested",
                "nothing",
            )
        else:
            yield finding("DOCTOR_OK", NOTICE, told)
    if found.patches:
        yield finding("DOCTOR_OK", NOTICE, f"TrainJobs change their runtime by {found.patches}")
    if found.openshift:
        yield finding(
            "DOCTOR_OK", NOTICE, "OpenShift: pods get their user IDs from the namespace (restricted-v2)"
        )


def _keys(found: Installation) -> Iterator[Finding]:
    if found.find(Product.TRAINER) or found.find(Product.MPI_OPERATOR):
        message = (
            "ssh keys: ECDSA P-521, made for each job by its engine and gone with it (allowed under FIPS 186)"
        )
        yield finding("DOCTOR_OK", NOTICE, message)


def _unread(found: Installation) -> Iterator[Finding]:
    for one in found.unread:
        yield finding(
            "NOT_READ",
            NOTICE,
            f"{one.what} could not be read ({one.why}): {one.unknown}",
            "ask an administrator",
        )


def finding(code: str, severity: Severity, message: str, hint: str = "") -> Finding:
    """Return one line of the doctor's report."""
    return Finding(code=code, message=message, hint=hint, severity=severity)
