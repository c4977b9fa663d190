"""What somebody may be asked to be allowed: a verb on a kind of object, in one namespace or in all."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """May they do this: `resource` as `trainjobs.trainer.kubeflow.org` or `pods/log`, `namespace` "" for all."""

    verb: str
    resource: str
    namespace: str = ""
