"""List and install MPI libraries on this machine, for `mpijob mpi`."""

from __future__ import annotations

from mpijob.backends.local.storage.paths import Home
from mpijob.backends.mpi import mpi_installations
from mpijob.errors import NotFound
from mpijob.model import Family
from mpijob.settings import Settings, load


def installations(settings: Settings | None = None) -> list[dict[str, object]]:
    """Return the MPI installations for jobs; of each family, the first is the default."""
    settings = load() if settings is None else settings
    found = mpi_installations.find_all(settings, Home(settings.home))
    default = {one.family: one for one in reversed(found)}
    return [
        {"family": one.family.value, "version": one.version, "prefix": one.prefix, "launcher": one.launcher,
         "library": one.library, "default": default[one.family] is one}
        for one in found
    ]  # fmt: skip


def install(family: str, settings: Settings | None = None) -> str:
    """Install a family into its own directory; return a summary."""
    settings = load() if settings is None else settings
    if family not in [choice.value for choice in mpi_installations.WHEELS]:
        choices = ", ".join(choice.value for choice in mpi_installations.WHEELS)
        raise NotFound(f"there is no wheel for '{family}'", hint=f"choose one of: {choices}")
    done = mpi_installations.install(Home(settings.home), Family(family))
    return f"{done.family.value} {done.version} is installed in {done.prefix}"
