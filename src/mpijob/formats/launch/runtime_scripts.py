"""Shell scripts for the shipped runtimes, which are written before the jobs that use them are known.

A job's own runtime contains its launch line and its plan. Here the launcher finds both when it starts: in the
engine's hostfile, and in the variables of the user's TrainJob. The other scripts are those of `pod_scripts` and
`launcher_script`.
"""

from __future__ import annotations

from mpijob.formats.kubernetes.metadata.well_known import HOME, SHIM, SSH

# $1 the launcher's script, then the user's command. A command that brings its own mpirun is run unchanged, after a
# launch line for the census. Any other is started by our mpirun, with every variable of the pod: the environment of a
# pod does not reach ranks through sshd (trainer#3427).
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

# Follows PREPARE in the launcher: its own name must be resolvable before any mpirun looks it up. DNS caches the
# answer to a query that comes too early ("no such name") for 5 s, hence the pause before the first.
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
    """Return the program with which MPI starts its daemons; it copies the job's key if that is not done yet."""
    # A TrainJob may replace the launcher's command by its own mpirun (the Kubeflow SDK does), and then no other script
    # of ours runs before it. Daemons start at the same time: each writes its own file and renames it.
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
