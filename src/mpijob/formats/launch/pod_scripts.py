"""The POSIX shell scripts that run in pods: prepare, worker, launcher, rank and stop.

They need no Python and no change to the image, and work for a user ID without a passwd entry (OpenShift). They
contain no text of the user's: commands and values are passed as arguments and variables. `pod_template` writes the
pods around them, `command_line` the launch line.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from mpijob.formats.kubernetes.metadata.well_known import HOME, SSH_PORT


class Ending(IntEnum):
    """Exit statuses of launchers and workers that do not come from the user's command."""

    NO_KEY = 90
    NO_PROGRAM = 91
    WORLD_NOT_STARTED = 92
    WORLD_DIFFERS = 93
    WORKERS_SILENT = 94
    NO_SSHD = 95


def sshd_config(home: str = HOME) -> str:
    """Return the worker's sshd_config: login with the job's key only, no forwarding, no root, no PAM."""
    # - StrictModes: the home is an emptyDir volume, which every user may write. - ClientAlive: sessions of a lost
    # launcher end after 15 s, and with them their ranks. - LogLevel FATAL: the kubelet's TCP probe opens a connection
    # and sends nothing, which sshd would log as an error every few seconds. Failed logins are reported by the ssh
    # client.
    return f"""\
Port {SSH_PORT}
PidFile none
HostKey {home}/.ssh/id
AuthorizedKeysFile {home}/.ssh/authorized_keys
PermitUserEnvironment yes
UsePAM no
StrictModes no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
AllowTcpForwarding no
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
GatewayPorts no
PrintMotd no
MaxStartups 200
ClientAliveInterval 5
ClientAliveCountMax 3
LogLevel FATAL
"""


def ssh_config(home: str = HOME) -> str:
    """Return the ssh_config of launcher and workers: only the job's key, and only its host key."""
    # HostKeyAlias: all workers have one host key, and known_hosts needs no line for each. ConnectionAttempts: sshd
    # and the DNS entry of a worker may be late; mpirun itself does not try again.
    return f"""\
Host *
  Port {SSH_PORT}
  User mpijob
  IdentityFile {home}/.ssh/id
  IdentitiesOnly yes
  HostKeyAlias mpijob
  StrictHostKeyChecking yes
  UserKnownHostsFile {home}/.ssh/known_hosts
  GlobalKnownHostsFile /dev/null
  CheckHostIP no
  UpdateHostKeys no
  BatchMode yes
  ForwardX11 no
  ConnectTimeout 12
  ConnectionAttempts 20
  ServerAliveInterval 5
  ServerAliveCountMax 3
  LogLevel ERROR
"""


def agent(home: str = HOME) -> str:
    """Return the program with which MPI starts its daemons: ssh with the job's configuration."""
    return f"""#!/bin/sh\nexec ssh -F {home}/.ssh/config "$@"\n"""


BEGIN = """\
set -u
home=${MPIJOB_HOME:-/mpijob/home}
keys=${MPIJOB_SSH:-/mpijob/ssh}
newline='
'
fail() {
  printf 'mpijob: %s\\n' "$2" >&2
  { printf '%s\\n' "$2"; } 2>/dev/null >>"${MPIJOB_LAST_WORDS:-/dev/termination-log}" || :
  exit "$1"
}
take_keys() { # a copy of our own: ssh refuses a key that others may read
  before=$(umask -S)
  umask 077
  { cp "$keys/id_rsa" "$home/.ssh/id" && chmod 600 "$home/.ssh/id" && public=$(cat "$keys/id_rsa.pub") \\
    && printf 'mpijob %s\\n' "$public" >"$home/.ssh/known_hosts" \\
    && printf 'restrict %s\\n' "$public" >"$home/.ssh/authorized_keys"; } \\
    || fail 90 "the job's key cannot be read in $keys"
  umask "$before"
}
"""

# $1 sshd_config, $2 ssh_config, $3 agent, $4 the rank's script, then further files by path and text. The archive of
# uploaded files may be mounted, whole or in parts: a config map holds 1 MiB.
PREPARE = """\
set -eu
umask 077
home=${MPIJOB_HOME:-/mpijob/home}
cd "$home"
mkdir -p .ssh ranks work
users=$(cat "${MPIJOB_PASSWD:-/etc/passwd}")
printf '%s\\nmpijob:x:%s:%s:mpijob:%s:/bin/sh\\n' "$users" "$(id -u)" "$(id -g)" "$home" >passwd
chmod 644 passwd
printf '%s' "$1" >sshd_config
printf '%s' "$2" >.ssh/config
printf '%s' "$3" >ssh
printf '%s' "$4" >rank.sh
chmod 700 ssh rank.sh
shift 4
while [ $# -gt 1 ]; do
  case $1 in */*) mkdir -p "${1%/*}" ;; esac
  printf '%s' "$2" >"$1"
  chmod 700 "$1"
  shift 2
done
code=${MPIJOB_CODE:-/mpijob/code}
if [ -e "$code/archive" ]; then tar -xzf "$code/archive" -C work; fi
if [ -e "$code/archive.00" ]; then cat "$code"/archive.* | tar -xzf - -C work; fi
"""

# sshd gives its sessions a bare environment, hence the file. A binary with file capabilities (mpioperator/base sets
# CAP_NET_BIND_SERVICE) cannot be executed where all capabilities are dropped; a copy has none.
WORKER = (
    BEGIN
    + """\
take_keys
printf '%s\\n' "${MPIJOB_NODE:-}" >"$home/node"
keep() { case $2 in ''|*"$newline"*) ;; *) printf '%s=%s\\n' "$1" "$2" ;; esac; }
{
  keep PATH "$PATH"
  keep LD_LIBRARY_PATH "${LD_LIBRARY_PATH:-}"
  keep NVIDIA_VISIBLE_DEVICES "${NVIDIA_VISIBLE_DEVICES:-}"
} >"$home/.ssh/environment"
sshd=$(command -v sshd) || sshd=
for place in /usr/sbin/sshd /usr/local/sbin/sshd; do
  if [ -z "$sshd" ] && [ -x "$place" ]; then sshd=$place; fi
done
[ -n "$sshd" ] || fail 95 "the image has no sshd: install openssh-server in it"
code=0
said=$("$sshd" -t -f "$home/sshd_config" 2>&1) || code=$?
if [ "$code" = 126 ]; then
  cp "$sshd" "$home/sshd" && sshd=$home/sshd && code=0
  said=$("$sshd" -t -f "$home/sshd_config" 2>&1) || code=$?
fi
[ "$code" = 0 ] || fail 95 "sshd cannot start (exit $code): $said"
if [ -e "$home/profile.sh" ]; then . "$home/profile.sh" && begin_profile; fi
exec "$sshd" -D -e -f "$home/sshd_config"
"""
)

# Runs before every rank's command. In the census it prints the rank's place and exits; else it assigns GPUs, runs the
# command as a child and reports its exit status. STOP signals the child by the pid file in `ranks`; signals to the
# process group must not end the script itself, which has to report. An out-of-memory kill looks like any SIGKILL, so
# the script compares the container's `oom_kill` counter. Hydra ends the other workers' ranks only if a rank dies by a
# signal, so the script of a failed rank kills itself.
RANK = (
    """\
#!/bin/sh
case ${1:-} in --step=*) in_step=1 ;; *) in_step= ;; esac
home=${MPIJOB_HOME:-/mpijob/home}
if [ -e "$home/group.sh" ]; then . "$home/group.sh"; fi
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-}}}
size=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-}}
slot=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-0}}
if [ "${MPIJOB_CENSUS:-0}" = 1 ]; then
  gpus=0
  for device in ${MPIJOB_DEVICES:-}; do # a pattern such as /dev/nvidia[0-9]*
    if [ -e "$device" ]; then gpus=$((gpus + 1)); fi
  done
  node=
  if [ -e "$home/node" ]; then read -r node <"$home/node" || :; fi
  printf 'mpijob-census rank=%s size=%s local=%s host=%s node=%s gpus=%s%s\\n' \\
    "$rank" "$size" "$slot" "$(uname -n)" "$node" "$gpus" "${MPIJOB_DEVICES_PLANNED:+ planned=$MPIJOB_DEVICES_PLANNED}"
  exit 0
fi
export MPIJOB_RANK="$rank" MPIJOB_LOCAL_RANK="$slot"
if [ -n "${OMPI_COMM_WORLD_RANK:-}" ]; then # a program of another MPI would be a world of its own, and succeed
  export PMI_PORT=127.0.0.1:1 PMI_ID=0
elif [ -n "${PMI_RANK:-}" ]; then
  export PMIX_MCA_gds=mpijob_started_this_rank_with_mpich
fi
if [ -e "$home/profiler.so" ]; then
  case ${LD_PRELOAD:-} in *"$home/profiler.so") ;; *) LD_PRELOAD=${LD_PRELOAD:+$LD_PRELOAD:}$home/profiler.so ;; esac
  export LD_PRELOAD MPIJOB_MPI_PROFILE="$home/mpi-profile"
fi
if [ -e "$home/python" ]; then export PYTHONPATH="$home/python${PYTHONPATH:+:$PYTHONPATH}"; fi
if [ "${MPIJOB_GPUS:-0}" -gt 0 ] && [ "${MPIJOB_SLOTS:-0}" -gt 0 ]; then
  each=$((MPIJOB_GPUS / MPIJOB_SLOTS))
  if [ "$each" = 0 ]; then gpus=$((slot % MPIJOB_GPUS)); else gpus=$((slot * each)); fi
  next=$((gpus + 1))
  while [ "$next" -lt $((slot * each + each)) ]; do gpus=$gpus,$next; next=$((next + 1)); done
  export CUDA_VISIBLE_DEVICES="$gpus" ROCR_VISIBLE_DEVICES="$gpus" ZE_AFFINITY_MASK="$gpus"
fi
place=${MPIJOB_CGROUP:-/sys/fs/cgroup}
count() { # how often memory has run out in this container, or nothing where nobody says
  kills=
  for file in "$place/memory.events" "$place/memory/memory.oom_control"; do
    [ -r "$file" ] || continue
    while read -r word number; do if [ "$word" = oom_kill ]; then kills=$number; fi; done <"$file"
  done
}
"""
    + Path(__file__).with_name("scripts").joinpath("watch_world.sh").read_text(encoding="utf-8")
    + """\
count
before=${kills:-0}
watch=
if [ "$slot" = 0 ] && [ -n "$rank" ] && [ "${MPIJOB_WATCH:-1}" = 1 ]; then
  watch_world </dev/null 3>&- 2>/dev/null &
  watch=$!
fi
trap : TERM INT HUP USR1 USR2 CONT
tell=1
if [ -n "$in_step" ]; then
  . "$home/step_rank.sh"
  export MPIJOB_PROFILE_STEP="$step"
else
  input=/dev/null # what a launcher passes on may never end: Open MPI 5 for rank 0, hydra for all others
  if [ "$rank" = 0 ]; then input=${MPIJOB_STDIN:-/dev/null}; fi
  exec <"$input"
fi
/bin/sh -c '{ echo "$MPIJOB_RANK" >"$0/ranks/$$"; } 2>/dev/null; exec "$@"' "$home" "$@"
code=$? oom=
if [ -n "$watch" ]; then kill "$watch" 2>/dev/null; fi
if [ "$code" = 137 ]; then
  count
  if [ -n "$kills" ]; then oom=" oom=$((kills - before))"; fi
fi
if [ -e "$home/profiler.so" ]; then unset LD_PRELOAD && . "$home/profile.sh" && end_profile "$rank"; fi
if [ -n "$tell" ]; then printf 'mpijob-exit rank=%s code=%s%s%s\\n' "$rank" "$code" "$oom" "${step:+ step=$step}"; fi
if [ -n "$in_step" ]; then after_step; fi
if [ "$code" != 0 ] && [ -n "${PMI_RANK:-}" ] && [ -z "$in_step" ]; then kill -s KILL $$; fi
exit "$code"
"""
)

# $1 signal, $2 seconds: sends it to every rank of this worker (0: to none) and waits until they have written a
# checkpoint.
STOP = """\
home=${MPIJOB_HOME:-/mpijob/home}
for file in "$home"/ranks/*; do kill -s "$1" "${file##*/}" 2>/dev/null; done
left=$2
while [ "$left" -gt 0 ]; do
  alive=0
  for file in "$home"/ranks/*; do if kill -s 0 "${file##*/}" 2>/dev/null; then alive=1; fi; done
  [ "$alive" = 1 ] || exit 0
  sleep 1
  left=$((left - 1))
done
"""
