#!/bin/sh
# Stands before horovodrun and deepspeed: they look for a list of hosts of their own and know none of MPI's, so the job's
# workers are given to them, unless the command names hosts itself. MPIJOB_HOSTS_FILE has a line `worker slots=n` for each;
# the engine's own hostfile may have another form.
own=${0%/*} named='' options=1 left=$#
while [ "$left" -gt 0 ]; do
  word=$1 left=$((left - 1))
  shift
  if [ -n "$options" ]; then
    case $word in
      -H | --hosts | -hostfile | --hostfile | --host-discovery-script) named=1 ;;
      --hosts=* | --hostfile=* | --host-discovery-script=*) named=1 ;;
      -v | --version | -h | --help | -cb | --check-build) named=1 ;;
      python* | *.py) options='' ;; # the program: what follows are its own words
    esac
    case $word in
      /etc/mpi/hostfile) word=$MPIJOB_HOSTS_FILE ;;
      --hostfile=/etc/mpi/hostfile) word=--hostfile=$MPIJOB_HOSTS_FILE ;;
    esac
  fi
  set -- "$@" "$word"
done
if [ -z "$named" ]; then set -- --hostfile "$MPIJOB_HOSTS_FILE" "$@"; fi
IFS=:
for place in $PATH; do
  if [ "$place" != "$own" ] && [ -x "$place/${0##*/}" ]; then
    unset IFS
    exec "$place/${0##*/}" "$@"
  fi
done
echo "mpijob: execvp error on file ${0##*/} (No such file or directory)" >&2
exit 127
