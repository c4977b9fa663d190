# Read by the batch script on the first node of a batch system's allocation, behind its variables and `mpijob_launch`,
# which starts the ranks. It makes an attempt's directory, starts the ranks, ends them at the deadline or when the batch
# system wants the job ended, tries again, and writes what happened into the attempt's journal. POSIX sh, with awk and
# the usual small programs.
#
# DIR/aN/journal      what happened here: seconds since boot, a verb, its words; the first line gives the wall clock
# DIR/aN/node-NAME    the same of each node, by allocation_rank.sh; DIR/aN/usage-NAME what its ranks use
# DIR/aN/logs/*.log   launcher and ranks, each line with its time (CRI)
cd "$MPIJOB_DIR/work" || exit 97
if command -v gawk >/dev/null; then MPIJOB_AWK=gawk; else
  case $(awk -W version </dev/null 2>&1) in mawk*) MPIJOB_AWK='mawk -W interactive' ;; *) MPIJOB_AWK=awk ;; esac
fi
. "$MPIJOB_DIR/allocation_common.sh"
MPIJOB_SH=$(command -v bash) || MPIJOB_SH=/bin/sh
export MPIJOB_AWK MPIJOB_SH
note() { # lines that are read together or not at all
  read -r now _ </proc/uptime
  printf "$now %s\n" "$@" >>"$attempt/journal"
}
begin() {
  number=1
  while ! mkdir "$MPIJOB_DIR/a$number" 2>/dev/null; do
    [ -d "$MPIJOB_DIR/a$number" ] || exit 98 # the directory cannot be written
    number=$((number + 1))
  done
  attempt=$MPIJOB_DIR/a$number
  mkdir "$attempt/logs" "$attempt/mpi-profile"
  mkdir -p "$MPIJOB_DIR/work/attempt-$number"
  rm -f "$MPIJOB_DIR/grace"
  read_clock
  export MPIJOB_LAUNCHED="$wall" MPIJOB_ATTEMPT="$number" MPIJOB_ATTEMPT_DIR="$attempt" \
    MPIJOB_OUTPUT="$MPIJOB_DIR/work/attempt-$number"
  printf '%s clock ahead=%s skew=0\n' "$boot" "$ahead" >"$attempt/journal" || exit 98
  note "start job=$MPIJOB_NUMBER restart=${MPIJOB_RESTART:-0} nodes=$MPIJOB_NODES"
}
begin
if [ -r "$MPIJOB_DIR/secrets" ]; then . "$MPIJOB_DIR/secrets"; fi
home=${TMPDIR:-/tmp}
[ -d "$home" ] || home=/tmp
home=$home/mpijob-$MPIJOB_UID-launcher-$number
mkdir -m 700 "$home" && mkfifo "$home/stdout" "$home/stderr" || exit 98
stamps=''
for stream in stdout stderr; do
  LC_ALL=C $MPIJOB_AWK -v stream="$stream" -v ahead="$ahead" -f "$MPIJOB_DIR/stamp.awk" \
    <"$home/$stream" >>"$attempt/logs/launcher.log" &
  stamps="$stamps $!"
done
exec 7>&1 8>&2 >"$home/stdout" 2>"$home/stderr"
rm -rf "$home"
if [ -f "${MPIJOB_SAID:-}" ]; then # what the batch system writes there is part of the log: why it ends the job
  tail -n +"$(($(wc -l <"$MPIJOB_SAID") + 1))" -f "$MPIJOB_SAID" >&2 7>&- 8>&- &
  follows=$!
fi
ending='' child=''
signal_ranks() { if [ -n "$child" ]; then kill -s "$1" "$child" 2>/dev/null; fi; }
end() { # $1 why; the nodes see to it that their ranks end within the grace time
  ending=$1
  note "$1"
  if [ "$1" = term ] || [ "$MPIJOB_SIGNAL" = TERM ]; then
    signal_ranks TERM
  else
    signal_ranks "$MPIJOB_SIGNAL"
    (trap - TERM USR1 USR2 && sleep "$MPIJOB_GRACE" && echo 0 >"$MPIJOB_DIR/grace" && kill -s TERM "$child") &
  fi
}
trap 'end term' TERM
trap 'end deadline' USR2
trap 'note "signal $MPIJOB_SIGNAL"; signal_ranks "$MPIJOB_SIGNAL"' USR1
trap : INT HUP
pause() { # in a process of its own: sleeps, and takes the sleep along when it is ended
  trap 'kill $! 2>/dev/null; exit' TERM
  sleep "$1" &
  sleeps=$!
  wait "$sleeps"
}
keep_time() { # sends USR1 some seconds before the deadline, USR2 at it
  pause "$MPIJOB_WARN_AFTER"
  if [ "$MPIJOB_WARN_FOR" != 0 ]; then
    kill -s USR1 $$
    pause "$MPIJOB_WARN_FOR"
  fi
  kill -s USR2 $$
}
waits() { # $1 a child: sets `code`, whatever signals come meanwhile
  while :; do
    wait "$1"
    code=$?
    kill -s 0 "$1" 2>/dev/null || break
  done
}
while :; do
  clock=''
  if [ -n "${MPIJOB_DEADLINE:-}" ]; then
    keep_time >/dev/null 2>&1 7>&- 8>&- &
    clock=$!
  fi
  note launch
  (trap - TERM USR1 USR2 INT HUP && mpijob_launch) </dev/null 7>&- 8>&- &
  child=$!
  if [ -n "$ending" ]; then signal_ranks TERM; fi
  waits "$child"
  child=''
  if [ -n "$clock" ]; then kill "$clock" 2>/dev/null; fi
  seconds=''
  if [ "$code" != 0 ] && [ "$ending" != term ] && [ "${MPIJOB_RETRIES:-0}" -gt 0 ]; then
    tried=$(wc -l 2>/dev/null <"$MPIJOB_DIR/retries" || echo 0)
    if [ "$tried" -lt "$MPIJOB_RETRIES" ]; then
      echo "$number" >>"$MPIJOB_DIR/retries"
      seconds=$($MPIJOB_AWK -v tried="$tried" 'BEGIN {
        seconds = ENVIRON["MPIJOB_BACKOFF"] * ENVIRON["MPIJOB_FACTOR"] ^ tried; most = ENVIRON["MPIJOB_LONGEST"]
        print seconds < most ? seconds : most }')
    fi
  fi
  note "end code=$code" ${seconds:+"retry in=$seconds"} # whoever reads the end alone takes it for the job's
  if [ -z "$seconds" ]; then break; fi
  (trap - USR1 USR2 && pause "$seconds") >/dev/null 2>&1 7>&- 8>&- &
  child=$!
  waits "$child"
  child=''
  if [ "$ending" = term ]; then break; fi
  ending=''
  begin
done
if [ "$code" != 0 ] && [ -z "$ending" ] && [ "${MPIJOB_KEEP:-0}" -gt 0 ]; then
  note "kept seconds=$MPIJOB_KEEP"
  (trap - USR1 USR2 && pause "$MPIJOB_KEEP") >/dev/null 2>&1 7>&- 8>&- &
  child=$! failed=$code
  waits "$child"
  code=$failed
fi
if [ -n "${follows:-}" ]; then kill "$follows"; fi
exec >&7 2>&8
await $stamps
exit "$code"
