"""What the test bed is made of, pinned. Why these versions: docs/decisions/0015-test-bed.md."""

from __future__ import annotations

from dataclasses import dataclass

KUBERNETES = "v1.34.4"
JOBSET = "v0.12.0"
TRAINER = "v2.2.1"
KUEUE = "v0.19.2"
MPI_OPERATOR = "v0.8.2"
COREDNS = "v1.14.7"
KUBE_ROUTER = "v1.6.1"
KWOK = "v0.8.0"
COSCHEDULING = "v0.34.7"
VOLCANO = "v1.10.0"
TRAINING_OPERATOR = "v1.8.1"
LOKI = "v3.7.8"
MODEL_REGISTRY = "v0.3.0"
PAUSE = "v1"
OC = "4.19"  # its releases have no versions of Go's: the module file names the commit

HOROVOD = "0.28.1"
HOROVOD_SOURCE = (
    "https://files.pythonhosted.org/packages/e4/86/da559fcc1620ac7831a16ccb2ad3acb477a8da8a631f75a83b6410507210/"
    "horovod-0.28.1.tar.gz",
    "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0",
)

DEBIAN = "bookworm"
PYTHON = "3.11"  # of that Debian: the wheels in the images are for it
GO = "1.26"


@dataclass(frozen=True)
class Program:
    """A Go program: the module in testbed/go that pins it, the package to build there, and with which build tags."""

    name: str
    version: str
    module: str
    package: str
    tags: str = ""


PROGRAMS = (
    Program("pause", PAUSE, "pause", "."),
    Program("kube", KUBERNETES, "kube", "."),
    Program("coredns", COREDNS, "addons", "./coredns"),
    Program("jobset", JOBSET, "addons", "sigs.k8s.io/jobset"),
    Program("trainer", TRAINER, "addons", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"),
    Program("mpi-operator", MPI_OPERATOR, "addons", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"),
    Program("kueue", KUEUE, "addons", "sigs.k8s.io/kueue/cmd/kueue"),
    Program(
        "kube-router", KUBE_ROUTER, "kube-router", "github.com/cloudnativelabs/kube-router/cmd/kube-router"
    ),
    Program("kwok", KWOK, "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)

# What no cluster needs to run: built when a test asks for it.
ON_REQUEST = (
    Program(
        "oc", OC, "oc", "github.com/openshift/oc/cmd/oc", "include_gcs include_oss containers_image_openpgp"
    ),
    Program("coscheduling", COSCHEDULING, "coscheduling", "."),
    Program("volcano", VOLCANO, "volcano", "volcano.sh/volcano/cmd/scheduler"),
    Program(
        "training-operator",
        TRAINING_OPERATOR,
        "training-operator",
        "github.com/kubeflow/training-operator/cmd/training-operator.v1",
    ),
    Program("loki", LOKI, "loki", "github.com/grafana/loki/v3/cmd/loki"),
    Program("model-registry", MODEL_REGISTRY, "model-registry", "github.com/kubeflow/model-registry"),
)
