"""The known fields of MPIJobs, TrainJobs, runtimes and pods: misspelt ones are reported and not just kept."""

from __future__ import annotations

import difflib
import re

from mpijob.formats.convert.header.units import listed

POD = listed(
    "activeDeadlineSeconds affinity automountServiceAccountToken container containers dnsConfig dnsPolicy "
    "enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname "
    "hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os overhead preemptionPolicy priority "
    "priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName schedulerName "
    "schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
    "shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes "
    "workloadRef"
)
CONTAINER = listed(
    "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy "
    "resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath "
    "terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
)
RESOURCES = listed("claims limits requests")
METADATA = listed(
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
    "labels managedFields name namespace ownerReferences resourceVersion selfLink uid"
)
JOB = listed(
    "activeDeadlineSeconds backoffLimit backoffLimitPerIndex completionMode completions managedBy manualSelector "
    "maxFailedIndexes parallelism podFailurePolicy podReplacementPolicy selector successPolicy suspend template "
    "ttlSecondsAfterFinished"
)
JOBSET = listed(
    "coordinator failurePolicy managedBy network replicatedJobs startupPolicy successPolicy suspend "
    "ttlSecondsAfterFinished volumeClaimPolicies"
)
TRAINER = listed("args command env image numNodes numProcPerNode resourcesPerNode")

_REPLICA = r"spec\.mpiReplicaSpecs\.\w+"
_REPLICATED = r"spec\.template\.spec\.replicatedJobs\[[^]]*\]"
_PODS = rf"(?:{_REPLICA}|{_REPLICATED}\.template\.spec)\.template\.spec"
_TOP = {r"(\w+)": listed("apiVersion kind metadata spec status"), r"metadata\.(\w+)": METADATA}
_IN_PODS = {
    rf"{_PODS}\.(\w+)": POD,
    rf"{_PODS}\.container\.(\w+)": CONTAINER,
    rf"{_PODS}(?:\.container)?\.resources\.(\w+)": RESOURCES,
}
_MPIJOB = {
    r"spec\.(\w+)": listed(
        "launcherCreationPolicy mpiImplementation mpiReplicaSpecs runLauncherAsWorker runPolicy slotsPerWorker "
        "sshAuthMountPath"
    ),
    r"spec\.runPolicy\.(\w+)": listed(
        "activeDeadlineSeconds backoffLimit cleanPodPolicy managedBy schedulingPolicy suspend ttlSecondsAfterFinished"
    ),
    r"spec\.runPolicy\.schedulingPolicy\.(\w+)": listed(
        "minAvailable minResources priorityClass queue scheduleTimeoutSeconds"
    ),
    r"spec\.mpiReplicaSpecs\.(\w+)": listed("Launcher Worker"),
    rf"{_REPLICA}\.(\w+)": listed("replicas restartPolicy template"),
    rf"{_REPLICA}\.template\.(\w+)": listed("metadata spec"),
}
_TRAINJOB = {
    # Labels, annotations and podTemplateOverrides are Trainer 2.0's and 2.1's.
    r"spec\.(\w+)": listed(
        "activeDeadlineSeconds annotations initializer labels managedBy podTemplateOverrides runtimePatches runtimeRef "
        "suspend trainer"
    ),
    r"spec\.trainer\.(\w+)": TRAINER,
    r"spec\.trainer\.resourcesPerNode\.(\w+)": RESOURCES,
    r"spec\.runtimeRef\.(\w+)": listed("apiGroup kind name"),
    r"spec\.initializer\.(\w+)": listed("dataset model"),
    r"spec\.initializer\.\w+\.(\w+)": listed("env secretRef storageUri"),
}
_RUNTIME = {
    r"spec\.(\w+)": listed("mlPolicy podGroupPolicy template"),
    r"spec\.mlPolicy\.(\w+)": listed("flux jax mpi numNodes torch xgboost"),
    r"spec\.mlPolicy\.mpi\.(\w+)": listed(
        "mpiImplementation numProcPerNode runLauncherAsNode sshAuthMountPath"
    ),
    r"spec\.mlPolicy\.torch\.(\w+)": listed("elasticPolicy numProcPerNode"),
    r"spec\.mlPolicy\.flux\.(\w+)": listed("numProcPerNode"),
    r"spec\.podGroupPolicy\.(\w+)": listed("coscheduling volcano"),
    r"spec\.template\.(\w+)": listed("metadata spec"),
    r"spec\.template\.spec\.(\w+)": JOBSET,
    rf"{_REPLICATED}\.(\w+)": listed("dependsOn groupName name replicas template"),
    rf"{_REPLICATED}\.template\.(\w+)": listed("metadata spec"),
    rf"{_REPLICATED}\.template\.spec\.(\w+)": JOB,
    rf"{_REPLICATED}\.template\.spec\.template\.(\w+)": listed("metadata spec"),
}
_TABLES = {
    kind: tuple((re.compile(pattern), names) for pattern, names in (_TOP | fields | _IN_PODS).items())
    for kind, fields in {
        "MPIJob": _MPIJOB,
        "TrainJob": _TRAINJOB,
        "TrainingRuntime": _RUNTIME,
        "ClusterTrainingRuntime": _RUNTIME,
    }.items()
}
IGNORED = "Kubernetes has no such field and ignores it"


def unknown(kind: str, path: str) -> str:
    """Return what to do about a path with an unknown field, "" if every field is known."""
    for pattern, names in _TABLES[kind]:
        match = pattern.match(path)
        if match and match[1] not in names:
            close = difflib.get_close_matches(match[1], sorted(names), 1)
            return (
                f"did you mean {close[0]}?" if close else f"remove {match[1]}, or move it to the right place"
            )
    return ""
