"""MPI jobs for notebooks: `MPIJob` with its whole life, and `ResourceRequirements`."""

from openshift_ai_sdk.training.mpijob import MPIJob
from openshift_ai_sdk.training.resources import ResourceRequirements

__all__ = ["MPIJob", "ResourceRequirements"]
