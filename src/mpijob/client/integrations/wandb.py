"""The link to a job's run at Weights & Biases, from the output of its own client.

`formats/launch` names the run; the ranks send it themselves, with a key that only they have. A link counts
only if it begins with the server of the settings: a job's output may contain anything.
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
    """Return the link to a job's run, none without; only jobs with `WANDB_…` variables have one."""
    path = link_file(settings, "wandb", state.ref)
    if found := kept_link(path, settings.wandb):
        return {"wandb": found}
    try:
        if state.started and uses_wandb(reads.spec(state.ref)):
            found = _link_in_log(reads, state, settings.wandb)
    except MpiJobError:
        # The user may not read the log, which other commands report.
        return {}
    if found:
        keep_link(path, found)
    return {"wandb": found} if found else {}


def _link_in_log(reads: Backend, state: JobState, server: str) -> str:
    stream = reads.logs(state.ref, LogQuery(roles=PROGRAM, regex=_SAID))
    try:
        for line in stream:
            said = _ADDRESS.search(line.text)
            if said and (found := said[1].decode(errors="replace")).startswith(f"{server.rstrip('/')}/"):
                return found
    finally:
        close(stream)
    return ""
