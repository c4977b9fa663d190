"""The sh texts that only a shipped runtime needs: it is written once, for jobs that it does not know yet.

A runtime of one job carries its launch line and its plan as words and variables. Here the launcher finds
out both when it starts: from the engine's hostfile, and from the variables that somebody's TrainJob sets.
The texts around it (prepare, worker, launcher, rank) are those of `pod_scripts` and `launcher_script`.
"""

from __future__ import annotations

from mpijob.formats.kubernetes.metadata.well_known import HOME, SHIM, SSH

# $1 the launcher's text, then the user's command. A command that brings its own mpirun is run as it is,
# behind a line of ours for the census; any other is started by ours, with every variable of the pod's.
LAUNCH = f"""\
set -u
text=$1
shift
hosts=${{MPIJOB_HOSTFILE:-/etc/mpi/hostfile}}
world=0 used=0 most=0
while read -r word slots rest || [ -n "$word" ]; do
  case $word in ''|'#'*) continue ;; esac
  count=${{slots#slots=}}
  case $count in ''|*[!0-9]*) count=1 ;; esac
  used=$((used + 1)) world=$((world + count))
  if [ "$count" -gt "$most" ]; then most=$count; fi
done <"$hosts"
gpus=0
for device in ${{MPIJOB_DEVICES:-}}; do # a pattern such as /dev/nvidia[0-9]*
  if [ -e "$device" ]; then gpus=$((gpus + 1)); fi
done
export MPIJOB_WORLD="$world" MPIJOB_USED="$used" MPIJOB_MOST="$most" MPIJOB_SLOTS="$most" MPIJOB_GPUS="$gpus"
{{ printf '%s\\n' "${{MPIJOB_NODE:-}}" >"{HOME}/node"; }} 2>/dev/null || :
names=$(env | while IFS='=' read -r name rest; do
  case $name in
    ''|[0-9]*|*[!A-Za-z0-9_]*) ;;
    _|HOME|PWD|OLDPWD|SHLVL|HOSTNAME|TERM|KUBERNETES_*|OMPI_*|PRTE_*|PMIX_*) ;;
    MPIJOB_NODE|MPIJOB_POD_IP|MPIJOB_CENSUS) ;;
    *) if eval "[ -n \\"\\${{$name+set}}\\" ]"; then printf ' -x %s' "$name"; fi ;;
  esac
done)
counted() {{ printf '%s' "$#"; }}
line="mpirun --hostfile $hosts -x MPIJOB_CENSUS$names -n $world /bin/sh {SHIM}"
case ${{1##*/}} in
  mpirun|mpiexec|orterun|prterun|horovodrun|deepspeed)
    export MPIJOB_CENSUS_WORDS="$(counted $line true)"
    set -- $line true "$@" ;;
  *) set -- $line "$@" ;;
esac
exec /bin/sh -c "$text" mpijob-launcher "$@"
"""

# Stands behind PREPARE in the launcher: its own name must be known before any mpirun looks it up. A question that
# comes too early is answered "no such name" from DNS's cache for the next 5 s, hence the pause before the first
OWN_NAME = """\
sleep 1.5 2>/dev/null || sleep 2
name=$(uname -n).${MPIJOB_NAME:-}
left=150
while command -v getent >/dev/null && ! getent hosts "$name" >/dev/null && [ "$left" -gt 0 ]; do
  left=$((left - 1))
  sleep 0.2 2>/dev/null || sleep 1
done
"""


def agent(home: str = HOME, keys: str = SSH) -> str:
    """Return the program that MPI starts its daemons with, which takes the job's key when nobody has yet.

    A TrainJob may replace the launcher's command by its own mpirun (the Kubeflow SDK does), and then none of
    our texts runs before it.
    """
    return f"""\
#!/bin/sh
if [ ! -e {home}/.ssh/id ]; then
  umask 077
  mine={home}/.ssh/$$
  cp {keys}/id_rsa "$mine" && chmod 600 "$mine" && public=$(cat {keys}/id_rsa.pub) \\
    && printf 'mpijob %s\\n' "$public" >"$mine.known" \\
    && mv "$mine.known" {home}/.ssh/known_hosts && mv "$mine" {home}/.ssh/id
fi
exec ssh -F {home}/.ssh/config "$@"
"""
