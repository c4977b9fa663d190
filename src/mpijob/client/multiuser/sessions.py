"""Users of a shared server, each with a token of their own: identity, permissions, and a client that acts as
them.

The server's own permissions serve only to read all jobs once for all users. What a user is shown was allowed
by the cluster at most half a minute ago, and every action is done with their own token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from mpijob.admission import decision
from mpijob.backends.capabilities import SupportsAccessReview, SupportsClose
from mpijob.client.async_client import AsyncClient
from mpijob.client.threads import run_in_thread
from mpijob.errors import BackendError, MpiJobError, NotAllowed, Unsupported
from mpijob.model import Identity
from mpijob.model.platform.permission import Question

if TYPE_CHECKING:
    from mpijob.backends.protocol import Backend
    from mpijob.settings import Settings

# How long an allowed and a denied access review are cached. The first bounds how long a revoked permission
# still shows data, the second how long a new one takes to show.
FRESH_SECONDS = 30.0
DENIED_SECONDS = 300.0
MOST_SESSIONS = 2000
_IDLE_SECONDS = 900.0
# After an error of the cluster all users get this error for so long, without a request each.
_OUTAGE_SECONDS = 1.0
# How long a rejected token is not reviewed again.
REJECTED_SECONDS = 5.0
# Token reviews in progress: users must not flood the API server with wrong tokens.
_AT_ONCE = 16
_UNKNOWN, _AGAIN = "you are not signed in, or your login has ended", "sign in again"
JOBS = ("trainjobs.trainer.kubeflow.org", "mpijobs.kubeflow.org")
ADMINISTRATION = Question("update", "mpijobplatforms.mpijob.dev")
Scope = tuple[str, str]


class NotSignedIn(NotAllowed):
    """The cluster does not accept the token."""


class UserSession:
    """One user, by one token."""

    def __init__(
        self, client: AsyncClient, identity: Identity, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.client, self.identity = client, identity
        # Whether a default namespace was chosen.
        self.has_namespace = False
        # Counts changes of permissions; streams reload when it grows.
        self.permission_changes = 0
        self.used = self.known = now()
        self._now = now
        self._answers: dict[Question, tuple[float, bool]] = {}
        self._asking = asyncio.Lock()

    async def visible(self, scopes: Iterable[Scope]) -> frozenset[Scope]:
        """Return the scopes whose jobs the user may list."""
        scopes = tuple(scopes)
        # First for the whole cluster: one review instead of one for each namespace.
        whole = [Question("list", resource) for resource in dict.fromkeys(scope[1] for scope in scopes)]
        everywhere = {one.resource for one, ok in zip(whole, await self._asked(whole), strict=True) if ok}
        rest = [scope for scope in scopes if scope[1] not in everywhere]
        answers = await self._asked([Question("list", resource, namespace) for namespace, resource in rest])
        allowed = [scope for scope, ok in zip(rest, answers, strict=True) if ok]
        return frozenset([*allowed, *(scope for scope in scopes if scope[1] in everywhere)])

    def was_visible(self, scope: Scope) -> bool:
        """Return whether the last review allowed a scope, without a new one: for events about deleted jobs."""
        questions = (Question("list", scope[1]), Question("list", scope[1], scope[0]))
        return any(self._answers.get(one, (0.0, False))[1] for one in questions)

    async def everywhere(self) -> bool:
        return all(await self._asked([Question("list", resource) for resource in JOBS]))

    async def administrates(self) -> bool:
        return self.identity.administrator or (await self._asked([ADMINISTRATION]))[0]

    async def check(self, namespace: str, *, logs: bool = False) -> None:
        """Raise NotAllowed if the user may not list jobs, or read logs, in a namespace; a denial is not
        cached here.
        """
        wanted = [Question("list", resource, namespace) for resource in JOBS]
        if not any(await self._asked(wanted, denied_seconds=_OUTAGE_SECONDS)):
            raise self._lacks("list", namespace)
        if (
            logs
            and not (
                await self._asked([Question("get", "pods/log", namespace)], denied_seconds=_OUTAGE_SECONDS)
            )[0]
        ):
            raise self._lacks("logs", namespace)

    def _lacks(self, verb: str, namespace: str) -> NotAllowed:
        return NotAllowed(
            decision.missing_permission(verb, self.identity, namespace),
            hint=f"ask an administrator of namespace '{namespace}', or use another namespace",
        )

    async def _asked(
        self, questions: list[Question], denied_seconds: float = DENIED_SECONDS
    ) -> tuple[bool, ...]:
        """Return the answers, after a new review of those that are too old."""
        if any(self._is_old(one, denied_seconds) for one in questions):
            # Concurrent requests wait here and then find the answers.
            async with self._asking:
                old = [one for one in dict.fromkeys(questions) if self._is_old(one, denied_seconds)]
                if old:
                    self._learn(old, await run_in_thread(lambda: _reviewed(self.client.backend, old)))
        return tuple(self._answers[one][1] for one in questions)

    def _is_old(self, question: Question, denied_seconds: float) -> bool:
        when, allowed = self._answers.get(question, (float("-inf"), True))
        return self._now() - when > (FRESH_SECONDS if allowed else denied_seconds)

    def _learn(self, questions: list[Question], answers: tuple[bool, ...]) -> None:
        now = self._now()
        for question, allowed in zip(questions, answers, strict=True):
            before = self._answers.get(question)
            if before is not None and before[1] is not allowed:
                self.permission_changes += 1
            self._answers[question] = (now, allowed)


def _reviewed(backend: Backend, questions: list[Question]) -> tuple[bool, ...]:
    review = backend.capability(SupportsAccessReview)
    if review is None:
        raise Unsupported(f"engine {backend.name} does not report permissions of its users")
    return review.check_access(questions)


class SessionStore:
    """The sessions of recent users."""

    def __init__(
        self,
        settings: Settings,
        open_backend: Callable[[str], Backend],
        *,
        namespace: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = for_visitors(settings)
        self._open, self._namespace, self._now = open_backend, namespace, now
        self._known: dict[bytes, UserSession] = {}
        self._asking: dict[bytes, asyncio.Lock] = {}
        self._outage: tuple[float, MpiJobError] | None = None
        self._rejected: dict[bytes, float] = {}
        self._reviews = asyncio.Semaphore(_AT_ONCE)

    async def session(self, token: str) -> UserSession:
        """Return the session of a token; raise NotSignedIn, or the error of the cluster."""
        key = sha256(token.encode("utf-8", "replace")).digest()
        found = self._known.get(key)
        if found is None or self._now() - found.known > FRESH_SECONDS:
            try:
                async with self._asking.setdefault(key, asyncio.Lock()):
                    found = await self._identified(key, token)
            finally:
                self._asking.pop(key, None)
        found.used = self._now()
        return found

    def forget(self, token: str) -> None:
        """Drop the session of a token."""
        self._known.pop(sha256(token.encode("utf-8", "replace")).digest(), None)

    async def _identified(self, key: bytes, token: str) -> UserSession:
        found = self._known.get(key)
        if found is not None and self._now() - found.known <= FRESH_SECONDS:
            # A concurrent request has identified the token meanwhile.
            return found
        if self._outage is not None and self._now() - self._outage[0] < _OUTAGE_SECONDS:
            # One request at a time finds out whether the cluster is back.
            raise self._outage[1]
        if self._now() - self._rejected.get(key, float("-inf")) < REJECTED_SECONDS:
            raise NotSignedIn(_UNKNOWN, hint=_AGAIN)
        client = self._client(token) if found is None else found.client
        identity = await self._asked(key, client)
        if found is None:
            found = self._known[key] = UserSession(client, identity, self._now)
            self._evict()
        found.identity, found.known = identity, self._now()
        return found

    async def _asked(self, key: bytes, client: AsyncClient) -> Identity:
        """Return the identity of a token, from the cluster."""
        try:
            async with self._reviews:
                identity = await client.whoami()
        except NotAllowed as error:
            self._refuse(key, client)
            raise NotSignedIn(_UNKNOWN, hint=_AGAIN) from error
        except BackendError as error:
            self._outage = (self._now(), error)
            raise
        if not identity.user or identity.user == "system:anonymous":
            self._refuse(key, client)
            raise NotSignedIn(_UNKNOWN, hint=_AGAIN)
        return identity

    def _refuse(self, key: bytes, client: AsyncClient) -> None:
        """Drop an unknown token, and do not review it again at once."""
        self._known.pop(key, None)
        _close(client)
        self._rejected[key] = self._now()
        while len(self._rejected) > MOST_SESSIONS:
            del self._rejected[next(iter(self._rejected))]

    def _client(self, token: str) -> AsyncClient:
        return AsyncClient(self._open(token), namespace=self._namespace, settings=self._settings)

    def _evict(self) -> None:
        """Drop idle sessions, and the least recently used ones beyond the limit."""
        now = self._now()
        for key in [key for key, one in self._known.items() if now - one.used > _IDLE_SECONDS]:
            self._drop(key)
        while len(self._known) > MOST_SESSIONS:
            self._drop(min(self._known, key=lambda key: self._known[key].used))

    def _drop(self, key: bytes) -> None:
        _close(self._known.pop(key).client)


def _close(client: AsyncClient) -> None:
    if (held := client.backend.capability(SupportsClose)) is not None:
        held.close()


def for_visitors(settings: Settings) -> Settings:
    """Return the settings for a server that acts for others: it connects to no registry that a user's image names."""
    return msgspec.structs.replace(settings, image_check="off", registries={})


def cluster_sessions(settings: Settings, namespace: str | None = None) -> SessionStore:
    """Return the sessions of a server at a cluster; users act as themselves there."""
    from mpijob.backends.kubernetes.auth import delegated, kubeconfig
    from mpijob.backends.kubernetes.backend import KubernetesBackend

    server = kubeconfig.load(path=settings.kubeconfig, context=settings.context)
    outbound, restricted = delegated.outbound(settings, server), for_visitors(settings)
    return SessionStore(
        settings,
        lambda token: KubernetesBackend(restricted, delegated.access_of(server, token), outbound),
        namespace=namespace,
    )
