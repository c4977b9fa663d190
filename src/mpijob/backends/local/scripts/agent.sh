#!/bin/sh
# The start agent: what ssh is on a cluster. mpirun calls it as: agent [options] WORKER COMMAND…
# It hands the command to the worker's own process and ends with the command's exit status.
while [ $# -gt 0 ]; do
  case $1 in
    -l | -p | -o | -i | -F) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
worker=$1
shift
case $worker in
  "" | */* | .*) echo "mpijob-agent: '$worker' is not a worker's name" >&2; exit 255 ;;
esac
dir=$MPIJOB_PIPES/workers/$worker
unreached() { # told to the supervisor: a launcher that aborts loses what its agents said last
  if [ -p "$MPIJOB_PIPES/report" ]; then printf 'unreached %s %s\n' "$worker" "$1" 1<> "$MPIJOB_PIPES/report"; fi
  exit 255
}
if [ ! -p "$dir/ask" ] || [ -e "$dir/dropped" ]; then unreached missing; fi
if [ -e "$dir/refuse" ]; then unreached refused; fi
set -C # the first request finds its answer's pipe made already; a file that exists is not written again
if printf '%s' "$*" > "$dir/request.0"; then
  id=0
else
  id=$$
  mkfifo -m 600 "$dir/answer.$id" || exit 255
  printf '%s' "$*" > "$dir/request.$id" || exit 255
fi 2> /dev/null
# The answer's pipe is open before anything is asked: a worker that finds nobody there takes us for gone.
{ printf 'start %s\n' "$id" >> "$dir/ask"; read -r code; } <> "$dir/answer.$id"
exit "${code:-255}"
