"""The kinds of objects that this engine reads or writes, and their paths at the API server."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of object; `api` is `group/version`, or `v1` of the core group."""

    api: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        return self.api.partition("/")[0] if "/" in self.api else ""

    @property
    def many(self) -> str:
        """The plural for messages: `TrainJobs`, `NetworkPolicies`."""
        if self.name.endswith("y"):
            return f"{self.name[:-1]}ies"
        return f"{self.name}es" if self.name.endswith("s") else f"{self.name}s"

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the path of one object, of a namespace's objects, or of all; `sub` is a subresource like `log`."""
        root = f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + where + f"/{self.plural}" + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")


TRAINER_API = "trainer.kubeflow.org/v1alpha1"
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
MPI_OPERATOR_API = "kubeflow.org/v2beta1"
KUEUE_API = "kueue.x-k8s.io/v1beta2"
VISIBILITY_API = "visibility.kueue.x-k8s.io/v1beta2"

TRAINJOB = Kind(TRAINER_API, "TrainJob", "trainjobs")
TRAINING_RUNTIME = Kind(TRAINER_API, "TrainingRuntime", "trainingruntimes")
CLUSTER_RUNTIME = Kind(TRAINER_API, "ClusterTrainingRuntime", "clustertrainingruntimes", namespaced=False)
MPIJOB = Kind(MPI_OPERATOR_API, "MPIJob", "mpijobs")
JOBSET = Kind(JOBSET_API, "JobSet", "jobsets")
JOB = Kind("batch/v1", "Job", "jobs")
CRON_JOB = Kind("batch/v1", "CronJob", "cronjobs")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
WORKLOAD = Kind(KUEUE_API, "Workload", "workloads")
LOCAL_QUEUE = Kind(KUEUE_API, "LocalQueue", "localqueues")
CLUSTER_QUEUE = Kind(KUEUE_API, "ClusterQueue", "clusterqueues", namespaced=False)
WORKLOAD_PRIORITY = Kind(KUEUE_API, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False)
PENDING = Kind(VISIBILITY_API, "PendingWorkloadsSummary", "localqueues")
PENDING_OF_CLUSTER = Kind(VISIBILITY_API, "PendingWorkloadsSummary", "clusterqueues", namespaced=False)
POD = Kind("v1", "Pod", "pods")
EVENT = Kind("v1", "Event", "events")
SECRET = Kind("v1", "Secret", "secrets")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
NODE = Kind("v1", "Node", "nodes", namespaced=False)
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
PROJECT = Kind("project.openshift.io/v1", "Project", "projects", namespaced=False)
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
RESOURCE_QUOTA = Kind("v1", "ResourceQuota", "resourcequotas")
LIMIT_RANGE = Kind("v1", "LimitRange", "limitranges")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
ACCESS_REVIEW = Kind(
    "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
RULES_REVIEW = Kind(
    "authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
)
SELF_REVIEW = Kind("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)


def named(plural: str, group: str = "") -> Kind | None:
    """Return the kind with this plural, if it is one of these."""
    known = (value for value in globals().values() if isinstance(value, Kind))
    return next((kind for kind in known if (kind.plural, kind.group) == (plural, group)), None)


# The kinds of the Training Operator (v1), which is replaced by Trainer and still found on clusters.
OLDER_API = "kubeflow.org/v1"
OLDER = tuple(
    Kind(OLDER_API, name, plural)
    for name, plural in (
        ("PyTorchJob", "pytorchjobs"),
        ("TFJob", "tfjobs"),
        ("MPIJob", "mpijobs"),
        ("XGBoostJob", "xgboostjobs"),
        ("PaddleJob", "paddlejobs"),
        ("JAXJob", "jaxjobs"),
    )
)
