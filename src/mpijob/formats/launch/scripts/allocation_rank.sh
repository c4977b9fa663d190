#!/bin/sh
# Stands before every rank's command in a batch system's allocation: says who this rank is, refuses a world that is not the planned one,
# gives the rank its own log and GPUs, runs the command, and says how it ended. The first one of a node also looks after
# the node: the proof of the world in the processes, what they use, and the end of the grace time.
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${SLURM_PROCID:-}}}}
size=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-${SLURM_STEP_NUM_TASKS:-}}}
slot=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-0}}}
host=${SLURMD_NODENAME:-$(uname -n)} # as the batch system calls this node
attempt=$MPIJOB_ATTEMPT_DIR
home=${TMPDIR:-/tmp}
[ -d "$home" ] || home=/tmp
home=$home/mpijob-$MPIJOB_UID-$MPIJOB_ATTEMPT
first_rank=0 first_worker=0 part=0
for one in ${MPIJOB_PARTS:-}; do # where workers are in groups: RANKS:SLOTS:TASKS:GPUS:WORKER:GROUP of each kind
  next=$((first_rank + ${one%%:*}))
  if [ "${rank:-0}" -lt "$next" ]; then
    rest=${one#*:} group=${one##*:}
    MPIJOB_SLOTS=${rest%%:*} rest=${rest#*:}
    MPIJOB_TASKS=${rest%%:*} rest=${rest#*:}
    MPIJOB_GPUS_PER_RANK=${rest%%:*} rest=${rest#*:}
    first_worker=${rest%%:*} home=$home-$part # two components may share a node
    if [ -n "$group" ]; then export MPIJOB_GROUP="$group"; fi
    break
  fi
  first_rank=$next part=$((part + 1))
done
mkdir -m 700 "$home" 2>/dev/null || [ -O "$home" ] || exit 98
mkdir -p "$home/ranks"
. "$MPIJOB_DIR/allocation_common.sh"
read_clock
skew=$((${wall%.*} - ${MPIJOB_LAUNCHED%.*}))
if [ "$skew" -lt -2 ] || [ "$skew" -gt 3600 ]; then # such a clock cannot be right: go by the launcher's
  ahead=$((ahead - skew * 100))
else
  skew=0
fi
note() {
  read -r now _ </proc/uptime
  printf '%s %s\n' "$now" "$*" >>"$attempt/node-$host"
}
ranks_of_node() { # how many ranks this node has, as the launcher says it: srun in the form 2(x3),1
  if [ -n "${OMPI_COMM_WORLD_LOCAL_SIZE:-${MPI_LOCALNRANKS:-}}" ]; then
    echo "${OMPI_COMM_WORLD_LOCAL_SIZE:-${MPI_LOCALNRANKS:-}}"
    return
  fi
  before=${SLURM_NODEID:-0}
  for part in $(echo "${SLURM_STEP_TASKS_PER_NODE:-$MPIJOB_TASKS}" | tr , ' '); do
    times=1
    case $part in *x*) times=${part#*x} times=${times%)} ;; esac
    if [ "$before" -lt "$times" ]; then break; fi
    before=$((before - times))
  done
  echo "${part%%(*}"
}
first=''
if mkdir "$home/watch" 2>/dev/null; then
  first=1
  note "clock ahead=$ahead skew=$skew"
fi
export MPIJOB_RANK="$rank" MPIJOB_LOCAL_RANK="$((slot % MPIJOB_SLOTS))"
gpus=${CUDA_VISIBLE_DEVICES:-}
if [ -n "$gpus" ] && [ "${MPIJOB_GPUS_PER_RANK:-0}" -gt 0 ]; then # of Slurm each task of a node sees all that the job has
  gpus=$(printf '%s' "$gpus" | cut -d , -f "$((slot * MPIJOB_GPUS_PER_RANK + 1))-$(((slot + 1) * MPIJOB_GPUS_PER_RANK))")
  export CUDA_VISIBLE_DEVICES="$gpus" ROCR_VISIBLE_DEVICES="$gpus" ZE_AFFINITY_MASK="$gpus"
fi
note "hello rank=$rank size=$size slot=$slot host=$host pid=$$ gpus=$gpus"
differs() {
  note "differs $*"
  exit 93
}
[ -n "$rank" ] || differs "the launcher gave a process on $host no rank"
[ "$size" = "$MPIJOB_WORLD" ] || differs "rank $rank belongs to a world of ${size:-unknown size}, and $MPIJOB_WORLD ranks are planned"
if [ -n "${MPIJOB_PMI:-}" ] && eval "[ -z \"\${$MPIJOB_PMI:-}\" ]"; then
  differs "rank $rank has no $MPIJOB_PMI, which $MPIJOB_LAUNCH gives: it would be a world of its own"
fi
# A program of another MPI would become a world of its own, and succeed: let its MPI_Init fail instead.
if [ -n "${OMPI_COMM_WORLD_RANK:-}${PMIX_NAMESPACE:-}" ]; then
  export PMI_PORT=127.0.0.1:1 PMI_ID=0
elif [ -n "${PMI_RANK:-}" ]; then
  export PMIX_MCA_gds=mpijob_started_this_rank_with_mpich
fi
profiler=$MPIJOB_DIR/mpi_profile-$(uname -m).so
if [ -r "$profiler" ]; then # behind other tools: their calls are counted, too
  export LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$profiler" MPIJOB_MPI_PROFILE="$attempt/mpi-profile"
fi
count_kills() { # how often memory has run out in this rank's cgroup: sets `kills`, to nothing where nobody says
  kills=''
  while IFS=: read -r _ kinds path; do
    case $kinds in
      memory) file=/sys/fs/cgroup/memory$path/memory.oom_control ;;
      '') file=/sys/fs/cgroup$path/memory.events ;;
      *) continue ;;
    esac
    [ -r "$file" ] || continue
    while read -r word number; do if [ "$word" = oom_kill ]; then kills=$number; fi; done <"$file"
  done </proc/self/cgroup
}
count_kills
before=${kills:-0}
. "$MPIJOB_DIR/watch_world.sh"
tell_wrong() { note "wrong $*"; }
measure() { # what the processes below each rank use now, by worker: pages of memory, ticks of CPU time
  for file in "$home"/ranks/*; do
    if [ -e "$file" ] && read -r one <"$file"; then echo "root ${file##*/} $((first_worker + (one - first_rank) / MPIJOB_SLOTS))"; fi
  done >"$home/roots"
  cat "$home/roots" /proc/[0-9]*/stat 2>/dev/null | LC_ALL=C $MPIJOB_AWK -v now="$now" '
    $1 == "root" { worker[$2] = $3; next }
    { pid = $1; sub(/^.*\) /, ""); parent[pid] = $2; ticks[pid] = $12 + $13; pages[pid] = $22 }
    END {
      for (pid in parent) {
        one = pid
        for (depth = 0; depth < 50 && !(one in worker) && one in parent; depth++) one = parent[one]
        if (one in worker) { memory[worker[one]] += pages[pid]; busy[worker[one]] += ticks[pid] }
      }
      for (one in memory) print now, one, memory[one], busy[one]
    }' >>"$attempt/usage-$host"
}
look_after() { # until nothing of the ranks here is left; HUP ends it at once, for Slurm waits for whatever goes on
  asked='' looks=0 seen='' rests=''
  trap "asked=1; trap '' TERM" TERM
  trap 'kill $! 2>/dev/null; exit' HUP
  trap : INT USR1 USR2 CONT
  printf 'page=%s tick=%s ahead=%s\n' "$(getconf PAGE_SIZE)" "$(getconf CLK_TCK)" "$ahead" >"$attempt/usage-$host"
  for old in "${home%/*}"/mpijob-????????????????-*/watch/pid; do # of attempts that were killed with all their processes
    if [ -O "$old" ] && read -r other <"$old" && ! kill -s 0 "$other"; then rm -rf "${old%/watch/pid}"; fi
  done
  while [ -d "$home/ranks" ]; do
    if [ "$looks" -lt 4 ]; then pause=0.25; elif [ "$looks" -lt 14 ]; then pause=1; else pause=${MPIJOB_SAMPLE:-10}; fi
    sleep "$pause" &
    rests=$!
    wait "$rests" # a signal ends it
    looks=$((looks + 1))
    if [ -n "$asked" ]; then
      grace=$MPIJOB_GRACE
      if [ -r "$MPIJOB_DIR/grace" ]; then read -r grace <"$MPIJOB_DIR/grace"; fi
      kill "$rests" 2>/dev/null
      sleep "$grace" &
      rests=$!
      wait "$rests"
      for file in "$home"/ranks/*; do kill -s KILL "${file##*/}"; done
      return
    fi
    if [ "$looks" -lt 40 ] && [ -z "$seen" ] && look_at_world "$MPIJOB_TASKS"; then seen=1; fi
    if [ "$looks" -ge 4 ]; then
      read -r now _ </proc/uptime
      measure
    fi
    if [ -n "${MPIJOB_SYNC:-}" ]; then sync "$attempt/node-$host" "$attempt"/logs/*.log; fi # NFS: so that others see it soon
  done
}
if [ -n "$first" ]; then
  (
    trap '' TERM # until it has traps of its own
    look_after
  ) </dev/null >/dev/null 2>&1 &
  echo $! >"$home/watch/pid"
fi
child='' early=''
hand_on() { # a signal is sent to this wrapper alone: on to the program; TERM begins the grace time on this node
  # (CONT comes right before TERM, and a shell that traps both may lose the second)
  if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; else early="$early $1"; fi
  if [ "$1" = TERM ] && read -r other <"$home/watch/pid"; then kill -s TERM "$other"; fi
} 2>/dev/null
for signal in TERM INT HUP QUIT USR1 USR2 ALRM XCPU WINCH; do trap "hand_on $signal" "$signal"; done
mkfifo "$home/$rank.stdout" "$home/$rank.stderr" || exit 98
stamps=''
for stream in stdout stderr; do
  LC_ALL=C $MPIJOB_AWK -v stream="$stream" -v ahead="$ahead" -f "$MPIJOB_DIR/stamp.awk" <"$home/$rank.$stream" \
    >>"$attempt/logs/rank-$rank.log" &
  stamps="$stamps $!"
done
exec 7>&1 8>&2 >"$home/$rank.stdout" 2>"$home/$rank.stderr"
rm -f "$home/$rank.stdout" "$home/$rank.stderr"
if [ -r "$MPIJOB_DIR/programs" ]; then . "$MPIJOB_DIR/programs"; fi # of several programs this rank's
input=/dev/null
if [ "$rank" = 0 ] && [ -n "${MPIJOB_STDIN:-}" ]; then input=$MPIJOB_STDIN; fi
exec 3<"$input"
if [ -n "${BASH_VERSION:-}" ]; then set -m; fi # else what runs in the background would have SIGINT ignored
/bin/sh -c '{ echo "$MPIJOB_RANK" >"$0/ranks/$$"; } 2>/dev/null; exec 3<&- 7>&- 8>&-; exec "$@"' "$home" "$@" <&3 &
child=$!
set +m
for signal in $early; do hand_on "$signal"; done
while :; do
  wait "$child" 2>/dev/null # bash has a long line of its own for one that a signal ended
  code=$?
  kill -s 0 "$child" 2>/dev/null || break
done
oom=''
case $code$1 in # in the words that the MPI libraries have for it
  127*/*) if [ -e "$1" ]; then
      read -r line <"$1"
      echo "mpijob: $1: ${line#??}: bad interpreter: No such file or directory" >&2
    else echo "mpijob: execvp error on file $1 (No such file or directory)" >&2; fi ;;
  126*/*) echo "mpijob: execvp error on file $1 (Permission denied)" >&2 ;;
esac
if [ "$code" = 137 ]; then
  count_kills
  if [ -n "$kills" ]; then oom=" oom=$((kills - before))"; fi
fi
note "exit rank=$rank code=$code$oom"
exec >&7 2>&8 3<&-
await $stamps
: >"$home/over.$rank"
set -- "$home"/over.*
if [ $# -ge "$(ranks_of_node)" ]; then # the last one of this node
  read -r other <"$home/watch/pid"
  kill -s HUP "$other" 2>/dev/null
  wait "$other" 2>/dev/null
  tries=0
  while kill -s 0 "$other" 2>/dev/null && [ "$tries" -lt 20000 ]; do tries=$((tries + 1)); done
  rm -rf "$home"
fi
# Hydra ends the other workers' ranks only for one that a signal ended
if [ "$code" != 0 ] && [ "${MPIJOB_LAUNCH:-}" = hydra ]; then kill -s KILL $$; fi
exit "$code"
