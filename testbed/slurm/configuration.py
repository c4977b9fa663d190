"""What the daemons are told: slurm.conf and its neighbours, written before the machines start.

Timers are shorter than a site's (SlurmdTimeout 300 s, KillWait 30 s, MinJobAge 300 s, cred_expire 120 s), so that
faults show in seconds. The launch plugins have their own defaults: what they need is the engine's business.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from testbed.slurm import places

SLURM_USER = 64030  # of Debian's package
SLURMD_TIMEOUT = 10
KILL_WAIT = 3
MIN_JOB_AGE = 30
CRED_EXPIRE = 8
MEMORY_MB = 4000
PARTITIONS = ("main", "small", "small2", "short", "closed")


def write(*, cgroups: bool) -> None:
    """Write all configuration files."""
    folder = places.run_state() / "etc"
    (folder / "slurm").mkdir(parents=True)
    _secret(folder / "munge.key")
    (folder / "hosts").write_text(
        "".join(f"{places.address(one)} {one}\n" for one in places.MACHINES) + "127.0.0.1 localhost\n"
    )
    slurm = folder / "slurm"
    (slurm / "slurm.conf").write_text(_slurm(cgroups=cgroups))
    (slurm / "gres.conf").write_text("Name=gpu File=/dev/nvidia[0-1]\n")
    (slurm / "cgroup.conf").write_text(_CGROUP)
    (slurm / "slurmdbd.conf").write_text(_SLURMDBD)
    shutil.chown(slurm / "slurmdbd.conf", SLURM_USER, SLURM_USER)
    (slurm / "slurmdbd.conf").chmod(0o600)
    for name in ("prolog", "epilog"):
        script = slurm / f"{name}.sh"
        script.write_text(_HOOK.format(name=name))
        script.chmod(0o755)
    for name in ("log", "control", "spool/ctl"):
        (places.run_state() / name).mkdir(parents=True, exist_ok=True)
    for name in ("log", "spool/ctl"):
        shutil.chown(places.run_state() / name, SLURM_USER, SLURM_USER)
    for user, uid in places.USERS.items():
        home = places.homes() / user
        home.mkdir(parents=True)
        os.chown(home, uid, uid)
        home.chmod(0o700)


def _secret(path: Path) -> None:
    path.write_bytes(os.urandom(1024))
    path.chmod(0o400)


def _slurm(*, cgroups: bool) -> str:
    kind = ("cgroup", "cgroup", "cgroup") if cgroups else ("linuxproc", "none", "linux")
    nodes = "\n".join(
        f"NodeName={name} NodeAddr={places.address(name)} Feature={'old' if number < 2 else 'new'}"
        for number, name in enumerate(places.NODES)
    )
    first, last = places.NODES[0], places.NODES[-1]
    return f"""\
ClusterName=bed
SlurmctldHost={places.CONTROLLER}({places.address(places.CONTROLLER)})
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire={CRED_EXPIRE}
StateSaveLocation=/var/spool/slurm
SlurmdSpoolDir=/var/spool/slurm
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
LogTimeFormat=iso8601_ms
SlurmctldTimeout=20
SlurmdTimeout={SLURMD_TIMEOUT}
KillWait={KILL_WAIT}
MinJobAge={MIN_JOB_AGE}
InactiveLimit=0
Waittime=0
UnkillableStepTimeout=30
ReturnToService=1
JobRequeue=1
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,sched_interval=10,bf_continue,preempt_youngest_first
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ProctrackType=proctrack/{kind[0]}
TaskPlugin=task/{kind[1]}
JobAcctGatherType=jobacct_gather/{kind[2]}
JobAcctGatherFrequency=task=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={places.CONTROLLER}
AccountingStorageEnforce=associations,limits,qos,safe
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
PriorityType=priority/multifactor
PriorityWeightQOS=10000
PriorityWeightAge=100
PreemptType=preempt/qos
PreemptMode=REQUEUE
GresTypes=gpu
SlurmdParameters=config_overrides
Prolog=/etc/slurm/prolog.sh
Epilog=/etc/slurm/epilog.sh
MaxArraySize=1001
MaxJobCount=10000
NodeName=DEFAULT CPUs=4 RealMemory={MEMORY_MB} Gres=gpu:2 State=UNKNOWN
{nodes}
PartitionName=DEFAULT DefMemPerCPU=200 State=UP
PartitionName=main Nodes={first},n2,n3,{last} Default=YES MaxTime=01:00:00 DefaultTime=00:10:00
PartitionName=small Nodes=n3,n4 MaxTime=01:00:00 DefaultTime=00:20:00
PartitionName=small2 Nodes=n1,n2 MaxTime=01:00:00 DefaultTime=00:20:00
PartitionName=short Nodes=n1,n2 MaxTime=00:02:00 DefaultTime=00:01:00 MaxNodes=2 PriorityTier=10
PartitionName=closed Nodes=n1,n2 AllowAccounts=staff MaxTime=00:10:00
"""


_CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
"""
_SLURMDBD = f"""\
AuthType=auth/munge
DbdHost={places.CONTROLLER}
DbdAddr={places.address(places.CONTROLLER)}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
DebugLevel=info
"""
_HOOK = """\
#!/bin/bash
if [ -e /run/bed/{name}.fail ]; then echo "{name}: the scratch disk is missing" >&2; exit 1; fi
exit 0
"""
