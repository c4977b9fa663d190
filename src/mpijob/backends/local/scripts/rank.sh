#!/bin/sh
# Stands before every rank's command. It says who this rank is, waits until the world is proved,
# gives the rank its own output and GPUs, runs the command, and says how it ended.
srun=
case ${1:-} in --step=*) in_step=1 ;; *) in_step= ;; esac # of a script: srun's options come before the command
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-}}}
size=${PMI_SIZE:-${OMPI_COMM_WORLD_SIZE:-}}
slot=${MPI_LOCALRANKID:-${OMPI_COMM_WORLD_LOCAL_RANK:-0}}
if [ -n "$MPIJOB_RANK_VARIABLE" ]; then eval "rank=\$$MPIJOB_RANK_VARIABLE"; fi
dir=$MPIJOB_PIPES
if [ -e "$dir/placement" ]; then # one daemon has started the ranks of all workers: this one joins its own
  . "$dir/placement"
  if [ -n "$OMPI_COMM_WORLD_RANK" ]; then
    export OMPI_COMM_WORLD_LOCAL_RANK="$slot" OMPI_COMM_WORLD_NODE_RANK="$slot" OMPI_COMM_WORLD_LOCAL_SIZE="$local_size"
  else
    export MPI_LOCALRANKID="$slot" MPI_LOCALNRANKS="$local_size"
  fi
fi
export MPIJOB_RANK="$rank" MPIJOB_WORLD="${size:-$MPIJOB_WORLD}" MPIJOB_LOCAL_RANK="$slot"
if [ -n "$MPIJOB_GPUS_PER_RANK" ]; then
  from=$((slot * MPIJOB_GPUS_PER_RANK + 1))
  gpus=$(printf '%s' "$MPIJOB_GPUS" | cut -d, -f "$from-$((from + MPIJOB_GPUS_PER_RANK - 1))")
  export CUDA_VISIBLE_DEVICES="$gpus" ROCR_VISIBLE_DEVICES="$gpus" ZE_AFFINITY_MASK="$gpus"
else
  gpus=${CUDA_VISIBLE_DEVICES:-}
fi
if [ "$RES_OPTIONS" = "timeout:1 attempts:1" ]; then unset RES_OPTIONS; fi # was for the launcher only
# A program of another MPI would become a world of its own, and succeed: let its MPI_Init fail instead.
if [ -n "$OMPI_COMM_WORLD_RANK" ]; then
  export PMI_PORT=127.0.0.1:1 PMI_ID=0
elif [ -n "$PMI_RANK" ]; then
  export PMIX_MCA_gds=mpijob_started_this_rank_with_mpich
fi
if [ -z "$rank" ]; then
  echo "mpijob: the launcher gave this process no rank" >&2
  exit 255
fi
if [ -n "$in_step" ]; then
  . "$MPIJOB_STEP_RANK"
  export MPIJOB_PROFILE_STEP="$step"
  printf 'inside %s %s %s %s %s %s %s\n' "$step" "$rank" "$size" "${MPIJOB_WORKER:-0}" "$slot" "$$" "$gpus" > "$dir/report"
else
  printf 'rank %s\n' "$rank" > "$MPIJOB_WORKER_DIR/ask"
  exec > "$dir/ranks/$rank.out" 2> "$dir/ranks/$rank.err"
  printf 'hello %s %s %s %s %s %s\n' "$rank" "$size" "$MPIJOB_WORKER" "$slot" "$$" "$gpus" > "$dir/report"
  # Only rank 0 is fed; the others would wait for ever on a pipe that nobody closes.
  if [ "$rank" = 0 ]; then exec < "$MPIJOB_STDIN"; else exec < /dev/null; fi
  if [ "$MPIJOB_GATE" = 1 ]; then read -r _ < "$dir/gate" || exit 255; fi
fi
trap : TERM INT HUP USR1 USR2 CONT
if [ -n "$srun" ]; then
  exec 8>&2 2>/dev/null # the shell would print a line of its own on a program that was killed; srun prints another
  (exec "$@" 2>&8 8>&- 9>&-)
  code=$?
  exec 2>&8 8>&-
else
  "$@"
  code=$?
fi
case $code$1 in # in the words that the MPI libraries have for it
  127*/*) if [ -e "$1" ]; then
      read -r line < "$1"; echo "mpijob: $1: ${line#??}: bad interpreter: No such file or directory" >&2
    else echo "mpijob: execvp error on file $1 (No such file or directory)" >&2; fi ;;
  126*/*) echo "mpijob: execvp error on file $1 (Permission denied)" >&2 ;;
esac
if [ -n "$in_step" ]; then
  printf 'outside %s %s %s\n' "$step" "$rank" "$code" > "$dir/report"
  after_step
else
  printf 'bye %s %s\n' "$rank" "$code" > "$dir/report"
fi
exit $code
