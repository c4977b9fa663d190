# Read by the wrapper of a rank that belongs to a script's step: takes its options, tells the rank who it is in Slurm's
# words, and leaves the command in "$@". The output stays the step's own, or goes where srun was told.
step='' output='' errors='' label='' programs='' tell=''
while :; do
  case ${1:-} in
    --step=*) step=${1#*=} ;;
    --tell) tell=1 ;;
    --output=*) output=${1#*=} ;;
    --error=*) errors=${1#*=} ;;
    --label) label=1 ;;
    --multi-prog=*) programs=${1#*=} ;;
    --) shift && break ;;
    *) break ;;
  esac
  shift
done
if [ -n "$tell" ]; then export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"; fi
node=0 host='' own=$(uname -n)
for one in ${MPIJOB_HOSTS:-}; do
  name=${one%:*}
  if [ "${MPIJOB_WORKER:-}" = "$node" ] || { [ -z "${MPIJOB_WORKER:-}" ] && [ "${name%%.*}" = "${own%%.*}" ]; }; then
    host=$name
    break
  fi
  node=$((node + 1))
done
host=${host:-$own}
export SLURM_PROCID="$rank" SLURM_LOCALID="$slot" SLURM_NODEID="$node" SLURM_STEP_ID="$step" SLURM_STEPID="$step" \
  SLURMD_NODENAME="$host" SLURM_TASK_PID="$$"
if [ -n "$size" ]; then export SLURM_NTASKS="$size" SLURM_NPROCS="$size" SLURM_STEP_NUM_TASKS="$size"; fi
filled() { printf '%s' "$1" | sed "s|%t|$rank|g;s|%n|$node|g;s|%N|$host|g"; }
if [ -n "$output" ]; then exec >"$(filled "$output")"; fi
if [ -n "$errors" ]; then exec 2>"$(filled "$errors")"; elif [ -n "$output" ]; then exec 2>&1; fi
if [ -n "$label" ]; then # sed ends with us
  pipe=${TMPDIR:-/tmp}/mpijob-label.$step.$rank.$$
  mkfifo "$pipe" && { sed -u "s/^/$rank: /" <"$pipe" & } && exec >"$pipe" 2>&1 && rm -f "$pipe"
fi
if [ "$rank" != 0 ]; then exec </dev/null; fi # what a launcher passes on to the others never ends
if [ -n "$programs" ]; then # srun --multi-prog: the first line that names this rank
  line=$(printf '%s\n' "$programs" | awk -v rank="$rank" '
    /^[[:space:]]*(#|$)/ { next }
    {
      count = split($1, spans, ",")
      for (i = 1; i <= count; i++) {
        two = split(spans[i], ends, "-")
        if (spans[i] == "*" || (two == 2 && rank + 0 >= ends[1] + 0 && rank + 0 <= ends[2] + 0) || spans[i] == rank) {
          first = (spans[i] == "*") ? 0 : ends[1]
          sub(/^[[:space:]]*[^[:space:]]+[[:space:]]+/, "")
          gsub(/%t/, rank)
          gsub(/%o/, rank - first)
          print
          exit
        }
      }
    }')
  if [ -z "$line" ]; then
    echo "srun: no line of the --multi-prog file names task $rank" >&2
    exit 1
  fi
  set -- /bin/sh -c "exec $line"
fi
case $1 in # as srun and Open MPI do: a program of the working directory, where the PATH has none
  */*) ;;
  *)
    if ! command -v "$1" >/dev/null && [ -x "./$1" ]; then
      program=./$1
      shift
      set -- "$program" "$@"
    fi
    ;;
esac
read -r began _ </proc/uptime
after_step() { # Open MPI's mpirun does not always end after ranks that ended at once
  read -r ended _ </proc/uptime
  if [ -n "${OMPI_COMM_WORLD_RANK:-}" ] && [ "$((${ended%.*}${ended#*.} - ${began%.*}${began#*.}))" -lt 10 ]; then
    sleep 0.1
  fi
}
