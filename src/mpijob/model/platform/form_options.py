"""What a form can offer instead of asking for names by heart: projects, queues, volumes, images, priorities."""

from __future__ import annotations

import msgspec


class Option(msgspec.Struct, frozen=True):
    """One thing to choose: its name, and what people call it or know of it."""

    name: str
    text: str = ""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What one namespace offers to one user; `unread` names what could not be looked at.

    `images` are recently used images, newest first. `claims` are volume claims, `connections` secrets
    that an ODH project keeps as data connections, `priorities` names of priority classes.
    """

    namespace: str
    projects: tuple[Option, ...] = ()
    images: tuple[Option, ...] = ()
    queues: tuple[Option, ...] = ()
    priorities: tuple[Option, ...] = ()
    claims: tuple[Option, ...] = ()
    connections: tuple[Option, ...] = ()
    unread: tuple[str, ...] = ()
