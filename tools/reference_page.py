"""The reference of the page: its screens, keys and the fields of its form, read from the page's own source.

The sentence of a screen is the comment above its component, the keys are the table that the page itself shows, the
fields are those of `tools.form` with the sentences of `mpijob explain`.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from mpijob.client.submit.drafts import FIELDS
from tools import form

SOURCE = form.FILE.parents[1]
NAMES = {  # as the way through the page calls them
    "JobList": "Training jobs",
    "JobDetails": "One job",
    "CreateJob": "Create job",
    "Compare": "Compare jobs",
    "Queues": "Queues and usage",
    "Admin": "Administration",
    "Learn": "Learn",
}


def screens() -> dict[str, tuple[str, str]]:
    """Return each screen by its component: its address, and what it is for."""
    text = _read("App.tsx")
    found = re.findall(r'<Route path="([^"]+)" element=\{<(\w+)', text)
    routes = {
        component: path for path, component in reversed(found) if component not in ("Navigate", "NotFound")
    }
    return {component: (path, _sentence(component, text)) for component, path in reversed(routes.items())}


def _sentence(component: str, app: str) -> str:
    """Return the comment above a component."""
    place = re.search(rf'"\./([\w/]*/{component})"', app)
    assert place, f"{component} is imported nowhere"
    said = re.search(
        rf"/\*\* ((?:(?!\*/).)+?) \*/\nexport function {component}\(", _read(f"{place[1]}.tsx"), re.DOTALL
    )
    assert said, f"{component} has no sentence above it"
    return said[1]


def tabs() -> list[str]:
    """Return the tabs of one job."""
    found = re.search(r"JOB_TABS = \[([^\]]+)\]", _read("lib/links.ts"))
    assert found
    return re.findall(r'"(\w+)"', found[1])


def shortcuts(name: str) -> list[tuple[str, str]]:
    """Return the keys of the list or of a log, as the page shows them."""
    found = re.search(rf"{name}[^=]+= \[(.+?)\n\];", _read("lib/shortcuts.ts"), re.DOTALL)
    assert found
    return re.findall(r'\["([^"]+)", "([^"]+)"\]', found[1])


def _read(name: str) -> str:
    return Path(SOURCE / name).read_text(encoding="utf-8")


def body() -> str:
    """Return the page's text below its title."""
    rows = "".join(
        f"| {NAMES[component]} | `{path}` | {said} |\n" for component, (path, said) in screens().items()
    )
    in_list, in_log = (
        "".join(f"| {key} | {action} |\n" for key, action in shortcuts(name))
        for name in ("LIST_SHORTCUTS", "LOG_SHORTCUTS")
    )
    parts = "".join(
        _fields(where, list(some)) for where, some in groupby(form.entries(), lambda one: one.where)
    )
    return (
        f"## Screens\n\n| screen | path | content |\n| --- | --- | --- |\n{rows}\n"
        f"The tabs of one job, each with its own URL: {', '.join(f'`{one}`' for one in tabs())}.\n\n"
        f"## Keyboard shortcuts\n\nIn the list of jobs; *Keyboard shortcuts* in the help menu turns them off.\n\n"
        f"| key | action |\n| --- | --- |\n{in_list}\nIn a log:\n\n"
        f"| key | action |\n| --- | --- |\n{in_log}\n"
        "## Fields of the form\n\nBy step and group. On one machine, fields that apply only to a cluster are under "
        f"*Cluster-only settings*.\n\n{parts}"
    )


def _fields(where: str, some: list[form.Entry]) -> str:
    rows = "".join(_row(one) for one in some)
    return f"### {where}\n\n| field | in a job file | description |\n| --- | --- | --- |\n{rows}\n"


def _row(entry: form.Entry) -> str:
    told = FIELDS[entry.path].text.replace("|", "\\|")
    return f"| {entry.place.label} | `{entry.path}` | {told}{' Only on a cluster.' if entry.place.cluster else ''} |\n"
