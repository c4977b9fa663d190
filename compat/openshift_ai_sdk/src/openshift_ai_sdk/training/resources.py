"""What a launcher or a worker may use."""

from __future__ import annotations

from dataclasses import dataclass

from mpijob.model import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequirements:
    """Amounts for one launcher or worker, written as in `500m`, `2`, `4Gi`."""

    cpu: str | int | float = "1"
    memory: str | int = "1Gi"
    gpu: int = 0
    gpu_type: str = "nvidia.com/gpu"

    def resources(self) -> Resources:
        """Return them as `mpijob` has them."""
        return Resources(cpu=self.cpu, memory=self.memory, gpu=self.gpu, gpu_kind=self.gpu_type)
