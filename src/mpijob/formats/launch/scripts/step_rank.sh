# Read by the wrapper of a rank that belongs to a script's step: takes its options, tells the rank who it is in Slurm's
# words, and leaves the command in "$@". The output stays the step's own, or goes where srun was told.
step='' output='' errors='' label='' programs='' tell='' srun='' kill='' keep='' append=''
while :; do
  case ${1:-} in
    --step=*) step=${1#*=} ;;
    --tell) tell=1 ;;
    --srun) srun=1 ;;
    --kill) kill=1 ;;
    --keep=*) keep=${1#*=} ;;
    --append) append=1 ;;
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
if [ -n "${MPIJOB_STEP_NODES:-}" ]; then # of srun: a node's number is that within the step
  node=0
  for one in $(printf '%s' "$MPIJOB_STEP_NODES" | tr ',' ' '); do
    if [ "$one" = "$host" ]; then break; fi
    node=$((node + 1))
  done
fi
export SLURM_PROCID="$rank" SLURM_LOCALID="$slot" SLURM_NODEID="$node" SLURM_STEP_ID="$step" SLURM_STEPID="$step" \
  SLURMD_NODENAME="$host" SLURM_TASK_PID="$$"
if [ -z "${MPIJOB_GPUS_APART:-}" ] && [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then # each task sees all of its node, unless asked
  gpus=${MPIJOB_GPUS:-}
  if [ -z "${MPIJOB_PIPES:-}" ]; then gpus=$(awk "BEGIN { for (i = 0; i < $SLURM_GPUS_ON_NODE; i++) printf \"%s%d\", (i ? \",\" : \"\"), i }"); fi
  export CUDA_VISIBLE_DEVICES="$gpus" ROCR_VISIBLE_DEVICES="$gpus" ZE_AFFINITY_MASK="$gpus"
fi
if [ -n "$size" ]; then export SLURM_NTASKS="$size" SLURM_NPROCS="$size" SLURM_STEP_NUM_TASKS="$size"; fi
filled() {
  printf '%s' "$1" | awk -v rank="$rank" -v node="$node" -v host="$host" '{
    while (match($0, /%[0-9]*[tnN]/)) {
      letter = substr($0, RSTART + RLENGTH - 1, 1)
      value = letter == "N" ? host : sprintf("%0" (substr($0, RSTART + 1, RLENGTH - 2) + 0) "d", letter == "t" ? rank : node)
      $0 = substr($0, 1, RSTART - 1) value substr($0, RSTART + RLENGTH)
    }
    print
  }'
}
target() { # $1 where srun was told to print: sets file
  file=/dev/stdout
  case $1 in
    *[!0-9]*) file=$(filled "$1") ;;
    "$rank") ;;
    *) file=/dev/null ;; # only one task is to print
  esac
  case $append$1 in *%t* | *%[0-9]*t*) if [ -z "$append" ]; then : >"$file"; fi ;; esac
}
if [ -n "$srun" ]; then exec 9>&2; fi
if [ -n "$output" ]; then target "$output" && if [ "$file" != /dev/stdout ]; then exec >>"$file"; fi; fi
if [ -n "$errors" ]; then target "$errors" && if [ "$file" != /dev/stdout ]; then exec 2>>"$file"; fi; elif [ -n "$output" ]; then exec 2>&1; fi
if [ -n "$label" ]; then # sed ends with us
  pipe=${TMPDIR:-/tmp}/mpijob-label.$step.$rank.$$
  mkfifo "$pipe" "$pipe.err" && { sed -u "s/^/$rank: /" <"$pipe" & } && { sed -u "s/^/$rank: /" <"$pipe.err" >&2 & } \
    && exec >"$pipe" 2>"$pipe.err" && rm -f "$pipe" "$pipe.err"
fi
if [ -p "$MPIJOB_STEPS/$step/stdin.$rank" ]; then
  exec <"$MPIJOB_STEPS/$step/stdin.$rank"
elif [ "$rank" != 0 ]; then
  exec </dev/null # what a launcher passes on to the others never ends
fi
if [ -n "$programs" ]; then # srun --multi-prog: the first line that names this rank
  line=$(printf '%s\n' "$programs" | awk -v rank="$rank" '
    /^[[:space:]]*(#|$)/ { next }
    {
      count = split($1, spans, ",")
      before = 0
      for (i = 1; i <= count; i++) {
        two = split(spans[i], ends, "-")
        if (spans[i] == "*" || (two == 2 && rank + 0 >= ends[1] + 0 && rank + 0 <= ends[2] + 0) || spans[i] == rank) {
          first = (spans[i] == "*") ? 0 : ends[1]
          sub(/^[[:space:]]*[^[:space:]]+[[:space:]]+/, "")
          gsub(/%t/, rank)
          gsub(/%o/, before + rank - first)
          words($0)
          exit
        }
        before += two == 2 ? ends[2] - ends[1] + 1 : 1
      }
    }
    function words(text, at, letter, word, inside, quoted) { # single quotes and backslashes, and nothing else, as Slurm
      for (at = 1; at <= length(text) + 1; at++) {
        letter = substr(text, at, 1)
        if (letter == "" || (!quoted && letter ~ /[[:space:]]/)) {
          if (inside) { gsub(/\047/, "\047\\\\\047\047", word); printf "\047%s\047 ", word }
          word = ""; inside = 0
          continue
        }
        inside = 1
        if (letter == "\047") quoted = !quoted
        else if (letter == "\\" && !quoted) word = word substr(text, ++at, 1)
        else word = word letter
      }
    }')
  if [ -z "$line" ]; then
    echo "srun: no line of the --multi-prog file names task $rank" >&2
    exit 1
  fi
  eval "set -- $line"
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
case $1 in apptainer | singularity) # which need not be in an image
  if ! command -v "$1" >/dev/null; then
    if [ -n "${MPIJOB_STEP_RANK:-}" ]; then set -- "${MPIJOB_STEP_RANK%_rank.sh}.sh" "$@"; else set -- "$home/step.sh" "$@"; fi
    set -- /bin/sh "$@"
  fi
  ;;
esac
if command -v "$1" >/dev/null; then missing=''; else missing=1; fi
if [ -n "$srun" ]; then
  if [ -n "$keep" ]; then # srun --export without ALL: the named ones, and what starts a rank
    found=$(command -v "$1") && { shift; set -- "$found" "$@"; }
    for one in $(export -p | sed -n 's/^export \([A-Za-z_][A-Za-z0-9_]*\)\(=.*\)\{0,1\}$/\1/p'); do
      case $keep$one in
        *" $one "*"$one" | *' 'SLURM* | *' 'MPI* | *' 'PMI* | *' 'OMPI_* | *' 'PRTE_* | *' 'OPAL_* | *' 'HYD* | *' 'I_MPI_* | *' 'FI_*) ;;
        *' PATH' | *' LD_LIBRARY_PATH' | *' TMPDIR') ;;
        *) unset "$one" ;;
      esac
    done
  fi
  case $1 in */*) [ -f "$1" ] && [ -x "$1" ] ;; *) command -v "$1" >/dev/null ;; esac
  if [ $? != 0 ]; then
    if [ -e "$1" ]; then why='Permission denied' refused=13; else why='No such file or directory' refused=2; fi
    set -- /bin/sh -c 'echo "mpijob: execvp error on file $0 ($1)" >&2; exit "$2"' "$1" "$why" "$refused"
  fi
fi
read -r began _ </proc/uptime
after_step() { # $code is the program's: srun hears of it, and of whom it was
  if [ -n "$srun" ] && [ -d "$MPIJOB_STEPS/$step" ]; then echo "$code" >"$MPIJOB_STEPS/$step/exit.$rank"; fi
  if [ -n "$srun" ] && [ "$code" != 0 ]; then
    case $code in
      137) why=Killed ;; 143) why=Terminated ;; 139) why='Segmentation fault' ;; 134) why=Aborted ;;
      *) why="Exited with exit code $code" ;;
    esac
    echo "srun: error: $host: task $rank: $why" >&9
    if [ -n "$kill" ] && [ -e "$MPIJOB_STEPS/$step/pid" ]; then
      read -r launcher <"$MPIJOB_STEPS/$step/pid"
      tries=0 # a task that is about to start does not hear the first one
      while [ "$tries" -lt 20 ] && kill -s TERM "$launcher" 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.3
      done
    elif [ -n "$kill" ] && [ -n "${PMI_RANK:-}" ]; then
      kill -s KILL $$ # by which hydra ends the others
    fi
  fi
  read -r ended _ </proc/uptime # Open MPI's mpirun does not always end after ranks that ended at once
  if [ -n "${OMPI_COMM_WORLD_RANK:-}" ] && [ "$((${ended%.*}${ended#*.} - ${began%.*}${began#*.}))" -lt 10 ]; then
    sleep 0.1
  fi
  if [ -n "$srun" ] && [ -e "$MPIJOB_STEPS/$step/exit.$rank" ]; then exit 0; fi # for another, launchers end the other tasks
  if [ -n "$srun" ] && [ -z "$kill" ]; then exit "$code"; fi
  if [ -z "$srun" ] && [ -n "$missing" ] && [ -n "${PMI_RANK:-}" ]; then exit 255; fi # as hydra does
}
