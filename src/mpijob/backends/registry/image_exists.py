"""Does the registry have a job's image: asked before the job is sent, beside all else that is asked then.

The answer never takes longer than two seconds, and what was learnt is kept for the next job, in a file, too: a
command line asks no more often than a long-lived client. What a registry says is told or refused in `admission`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import codec
from mpijob.errors import InvalidImage, InvalidJob, MpiJobError, NotAllowed
from mpijob.model import MPIJob
from mpijob.model.platform.cluster import Asked, ImageAnswer
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.backends.registry.credentials import Login
    from mpijob.model.spec.image import Reference

ANSWER_SECONDS = 2.0
KEPT_SECONDS = {Asked.THERE: 600.0, Asked.UNKNOWN: 60.0}  # that one is missing may be mended any moment
OFF, WARN, REFUSE = "off", "warn", "refuse"
_MOST_KEPT = 200
_ONLY_INSIDE = (".svc", ".cluster.local", ".local", ".localhost", ".invalid", ".test", ".example")

Secrets = Callable[[str], Mapping[str, Any] | None]
Waiting = Callable[[], ImageAnswer | None]


class _Kept(msgspec.Struct, frozen=True):
    answer: ImageAnswer
    time: float


class ImageLookup:
    """Asks registries for one user; answers that are still young are not asked for again."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._file = os.path.join(settings.home, "registries.json") if settings.home else ""
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] | None = None

    def begin(self, job: MPIJob, secrets: Secrets) -> Waiting:
        """Ask in a thread of its own and return what waits for the answer; None where there is nothing to ask."""
        began = time.monotonic()
        reference = askable(job.image, self._settings)
        if reference is None:
            return lambda: None
        key = "|".join((job.image, job.namespace, *job.pull_secrets))
        if (known := self._recall(key)) is not None:
            return lambda: self._marked(known)
        found: list[ImageAnswer] = []

        def work() -> None:
            answer = self._ask(job, reference, secrets, began + ANSWER_SECONDS)
            found.append(answer)
            self._keep(key, answer)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def wait() -> ImageAnswer:
            thread.join(max(0.0, began + ANSWER_SECONDS - time.monotonic()))
            why = f"it did not answer within {ANSWER_SECONDS:g} s"
            return self._marked(found[0] if found else _unknown(job.image, f"{reference.server}: {why}"))

        return wait

    def _marked(self, answer: ImageAnswer) -> ImageAnswer:
        return msgspec.structs.replace(answer, refuse=self._settings.image_check == REFUSE)

    def _ask(self, job: MPIJob, reference: Reference, secrets: Secrets, deadline: float) -> ImageAnswer:
        from mpijob.backends.registry.http import Unanswered

        why = "it cannot be asked"
        try:
            for registry in self._registries(job, reference, secrets, deadline):
                try:
                    there = registry.exists()
                    return ImageAnswer(
                        image=job.image, asked=Asked.THERE if there else Asked.MISSING, why=reference.server
                    )
                except NotAllowed:
                    why = "it wants a login that is not known here"
        except Unanswered as error:
            why = error.why
        except (MpiJobError, InvalidImage, OSError) as error:
            why = str(error).partition("\n")[0]
        return _unknown(job.image, f"{reference.server}: {why}")

    def _registries(
        self, job: MPIJob, reference: Reference, secrets: Secrets, deadline: float
    ) -> Iterator[Any]:
        """Yield the registry with this user's login, then with those of the job's pull secrets."""
        from mpijob.backends.registry import credentials
        from mpijob.backends.registry.client import Registry
        from mpijob.backends.registry.http import Lines

        instead = self._settings.registries.get(reference.host, "")
        lines = Lines(seconds=ANSWER_SECONDS, deadline=deadline)
        host, path = reference.host, reference.path
        own = credentials.find(host, path, os.environ, helpers=False)
        yield Registry(reference, lines, lambda: own, at=instead)
        for name in job.pull_secrets:
            login = credentials.of_secret(secrets(name) or {}, host, path)
            if login is not None:
                yield Registry(reference, lines, partial(_itself, login), at=instead)

    def _recall(self, key: str) -> ImageAnswer | None:
        with self._lock:
            if self._kept is None:
                self._kept = self._load()
            known = self._kept.get(key)
        if known is None or not 0 <= self._clock() - known.time < KEPT_SECONDS[known.answer.asked]:
            return None
        return known.answer

    def _keep(self, key: str, answer: ImageAnswer) -> None:
        if answer.asked not in KEPT_SECONDS:
            return
        with self._lock:
            kept = {**(self._kept or {}), key: _Kept(answer, self._clock())}
            self._kept = dict(sorted(kept.items(), key=lambda one: one[1].time)[-_MOST_KEPT:])
            self._save(self._kept)

    def _load(self) -> dict[str, _Kept]:
        try:
            with open(self._file, "rb") as file:
                found = codec.decode(file.read(), dict[str, _Kept])
        except (OSError, msgspec.DecodeError):
            return {}
        return {key: one for key, one in found.items() if one.answer.asked in KEPT_SECONDS}

    def _save(self, kept: Mapping[str, _Kept]) -> None:
        """Write the file anew beside the old one; where that is not possible, nothing is lost but a question."""
        if not self._file:
            return
        fresh = f"{self._file}.{os.getpid()}-{threading.get_ident()}"
        with suppress(OSError):
            with open(fresh, "wb") as file:
                file.write(msgspec.json.encode(kept))
            os.replace(fresh, self._file)


def askable(image: str, settings: Settings) -> Reference | None:
    """Return the image whose registry may be asked from here: not one that is known inside a cluster only."""
    if settings.image_check == OFF or not image or _only_inside(image, settings):
        return None
    from mpijob.model.spec.image import (
        Reference,  # not for those whose registry is never asked: it takes a while to load
    )

    try:
        reference = Reference.parse(image)
    except InvalidJob:
        return None  # whoever pulls it will say so
    return None if settings.registries.get(reference.host) == OFF else reference


def _only_inside(image: str, settings: Settings) -> bool:
    host, slash, _ = image.partition("/")
    if not slash or host in settings.registries:
        return False
    name = host.partition(":")[0].lower()
    if "." not in name:  # the hub's own teams have neither dot nor port
        return ":" in host or name == "localhost"
    return name.endswith(_ONLY_INSIDE) or name.startswith(("127.", "["))


def _itself(login: Login) -> Login:
    return login


def _unknown(image: str, why: str) -> ImageAnswer:
    return ImageAnswer(image=image, asked=Asked.UNKNOWN, why=why)
