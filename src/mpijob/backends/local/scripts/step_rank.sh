# Read by rank.sh: a rank of a script's step. Its output goes where the step's does, or where srun was told.
fill() { printf '%s' "$1" | sed "s|%t|$rank|g;s|%n|${MPIJOB_WORKER:-0}|g;s|%N|$host|g"; }
hosts=$MPIJOB_HOSTS index=0
for one in $hosts; do
  if [ "$index" = "${MPIJOB_WORKER:-0}" ]; then host=${one%:*}; fi
  index=$((index + 1))
done
export SLURM_PROCID="$rank" SLURM_LOCALID="$slot" SLURM_NODEID="${MPIJOB_WORKER:-0}" SLURM_STEP_ID="$step" \
  SLURM_STEPID="$step" SLURMD_NODENAME="$host" SLURM_TASK_PID="$$"
if [ -n "$size" ]; then export SLURM_NTASKS="$size" SLURM_NPROCS="$size" SLURM_STEP_NUM_TASKS="$size"; fi
if [ -n "$output" ]; then exec > "$(fill "$output")"; fi
if [ -n "$errors" ]; then exec 2> "$(fill "$errors")"; elif [ -n "$output" ]; then exec 2>&1; fi
if [ "$rank" != 0 ]; then exec < /dev/null; fi
printf 'inside %s %s %s %s %s %s %s\n' "$step" "$rank" "$size" "${MPIJOB_WORKER:-0}" "$slot" "$$" "$gpus" > "$dir/report"
if [ "$programs" != 1 ] && [ -n "$programs" ]; then # srun --multi-prog: the first line that names this rank
  line=$(printf '%s\n' "$programs" | awk -v rank="$rank" '
    /^[[:space:]]*(#|$)/ { next }
    {
      count = split($1, spans, ",")
      for (i = 1; i <= count; i++) {
        two = split(spans[i], ends, "-")
        if (spans[i] == "*" || (two == 2 && rank + 0 >= ends[1] + 0 && rank + 0 <= ends[2] + 0) || spans[i] == rank) {
          first = (spans[i] == "*") ? 0 : ends[1]
          sub(/^[[:space:]]*[^[:space:]]+[[:space:]]+/, "")
          gsub(/%t/, rank); gsub(/%o/, rank - first)
          print; exit
        }
      }
    }')
  if [ -z "$line" ]; then echo "srun: no line of the --multi-prog file names task $rank" >&2; exit 1; fi
  set -- /bin/sh -c "exec $line"
fi
case $1 in # as srun and Open MPI do: a program of the working directory, where the PATH has none
  */*) ;;
  *) if ! command -v "$1" > /dev/null && [ -x "./$1" ]; then program=./$1; shift; set -- "$program" "$@"; fi ;;
esac
trap : TERM INT HUP USR1 USR2 CONT
read -r began _ < /proc/uptime
if [ -n "$label" ]; then
  pipe=$TMPDIR/label.$step.$rank
  mkfifo "$pipe" && sed -u "s/^/$rank: /" < "$pipe" &
  until [ -p "$pipe" ]; do sleep 0.01; done
  "$@" > "$pipe" 2>&1
  code=$?
  wait
  rm -f "$pipe"
else
  "$@"
  code=$?
fi
read -r ended _ < /proc/uptime
if [ -n "$OMPI_COMM_WORLD_RANK" ] && [ "$((${ended%.*}${ended#*.} - ${began%.*}${began#*.}))" -lt 10 ]; then
  sleep 0.1 # Open MPI's mpirun does not always end after ranks that ended at once
fi
printf 'outside %s %s %s\n' "$step" "$rank" "$code" > "$dir/report"
exit "$code"
