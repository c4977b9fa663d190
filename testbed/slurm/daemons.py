"""The daemons of each machine: started, stopped and killed by name, in the machine's own process namespace."""

from __future__ import annotations

from testbed.shell import TestBedError, succeeds, wait_for
from testbed.slurm import machines, places

_NICE = ("nice", "-n", "2")
_DATABASE = "/var/lib/bed-database"
_SOCKET = "/run/mysqld/mysqld.sock"
_MARIADB = (
    f"exec setsid nice -n 2 mariadbd --no-defaults --user=mysql --datadir={_DATABASE} --socket={_SOCKET}"
    " --pid-file=/run/mysqld/mysqld.pid --skip-networking --innodb-buffer-pool-size=64M"
    " --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 --performance-schema=OFF"
    " --log-error=/var/log/slurm/mariadb.log </dev/null >/dev/null 2>&1 &"
)
_ACCOUNTS = """\
add cluster bed
add account science Description=science Organization=lab
add account staff Description=staff Organization=lab
add qos low Priority=1
add qos high Priority=100 Preempt=low
add qos capped GrpTRES=cpu=4 Priority=10
add qos tiny MaxTRESPerJob=cpu=2 MaxWall=00:05:00 MaxSubmitJobsPerUser=3 Flags=DenyOnLimit Priority=10
add user alice,bob Account=science DefaultAccount=science
modify account science set QOS=normal,high,low,capped,tiny DefaultQOS=normal
add user bob Account=staff
"""
SERVICES = {
    "munged": ("munged", "--key-file=/run/munge-key", "--log-file=/run/munge/munged.log",
               "--seed-file=/run/munge/seed"),
    "slurmdbd": ("slurmdbd",),
    "slurmctld": ("slurmctld",),
    "sshd": ("/usr/sbin/sshd", "-o", "UseDNS=no", "-o", "PasswordAuthentication=no"),
}  # fmt: skip


def start(machine: str, name: str, *, clock_skew: str = "") -> None:
    """Start a daemon of a machine; with a skew (`+1h`), it lives at another time than everybody else."""
    if name == "mariadbd":
        _start_database(machine)
        return
    argv = ("slurmd", "-N", machine) if name == "slurmd" else SERVICES[name]
    skewed = ("faketime", "-f", clock_skew) if clock_skew else ()
    machines.call(machine, *_NICE, *skewed, *argv)


def stop(machine: str, name: str, *, kill: bool = False) -> None:
    """End a daemon, with or without leave, and wait until it is gone."""
    for pid in process_ids(machine, name):
        succeeds(*machines.inside(machine, ("kill", "-KILL" if kill else "-TERM", pid)))
    wait_for(f"the end of {name} on {machine}", lambda: not process_ids(machine, name), seconds=20)


def pause(machine: str, name: str, *, go_on: bool = False) -> None:
    """Let a daemon stand still, or go on."""
    for pid in process_ids(machine, name):
        machines.call(machine, "kill", "-CONT" if go_on else "-STOP", pid)


def process_ids(machine: str, name: str) -> tuple[str, ...]:
    """Return the process ids of a daemon, as its machine counts."""
    try:
        return tuple(machines.call(machine, "pgrep", "-x", name).split())
    except TestBedError:
        return ()


def _start_database(machine: str) -> None:
    machines.call(machine, "chown", "mysql", "/run/mysqld")
    machines.call(machine, "bash", "-c", _MARIADB)
    ping = machines.inside(machine, ("mariadb-admin", "-S", _SOCKET, "ping"))
    wait_for("the database", lambda: succeeds(*ping), seconds=60, pause=0.1)


def make_database() -> None:
    """Let the accounting daemon make its tables, and make accounts and QOS; nothing happens when they are there."""
    sql = (
        "CREATE DATABASE IF NOT EXISTS slurm_acct_db;"
        " CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;"
        " GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';"
    )
    machines.call(places.CONTROLLER, "mariadb", "-S", _SOCKET, "-e", sql)


def make_accounts() -> None:
    """Make accounts, users and QOS; sacctmgr's exit status says nothing of use."""
    asked = machines.inside(places.CONTROLLER, ("sacctmgr", "-nP", "list", "assoc", "format=user,account"))
    wait_for("the accounting daemon", lambda: succeeds(*asked), seconds=60, pause=0.1)
    if "alice|science" in machines.call(
        *(places.CONTROLLER, "sacctmgr", "-nP", "list", "assoc", "format=user,account")
    ):
        return
    succeeds(
        *machines.inside(places.CONTROLLER, ("bash", "-c", f"sacctmgr -i <<'END'\n{_ACCOUNTS}END")),
        timeout_seconds=60,
    )
    found = machines.call(places.CONTROLLER, "sacctmgr", "-nP", "list", "assoc", "format=user,account")
    if "alice|science" not in found:
        raise TestBedError(f"the accounts were not made: {found}")
