"""The launcher's shell script: wait for the workers, count the ranks, run the user's command.

It compares the ranks that really start (the census) with the plan before it runs the user's command, and a different
world fails the job with one message. `pod_scripts` has the scripts around it.
"""

from __future__ import annotations

from mpijob.formats.launch.pod_scripts import BEGIN

_WAIT = """\
now() { date +%s; }
hosts=${MPIJOB_HOSTFILE:-/etc/mpi/hostfile}
if [ -n "${MPIJOB_GROUPS:-}" ]; then # NAME:WORKERS:SLOTS each; the engine's own hostfile names one kind of worker
  job=$(uname -n)
  job=${job%-launcher-0-0}
  for group in $MPIJOB_GROUPS; do
    name=${group%%:*} slots=${group##*:} at=0
    workers=${group#*:}
    workers=${workers%%:*}
    while [ "$at" -lt "$workers" ]; do
      printf '%s-%s-0-%s.%s slots=%s\\n' "$job" "$name" "$at" "$job" "$slots"
      at=$((at + 1))
    done
  done >"$hosts"
  export OMPI_MCA_orte_default_hostfile="$hosts" PRTE_MCA_prte_default_hostfile="$hosts"
fi
deadline=$(($(now) + ${MPIJOB_PATIENCE:-300}))
names=
while read -r word rest || [ -n "$word" ]; do
  case $word in ''|'#'*) ;; *) names="$names ${word%%:*}" ;; esac
done <"$hosts" || fail 94 "there is no hostfile at $hosts"
[ -n "$names" ] || fail 94 "the hostfile $hosts names no worker"
while read -r word rest || [ -n "$word" ]; do # as launchers that are no MPI's read it, whatever the MPI
  count=1
  case $word in ''|'#'*) continue ;; *:*) count=${word#*:} ;; esac
  case $rest in *slots=*) count=${rest#*slots=} ;; esac
  printf '%s slots=%s\\n' "${word%%:*}" "${count%%[!0-9]*}"
done <"$hosts" >"$home/hosts"
export MPIJOB_HOSTS_FILE="$home/hosts"
if [ -d "$home/bin" ]; then export PATH="$home/bin:$PATH"; fi
known() { ! command -v getent >/dev/null || getent hosts "$1" >/dev/null; }
for host in $names ${MPIJOB_SELF:-}; do
  until known "$host"; do
    [ "$(now)" -lt "$deadline" ] || fail 94 "the cluster's DNS has no address for $host after ${MPIJOB_PATIENCE:-300} s"
    sleep 0.2 2>/dev/null || sleep 1
  done
done
# Intel's workers call the launcher back by a name that the cluster's DNS may not know yet, or by this network
if [ -z "${I_MPI_HYDRA_IFACE:-}" ] && [ -r /proc/net/route ]; then
  while read -r face to rest; do
    if [ "$to" = 00000000 ]; then I_MPI_HYDRA_IFACE=$face && export I_MPI_HYDRA_IFACE && break; fi
  done </proc/net/route
fi
answers() {
  until "$home/ssh" -o ConnectTimeout=2 -o ConnectionAttempts=1 "$1" true </dev/null >/dev/null 2>"$home/said-$1"; do
    [ "$(now)" -lt "$deadline" ] || exit 1
    sleep 1
  done
}
if [ "${MPIJOB_ORDER:-ready}" = open ]; then # the workers may not be there yet: all are asked at once
  asked=
  for host in $names; do answers "$host" & asked="$asked $!:$host"; done
  for one in $asked; do
    wait "${one%%:*}" && continue
    why=
    while read -r line; do why=$line; done <"$home/said-${one#*:}" || :
    late="did not answer on its ssh port within ${MPIJOB_PATIENCE:-300} s"
    fail 94 "worker ${one#*:} $late${why:+: $why}"
  done
fi
"""

_READY = """\
count=0
for host in $names; do count=$((count + 1)); done
printf 'mpijob-ready workers=%s\\n' "$count"
"""

_JUDGE = """\
short() { for host in $names; do printf ' %s' "${host%%.*}"; done; }
judge() { # reads $home/census; says what differs from the plan, or nothing
  workers="$(short) " seen=' ' tally= most=0 used=0
  IFS=$newline
  set -f
  count=0
  for line in $(cat "$home/census"); do
    case $line in *'mpijob-census rank='*) line=${line##*mpijob-census } ;; *) continue ;; esac
    rank=${line#*rank=} size=${line#* size=} host=${line#* host=} gpus=${line#* gpus=}
    case $line in *' planned='*) devices=${line#* planned=} ;; *) devices=${MPIJOB_DEVICES_PLANNED:-0} ;; esac
    rank=${rank%% *} size=${size%% *} host=${host%%[. ]*} gpus=${gpus%% *} devices=${devices%% *}
    count=$((count + 1))
    case $workers in *" $host "*) ;; *)
      printf '%s' "rank $rank ran on $host, none of the job's workers: the MPI launcher overlooked the hostfile"
      return ;;
    esac
    case $seen in *" $rank "*)
      printf '%s' "rank $rank was started twice: the MPI launcher made several worlds instead of one"
      return ;;
    esac
    if [ "$size" != "$MPIJOB_WORLD" ]; then
      printf '%s' "rank $rank belongs to a world of ${size:-unknown size}, and $MPIJOB_WORLD ranks are planned"
      return
    fi
    if [ "${gpus:-0}" -lt "${devices:-0}" ]; then
      printf '%s' "rank $rank on $host sees $gpus GPUs, and $devices are planned"
      return
    fi
    seen="$seen$rank " tally="$tally$newline$host"
  done
  if [ "$count" != "$MPIJOB_WORLD" ]; then
    printf '%s' "$count ranks started, and $MPIJOB_WORLD are planned"
    return
  fi
  IFS=' '
  set -- ${MPIJOB_RANKS_PLANNED:-} # RANKS:WORKERS each: so many workers in a row have so many
  alike=0
  for worker in $workers; do
    IFS=$newline here=0
    for host in $tally; do if [ "$host" = "$worker" ]; then here=$((here + 1)); fi; done
    if [ "$here" -gt 0 ]; then used=$((used + 1)); fi
    if [ "$#" -gt 0 ]; then
      if [ "$here" != "${1%:*}" ]; then
        printf '%s' "worker $worker has $here ranks, and ${1%:*} are planned"
        return
      fi
      alike=$((alike + 1))
      if [ "$alike" = "${1#*:}" ]; then
        alike=0
        shift
      fi
    fi
    if [ "$here" -gt "${MPIJOB_MOST:-0}" ] && [ "${MPIJOB_MOST:-0}" -gt 0 ]; then
      printf '%s' "worker $worker has $here ranks, and at most $MPIJOB_MOST are planned for one"
      return
    fi
  done
  if [ "${MPIJOB_USED:-0}" -gt 0 ] && [ "$used" != "$MPIJOB_USED" ]; then
    printf '%s' "the ranks are on $used workers, and $MPIJOB_USED are planned"
  fi
}
first() { # the first $1 of the words that follow, run
  keep=$1 at=0 all=$(($# - 1))
  shift
  while [ "$at" -lt "$all" ]; do
    if [ "$at" -lt "$keep" ]; then set -- "$@" "$1"; fi
    shift
    at=$((at + 1))
  done
  env "$@"
}
there() { command -v "$1" >/dev/null || fail 91 "the image has no program '$1'"; }
refused() { # whether a worker refused us
  while read -r line || [ -n "$line" ]; do
    case $line in *'Connection refused'*) return 0 ;; esac
  done <"$1"
  return 1
}
# A worker that is ready and refuses us may be one that the network does not know yet: nothing has run so far,
# and while the API server is silent such rules come late.
census() {
  there "$2"
  last=$(($(now) + ${MPIJOB_REFUSED:-90})) told=
  while :; do
    code=0
    MPIJOB_CENSUS=1
    first "$@" >"$home/census" 2>"$home/census.err" </dev/null || code=$?
    MPIJOB_CENSUS=0
    if [ "$code" = 0 ] || [ "$(now)" -ge "$last" ]; then break; fi
    refused "$home/census.err" || refused "$home/census" || break
    waits="it is tried again for ${MPIJOB_REFUSED:-90} s"
    [ -n "$told" ] || printf 'mpijob: a worker that is ready refuses the launcher; %s\\n' "$waits" >&2
    told=1
    sleep 1
  done
  if [ "$code" != 0 ]; then
    cat "$home/census"
    cat "$home/census.err" >&2
    fail 92 "the world could not be started: $2 exited with $code"
  fi
  gap=0
  while read -r line || [ -n "$line" ]; do
    case $line in *'>: mpijob-census '*) gap=1 ;; esac # Open MPI 5 puts a space behind a rank's tag, 4 does not
    case $line in *'mpijob-census rank='*) printf 'mpijob-census %s\\n' "${line##*mpijob-census }" ;; esac
  done <"$home/census"
  wrong=$(judge)
  [ -z "$wrong" ] || fail 93 "the world differs from the plan: $wrong"
  tag=
  read -r tag </proc/sys/kernel/random/uuid 2>/dev/null || :
  tag=${tag%-*-*-*}
  printf 'mpijob-world ranks=%s gap=%s%s\\n' "$MPIJOB_WORLD" "$gap" "${tag:+ tag=$tag}"
}
"""

_RUN = """\
MPIJOB_CENSUS=0
export MPIJOB_CENSUS
words=${MPIJOB_CENSUS_WORDS:-0}
case ${MPIJOB_PROVE:-1}$words in
  10) census "$#" "$@" ;;
  1*) census "$words" "$@" ;;
esac
shift "$words"
there "$1"
MPIJOB_TAG=${tag:-}
export MPIJOB_TAG # for a script's steps
if [ -n "$MPIJOB_TAG" ]; then # no rank knows this word, so none can print another rank's tag
  for word do
    shift
    case $word in '[rank %r] ') word="[rank %r $tag] " ;; esac
    set -- "$@" "$word"
  done
fi
input=${MPIJOB_STDIN:-/dev/null}
[ -r "$input" ] || fail 91 "the job's input $input cannot be read"
if [ "$words" = 0 ]; then input=/dev/null; fi # ours: rank 0 reads it itself
exec 3<"$input"
# by env, because a command may be called like a function of ours; by 3, because sh closes 0 behind an &
env "$@" <&3 3<&- &
child=$!
{ : >"$home/ranks/$child"; } 2>/dev/null || :
for signal in TERM INT HUP USR1 USR2; do trap "kill -s $signal $child 2>/dev/null" "$signal"; done
while :; do
  wait "$child"
  code=$?
  kill -s 0 "$child" 2>/dev/null || break
done
if [ "$code" != 0 ] && [ "${MPIJOB_KEEP:-0}" -gt 0 ]; then
  printf 'mpijob: the command exited with %s; the workers are kept for %s s\\n' "$code" "$MPIJOB_KEEP" >&2
  trap 'exit "$code"' TERM INT
  sleep "$MPIJOB_KEEP" &
  wait
fi
exit "$code"
"""

LAUNCHER = BEGIN + "trap 'exit 143' TERM INT\ntake_keys\n" + _WAIT + _READY + _JUDGE + _RUN
