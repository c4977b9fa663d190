#!/bin/sh
# `pdsh -w WORKERS COMMAND…` in a job on this machine, as DeepSpeed's launcher uses it: the command on all of them at once
# by the job's own `ssh`, each line with its worker's name before it. %n stands for a worker's number. Ends with the
# highest exit status (pdsh -S).
workers=''
while [ $# -gt 0 ]; do
  case $1 in
    -w) workers=$2 && shift 2 ;;
    -[fltuxRMnc]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
if [ -z "$workers" ] || [ $# = 0 ]; then
  echo "pdsh: name workers of this job (-w) and a command" >&2
  exit 1
fi
numbered() { # $1 a number, $2 a text: the text with the number for each %n
  rest=$2 text=''
  while [ "$rest" != "${rest#*%n}" ]; do text=$text${rest%%%n*}$1 rest=${rest#*%n}; done
  printf '%s' "$text$rest"
}
named() { while IFS= read -r line || [ -n "$line" ]; do printf '%s: %s\n' "$1" "$line"; done; }
ends=${TMPDIR:-/tmp}/pdsh.$$ number=0 command=$*
trap 'rm -f "$ends"' EXIT
IFS=,
for worker in $workers; do
  {
    "${0%/*}/ssh" "$worker" "$(numbered "$number" "$command")" 2>&1
    printf '%s\n' "$?" >>"$ends"
  } | named "$worker" &
  number=$((number + 1))
done
wait
highest=0
while read -r code; do if [ "$code" -gt "$highest" ]; then highest=$code; fi; done <"$ends"
exit "$highest"
