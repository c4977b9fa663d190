"""A job's run at Weights & Biases, by the address that the ranks' own client said.

`formats/launch` names the run; the ranks send it themselves, with a key that only they have. An address counts only
when it is one of the server of the settings: a job's lines may hold anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mpijob.backends.streams import close
from mpijob.client.integrations.tensorboard import link_file
from mpijob.client.integrations.tracking import keep_link, kept_link
from mpijob.errors import MpiJobError
from mpijob.formats.launch.command_line import uses_wandb
from mpijob.model import LogQuery
from mpijob.model.status.records import PROGRAM

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.model import JobState
    from mpijob.settings import Settings

_SAID = "View run "
_ADDRESS = re.compile(rb"View run .*?(https?://[^\s\x1b]+)")


def links(reads: Backend, state: JobState, settings: Settings) -> dict[str, str]:
    """Return the link to a job's run, nothing where there is none; only a job with `WANDB_…` variables has one."""
    path = link_file(settings, "wandb", state.ref)
    if found := kept_link(path, settings.wandb):
        return {"wandb": found}
    try:
        if state.started and uses_wandb(reads.spec(state.ref)):
            found = _said(reads, state, settings.wandb)
    except MpiJobError:
        return {}  # who may not read the lines is told so elsewhere
    if found:
        keep_link(path, found)
    return {"wandb": found} if found else {}


def _said(reads: Backend, state: JobState, server: str) -> str:
    stream = reads.logs(state.ref, LogQuery(roles=PROGRAM, regex=_SAID))
    try:
        for line in stream:
            said = _ADDRESS.search(line.text)
            if said and (found := said[1].decode(errors="replace")).startswith(f"{server.rstrip('/')}/"):
                return found
    finally:
        close(stream)
    return ""
