"""Choices that a form offers: projects, queues, volumes, images, priorities."""

from __future__ import annotations

import msgspec


class Option(msgspec.Struct, frozen=True):
    """One choice: its name, and a description."""

    name: str
    text: str = ""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of one namespace for one user; `unread` lists what could not be read.

    `images` are recently used images, newest first. `claims` are volume claims, `connections` secrets that an ODH
    project keeps as data connections, `priorities` names of priority classes.
    """

    namespace: str
    projects: tuple[Option, ...] = ()
    images: tuple[Option, ...] = ()
    queues: tuple[Option, ...] = ()
    priorities: tuple[Option, ...] = ()
    claims: tuple[Option, ...] = ()
    connections: tuple[Option, ...] = ()
    unread: tuple[str, ...] = ()
