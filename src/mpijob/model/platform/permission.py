"""What somebody may be asked to be allowed: a verb on a kind of object, in one namespace or in all."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """May they do this: `resource` as `trainjobs.trainer.kubeflow.org` or `pods/log`.

    `namespace` "" means all of them, `name` "" every object of the kind.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
