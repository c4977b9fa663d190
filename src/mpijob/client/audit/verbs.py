"""How each method of an engine is audited: the closed list by which `recorder` passes calls on.

A method that is missing here raises when it is called through the audit;
`tests/unit/client/test_audit_verbs.py` compares the list with the port and with every engine. So nobody can
add a method that changes something and leaves no audit entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """How a call is audited."""

    # Not audited.
    READ = "read"
    # One entry: a user reads the output of a job.
    LOOK = "look"
    # Two entries: the request and the result.
    ACT = "act"
    # Only for the owner of the engine: never called through the audit.
    BARE = "bare"


def _of(kind: Kind, names: str) -> dict[str, Kind]:
    return dict.fromkeys(names.split(), kind)


PORT: Mapping[str, Kind] = {
    **_of(Kind.READ, "name namespace capability whoami devices preflight plan server_dry_run prewarm spec"),
    **_of(Kind.READ, "submitted_plan get attempts list watch events samples mpi_profile accounts warnings artifacts"),
    **_of(Kind.READ, "pause history schedules"),
    **_of(Kind.LOOK, "logs fetch"),
    **_of(Kind.ACT, "submit cancel suspend resume scale delete execute stacks reconcile"),
}  # fmt: skip
# Methods of optional capabilities.
ABILITIES: Mapping[str, Kind] = {
    **_of(
        Kind.READ,
        "secret_values working_directory form_options projects rates progress default_image",
    ),
    **_of(Kind.READ, "check_access node_places watch_all doctor team_templates may_save_team_templates"),
    **_of(Kind.LOOK, "merge_logs list_artifacts fetch_many"),
    **_of(Kind.ACT, "register store save_team_template delete_team_template"),
    **_of(Kind.BARE, "api close now"),
}
SCHEDULES: Mapping[str, Kind] = {
    **_of(Kind.READ, "resolve lock get all ensure_scheduler"),
    **_of(Kind.ACT, "put remove"),
}
PAST: Mapping[str, Kind] = {
    **_of(Kind.READ, "state attempts record spec list events unfinished_jobs samples facts accounts"),
    **_of(Kind.LOOK, "logs"),
    **_of(Kind.ACT, "delete_job"),
}


def checked(table: Mapping[str, Kind], name: str) -> Kind:
    """Return how a method is audited; raise for one that is not in the table, or that is BARE."""
    kind = table.get(name)
    if kind is None or kind is Kind.BARE:
        raise NotImplementedError(f"'{name}' is not for the audited port: see client/audit/verbs.py")
    return kind
