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
dir=$MPIJOB_ATTEMPT_DIR/workers/$worker
if [ ! -p "$dir/ask" ] || [ -e "$dir/dropped" ]; then
  echo "mpijob-agent: cannot reach worker $worker: No such file or directory" >&2
  exit 255
fi
if [ -e "$dir/refuse" ]; then
  echo "mpijob-agent: cannot reach worker $worker: Connection refused" >&2
  exit 255
fi
mkfifo -m 600 "$dir/answer.$$" || exit 255
printf '%s' "$*" > "$dir/request.$$" || exit 255
printf 'start %s\n' "$$" > "$dir/ask"
read -r code < "$dir/answer.$$"
exit "${code:-255}"
