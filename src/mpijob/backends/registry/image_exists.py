"""Check whether the registry has a job's image, before the job is submitted and in parallel to other checks.

The check takes at most two seconds, and its result is cached, also in a file: a command line sends no more
requests than a long-lived client. What the result means is decided in `admission`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mpijob import atomic_write, codec
from mpijob.errors import InvalidImage, InvalidJob, MpiJobError, NotAllowed
from mpijob.model import MPIJob
from mpijob.model.platform.cluster import Asked, ImageAnswer
from mpijob.settings import Settings

if TYPE_CHECKING:
    from mpijob.backends.registry.credentials import Login
    from mpijob.model.spec.image import Reference

TIMEOUT_SECONDS = 2.0
# A missing image is not cached: it may be pushed at any moment.
CACHE_SECONDS = {Asked.THERE: 600.0, Asked.UNKNOWN: 60.0}
OFF, WARN, REFUSE = "off", "warn", "refuse"
_MAX_ENTRIES = 200
_PRIVATE_SUFFIXES = (".svc", ".cluster.local", ".local", ".localhost", ".invalid", ".test", ".example")

GetSecret = Callable[[str], Mapping[str, Any] | None]
WaitForResult = Callable[[], ImageAnswer | None]


class _CachedResult(msgspec.Struct, frozen=True):
    answer: ImageAnswer
    time: float


class ImageLookup:
    """Checks images for one user; recent results are not requested again."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._file = os.path.join(settings.home, "registries.json") if settings.home else ""
        self._lock = threading.Lock()
        self._cache: dict[str, _CachedResult] | None = None

    def start(self, job: MPIJob, secrets: GetSecret) -> WaitForResult:
        """Start the check in a thread; return a function that waits for its result (None: nothing to check)."""
        # Of the same start: time that the caller spends elsewhere is part of the two seconds.
        started = time.monotonic()
        reference = reference_to_check(job.image, self._settings)
        if reference is None:
            return lambda: None
        key = "|".join((job.image, job.namespace, *job.pull_secrets))
        if (cached := self._cached(key)) is not None:
            return lambda: self._with_policy(cached)
        results: list[ImageAnswer] = []

        # Also stored if it comes too late for this job: the next one profits.
        def work() -> None:
            answer = self._check(job, reference, secrets, started + TIMEOUT_SECONDS)
            results.append(answer)
            self._store(key, answer)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def wait() -> ImageAnswer:
            thread.join(max(0.0, started + TIMEOUT_SECONDS - time.monotonic()))
            reason = f"no response within {TIMEOUT_SECONDS:g} s"
            return self._with_policy(
                results[0] if results else _unknown(job.image, f"{reference.server}: {reason}")
            )

        return wait

    def _with_policy(self, answer: ImageAnswer) -> ImageAnswer:
        return msgspec.structs.replace(answer, refuse=self._settings.image_check == REFUSE)

    def _check(self, job: MPIJob, reference: Reference, secrets: GetSecret, deadline: float) -> ImageAnswer:
        from mpijob.backends.registry.http import NoResponse

        reason = "connection failed"
        try:
            for registry in self._registries(job, reference, secrets, deadline):
                try:
                    exists = registry.exists()
                    return ImageAnswer(
                        image=job.image, asked=Asked.THERE if exists else Asked.MISSING, why=reference.server
                    )
                except NotAllowed:
                    reason = "login required"
        except NoResponse as error:
            reason = error.reason
        except (MpiJobError, InvalidImage, OSError) as error:
            reason = str(error).partition("\n")[0]
        return _unknown(job.image, f"{reference.server}: {reason}")

    def _registries(
        self, job: MPIJob, reference: Reference, secrets: GetSecret, deadline: float
    ) -> Iterator[Any]:
        """Yield the registry with this user's login, then with those of the job's pull secrets."""
        from mpijob.backends.registry import credentials
        from mpijob.backends.registry.client import Registry
        from mpijob.backends.registry.http import RegistryHttp

        mirror = self._settings.registries.get(reference.host, "")
        http = RegistryHttp(seconds=TIMEOUT_SECONDS, deadline=deadline)
        host, path = reference.host, reference.path

        def registry(login: Login | None) -> Registry:
            return Registry(reference, http, lambda: login, mirror=mirror)

        # Without credential helpers, which may take longer than the whole check.
        yield registry(credentials.find_login(host, path, os.environ, helpers=False))
        for name in job.pull_secrets:
            login = credentials.login_from_secret(secrets(name) or {}, host, path)
            if login is not None:
                yield registry(login)

    def _cached(self, key: str) -> ImageAnswer | None:
        with self._lock:
            if self._cache is None:
                self._cache = self._load()
            entry = self._cache.get(key)
        if entry is None or not 0 <= self._clock() - entry.time < CACHE_SECONDS[entry.answer.asked]:
            return None
        return entry.answer

    def _store(self, key: str, answer: ImageAnswer) -> None:
        if answer.asked not in CACHE_SECONDS:
            return
        # Results of other processes since the file was read are lost: they will be requested again.
        with self._lock:
            entries = {**(self._cache or {}), key: _CachedResult(answer, self._clock())}
            self._cache = dict(sorted(entries.items(), key=lambda item: item[1].time)[-_MAX_ENTRIES:])
            self._save(self._cache)

    def _load(self) -> dict[str, _CachedResult]:
        try:
            with open(self._file, "rb") as file:
                entries = codec.decode(file.read(), dict[str, _CachedResult])
        except (OSError, msgspec.DecodeError):
            return {}
        return {key: entry for key, entry in entries.items() if entry.answer.asked in CACHE_SECONDS}

    def _save(self, entries: Mapping[str, _CachedResult]) -> None:
        if not self._file:
            return
        # Without write access, the next command checks again.
        with suppress(OSError):
            atomic_write.write(self._file, msgspec.json.encode(entries))


def reference_to_check(image: str, settings: Settings) -> Reference | None:
    """Return the image if its registry may be asked from here: not one known only inside a cluster."""
    if settings.image_check == OFF or not image or _is_cluster_internal(image, settings):
        return None
    # Imported here because it is slow to load and rarely needed.
    from mpijob.model.spec.image import Reference

    try:
        reference = Reference.parse(image)
    except InvalidJob:
        # An invalid name is reported by the engine, which pulls the image.
        return None
    return None if settings.registries.get(reference.host) == OFF else reference


def _is_cluster_internal(image: str, settings: Settings) -> bool:
    host, slash, _ = image.partition("/")
    if not slash or host in settings.registries:
        return False
    name = host.partition(":")[0].lower()
    # Names on Docker Hub have neither dot nor port.
    if "." not in name:
        return ":" in host or name == "localhost"
    return name.endswith(_PRIVATE_SUFFIXES) or name.startswith(("127.", "["))


def _unknown(image: str, why: str) -> ImageAnswer:
    return ImageAnswer(image=image, asked=Asked.UNKNOWN, why=why)
