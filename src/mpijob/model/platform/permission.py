"""A permission to check: a verb on a kind of object, in one namespace or in all."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """One permission: `resource` like `trainjobs.trainer.kubeflow.org` or `pods/log`.

    `namespace` "" means all namespaces, `name` "" every object of the kind.
    """

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
