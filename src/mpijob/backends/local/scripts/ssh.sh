#!/bin/sh
# `ssh WORKER COMMAND…` in a job on this machine: for commands that start their own ranks that way (horovodrun,
# deepspeed). The worker runs the command; what it prints and its exit status come back here.
worker=''
while [ $# -gt 0 ]; do # options stand before the worker's name, or behind it
  case $1 in
    -[BbcDEeFIiJLlmOopQRSWw]) shift 2 ;;
    --) shift && break ;;
    -*) shift ;;
    *) if [ -n "$worker" ]; then break; fi
      worker=${1#*@}
      shift ;;
  esac
done
if [ -z "$worker" ] || [ $# = 0 ]; then
  echo "ssh: name a worker of this job and a command; for a shell there use 'mpijob exec'" >&2
  exit 255
fi
case $worker in "" | */* | .*) echo "ssh: '$worker' is not a worker's name" >&2 && exit 255 ;; esac
dir=$MPIJOB_PIPES/workers/$worker
if [ ! -p "$dir/ask" ] || [ -e "$dir/dropped" ]; then
  echo "ssh: Could not resolve hostname $worker: it is no worker of this job" >&2
  exit 255
fi
id=$$
trap 'rm -f "$dir/out.$id" "$dir/err.$id" "$dir/answer.$id" "$dir/request.$id"' EXIT
mkfifo -m 600 "$dir/out.$id" "$dir/err.$id" "$dir/answer.$id" || exit 255
printf 'exec >"%s/out.%s" 2>"%s/err.%s"\n%s\n' "$dir" "$id" "$dir" "$id" "$*" >"$dir/request.$id" || exit 255
cat "$dir/out.$id" &
cat "$dir/err.$id" >&2 &
# The answer's pipe is open before anything is asked: a worker that finds nobody there takes us for gone.
{ printf 'run %s\n' "$id" >>"$dir/ask"; read -r code; } <>"$dir/answer.$id"
wait
exit "${code:-255}"
