#!/bin/sh
# What a job's script finds under the names of launchers and of a batch system's programs: `sh step.sh NAME WORDS…`.
# A launcher becomes a step: the MPI library's own one is started over the job's workers, with the rank's wrapper
# before the program. POSIX sh, for images without anything else. The job tells us by variables: MPIJOB_STEPS (our
# directory), MPIJOB_FAMILY, MPIJOB_LAUNCHER, MPIJOB_HOSTFILE, MPIJOB_SHIM, and MPIJOB_COMPONENT_SIZES (where workers
# are in groups, how many each has). `script FILE WORDS…` comes first: it makes the programs under their names, and tells
# the script of the job in the words of batch systems.
set -u
held='' # the slots that this step has taken
name=$1
shift
steps=$MPIJOB_STEPS
case $MPIJOB_FAMILY in openmpi) open=1 ;; *) open='' ;; esac
newline='
'

say() { printf 'mpijob: %s\n' "$*" >&2; }
refuse() {
  say "$*"
  free_slots
  exit 1
}
misused() { # as srun does for words that it does not understand
  say "$*"
  printf 'Try "srun --help" for more information\n' >&2
  exit 255
}
once() { # $1 what it is about: said once for a job, and not by ranks in other pods
  if [ ! -e "$steps/said.$1" ] && { echo >"$steps/said.$1"; } 2>/dev/null; then
    shift
    say "$*"
  fi
}
report() { # to the supervisor on one machine, into the launcher's log on a cluster
  if [ -n "${MPIJOB_PIPES:-}" ]; then
    printf 'step %s\n' "$*" >"$MPIJOB_PIPES/report"
  else
    printf 'mpijob-step %s\n' "$*" >/proc/1/fd/1
  fi
}

# -- one step -----------------------------------------------------------------------------------------------
begin() { # the step's own words: takes the next number
  step=0
  if [ -e "$steps/next" ]; then read -r step <"$steps/next"; fi
  until mkdir "$steps/$step" 2>/dev/null; do step=$((step + 1)); done
  printf '%s\n' "$((step + 1))" >"$steps/next"
  ranks=0
  printf '%s\n' "$*" >"$steps/$step/command"
}

run() { # runs the launcher as a child: its end is noted, signals are handed on
  if [ -n "${MPIJOB_PIPES:-}" ]; then
    report "$step begin $ranks"
  else
    report "number=$step ranks=$ranks command=$(tr ' \t\n' '\037\037\037' <"$steps/$step/command")"
  fi
  exec 3<&0
  MPIJOB_IN_STEP=1 "$@" <&3 3<&- &
  child=$!
  if [ -n "${MPIJOB_PIPES:-}" ]; then printf '%s\n' "$child" >"$steps/$step/pid"; fi
  for signal in TERM INT HUP USR1 USR2; do trap "ended_by=$signal; kill -s $signal $child 2>/dev/null" "$signal"; done
  while :; do
    wait "$child"
    code=$?
    kill -s 0 "$child" 2>/dev/null || break
  done
  free_slots
  if [ -n "${feeder:-}" ]; then kill "$feeder" 2>/dev/null; fi
  if [ "$name" = srun ]; then highest_code; fi
  if [ -n "${MPIJOB_PIPES:-}" ]; then report "$step end $code"; else report "number=$step code=$code"; fi
  printf '%s\n' "$code" >"$steps/$step/code"
  case $name${ended_by:-} in srunTERM) code=137 ;; esac # srun kills its tasks then, and exits with their status
  exit "$code"
}

highest_code() { # srun's exit status is the highest of its tasks', where they could tell theirs
  told=0 highest=0
  for one in "$steps/$step"/exit.*; do
    if [ -e "$one" ]; then
      read -r task <"$one"
      told=$((told + 1))
      if [ "$task" -gt "$highest" ]; then highest=$task; fi
    fi
  done
  if [ "$told" = "$ranks" ] || [ "$highest" -gt "$code" ]; then code=$highest; fi
}

tagged() { # whether what the ranks print goes to the job's own log, where each line says which rank wrote it
  [ -n "${MPIJOB_STDOUT:-}" ] && [ "$(readlink "/proc/$$/fd/1")" = "$MPIJOB_STDOUT" ]
}

exported() { # the variables that the script has set; hydra hands them on by itself
  export -p | while IFS= read -r line; do
    case $line in
      'export '[A-Za-z_]*)
        one=${line#export }
        one=${one%%=*}
        case $one in
          *[!A-Za-z0-9_]* | PWD | OLDPWD | SHLVL | _ | HOSTNAME | TERM | KUBERNETES_* | OMPI_* | PMIX_* | PRTE_* | PMI_*) ;;
          MPIJOB_NODE | MPIJOB_POD_IP | MPIJOB_CENSUS | MPIJOB_TAG | MPIJOB_STDOUT) ;;
          *) printf '%s\n' "$one" ;;
        esac
        ;;
    esac
  done
}

launch() { # the sections of programs with their options: puts the launcher and what all sections share before them
  export OMP_NUM_THREADS="${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}" # ranks are not bound to their cores as by Slurm
  if [ "$MPIJOB_FAMILY" = openmpi ]; then
    for one in $(exported); do
      if eval "[ -n \"\${$one+set}\" ]"; then set -- -x "$one" "$@"; fi
    done
    if tagged; then set -- --tag-output "$@"; fi
    if [ -n "$hostfile" ]; then set -- --hostfile "$hostfile" "$@"; fi
  else
    if [ -z "$pattern" ] && tagged; then pattern="[step $step rank %r${MPIJOB_TAG:+ $MPIJOB_TAG}] "; fi
    unset MPIJOB_TAG # no rank is to know it: it would print another's lines
    if [ -n "${MPIJOB_POD_IP:-}" ]; then set -- -localhost "$MPIJOB_POD_IP" "$@"; fi
    if [ -n "$pattern" ]; then set -- -prepend-pattern "$pattern" "$@"; fi
    case $MPIJOB_FAMILY$name${MPIJOB_COMPONENTS:+srun} in # by -f Intel MPI overlooks how many ranks each host gets
      intel*srun) set -- -machinefile "$hostfile" "$@" ;;
      *) if [ -n "$hostfile" ]; then set -- -f "$hostfile" "$@"; fi ;;
    esac
  fi
  run "$MPIJOB_LAUNCHER" "$@"
}

nested() {
  if [ -n "${MPIJOB_RANK:-}" ]; then
    refuse "$name was started by rank $MPIJOB_RANK: a step cannot start steps; start it from the script itself"
  fi
}

# -- mpirun and mpiexec, in the words of any family ---------------------------------------------------------
ignored() { once "option.$1" "$name $1 is left out: $MPIJOB_FAMILY has no such option"; }

mpirun_step() {
  nested
  hostfile=$MPIJOB_HOSTFILE pattern='' all=$* wanted='' per='' sections=1
  left=$# where=options counted=''
  begin "$name" "$@"
  while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    if [ "$where" = words ]; then
      set -- "$@" "$word"
      if [ "$word" = : ]; then where=options counted='' sections=$((sections + 1)); fi
      continue
    fi
    case $word in
      -*) ;;
      *) # the program: the wrapper comes before it
        if [ -z "$counted" ] && [ "$sections" = 1 ]; then
          case " $all " in *' : '*) ;; *)
            wanted=${MPIJOB_WORLD:-1}
            if [ -n "$per" ]; then wanted=$(($(set -- $MPIJOB_HOSTS && echo $#) * per)); fi
            set -- "$@" -n "$wanted"
            ;;
          esac
        fi
        set -- "$@" /bin/sh "$MPIJOB_SHIM" "--step=$step"
        if tagged; then set -- "$@" --tell; fi
        set -- "$@" -- "$word"
        where=words
        continue
        ;;
    esac
    value='' joined=''
    case $word in --*=*) value=${word#*=} joined=1 word=${word%%=*} ;; esac
    option=${word#-}
    option=${option#-}
    case $option in # how many words it takes
      mca | prtemca | pmixmca | gmca | gpmixmca | omca | genv) takes=2 ;;
      env) case ${1:-} in *=*) takes=1 ;; *) takes=2 ;; esac ;;
      n | np | c | N | ppn | perhost | npernode | npersocket | x | wdir | wd | hostfile | machinefile | f | H | host | hosts \
        | machine | default-hostfile | map-by | rank-by | bind-to | cpu-bind | mem-bind | membind | depth | d | cc | prefix \
        | rankfile | rf | ppr | timeout | output | output-filename | app | path | tune | personality | pset | stdin | cpu-set \
        | cpu-list | dvm | report-uri | ompi-server | tmpdir | am | runtime-options | display | set-env | launch-agent | xterm \
        | genvlist | envlist | launcher | launcher-exec | iface | rmk | configfile | outfile-pattern | errfile-pattern \
        | prepend-pattern | usize | topolib | nameserver | demux | localhost | port-range | soft | arch | bootstrap \
        | bootstrap-exec | bootstrap-exec-args | branch-count | trace-pattern | s | cpus-per-proc | cpus-per-rank | gpu-bind \
        | j | S | ss | cpus-per-pe) takes=1 ;;
      *) takes=0 ;;
    esac
    if [ -n "$joined" ]; then takes=0; fi
    if [ "$takes" -gt "$left" ]; then refuse "$name $word needs a value"; fi
    if [ "$takes" -ge 1 ]; then value=$1; shift; fi
    second=''
    if [ "$takes" = 2 ]; then second=$1; shift; fi
    left=$((left - takes))
    case $option in
      n | np | c)
        case $value in '' | *[!0-9]*)
          say "$name $word needs a number of ranks, not '$value'"
          exit "$([ -n "$open" ] && echo 1 || echo 255)"
          ;;
        esac
        counted=1 ranks=$((ranks + value))
        set -- "$@" -n "$value"
        ;;
      N | ppn | perhost | npernode)
        per=$value
        if [ -n "$open" ]; then set -- "$@" -N "$value"; else set -- "$@" -ppn "$value"; fi
        ;;
      wdir | wd) if [ -n "$open" ]; then set -- "$@" --wdir "$value"; else set -- "$@" -wdir "$value"; fi ;;
      x | env | genv | set-env)
        if [ "$takes" = 2 ]; then value="$value=$second"; fi
        case $value in
          *=*) if [ -n "$open" ]; then set -- "$@" -x "$value"; else export "$value"; fi ;;
          *) : ;; # it is handed on anyway
        esac
        ;;
      genvall | envall | genvlist | envlist | genvnone | envnone) : ;;
      hostfile | machinefile | f | default-hostfile)
        hostfile=''
        if [ -n "$open" ]; then set -- "$@" --hostfile "$value"; else set -- "$@" -f "$value"; fi
        ;;
      H | host | hosts)
        hostfile=''
        if [ -n "$open" ]; then set -- "$@" --host "$value"; else set -- "$@" -hosts "$value"; fi
        ;;
      l | tag-output | label | prepend-rank)
        if [ -z "$open" ]; then pattern='[%r] '; else set -- "$@" --tag-output; fi
        ;;
      mca | prtemca | pmixmca | gmca | gpmixmca | omca)
        if [ -n "$open" ]; then set -- "$@" "$word" "$value" "$second"; else ignored "$word"; fi
        ;;
      allow-run-as-root | oversubscribe | use-hwthread-cpus | report-bindings | nooversubscribe | display-map | display | quiet | q \
        | bynode | byslot | map-by | rank-by | cpu-set | cpu-list | prefix | rankfile | rf | npersocket | ppr | am | tune \
        | output-filename | output | timeout | stdin | merge-stderr-to-stdout | do-not-launch)
        if [ -n "$open" ]; then
          set -- "$@" "$word"
          if [ -n "$value" ]; then set -- "$@" "$value"; fi
        elif [ "$option" = map-by ] && [ "$value" = node ]; then
          set -- "$@" -ppn 1
        else
          ignored "$word"
        fi
        ;;
      cpu-bind | mem-bind | depth | d | cc | gpu-bind | j | S | ss | cpus-per-pe | no-vni | line-buffer | cpus-per-proc \
        | cpus-per-rank | no-transfer) ignored "$word" ;; # of other launchers: they place and bind, and change no result
      bind-to) set -- "$@" "$([ -n "$open" ] && echo --bind-to || echo -bind-to)" "$value" ;;
      *)
        set -- "$@" "$word"
        if [ "$takes" -ge 1 ] || [ -n "$joined" ]; then set -- "$@" "$value"; fi
        if [ "$takes" = 2 ]; then set -- "$@" "$second"; fi
        ;;
    esac
  done
  if [ "$where" = options ]; then # --version, --help: no step
    rmdir_step
    exec "$MPIJOB_LAUNCHER" "$@"
  fi
  ranks=$((ranks + ${wanted:-0}))
  launch "$@"
}

rmdir_step() { rm -rf "${steps:?}/$step"; }

# -- srun -----------------------------------------------------------------------------------------------------
free_slots() { for one in $held; do rmdir "$one" 2>/dev/null; done; }

SRUN_VALUES='ntasks nodes ntasks-per-node tasks-per-node cpus-per-task output error input chdir job-name nodelist exclude
distribution time partition account mem mem-per-cpu mem-per-gpu mem-bind cpu-bind cpu_bind mem_bind gpus gpus-per-node
gpus-per-task gpus-per-socket gpu-bind gpu-freq cpu-freq gres ntasks-per-gpu ntasks-per-core ntasks-per-socket hint mpi export
export-file het-group pack-group wait relative constraint qos dependency jobid comment threads-per-core sockets-per-node
cores-per-socket extra-node-info container-image container-mounts container-workdir container-name container-env container
prolog epilog task-prolog task-epilog open-mode profile signal switches tmp tres-per-task network core-spec thread-spec
acctg-freq mincpus reservation wckey slurmd-debug resv-ports nodefile'
SRUN_FLAGS='label unbuffered exact exclusive overlap overcommit oversubscribe multi-prog pty verbose quiet hold no-kill
preserve-env disable-status no-allocate contiguous spread-job use-min-nodes whole container-mount-home
no-container-mount-home container-writable container-remap-root no-container-remap-root immediate kill-on-bad-exit
no-shell bcast propagate nice requeue version help'

long_name() { # $1 as typed, without dashes: sets option, by the only long name that begins with it
  option=''
  for one in $SRUN_VALUES $SRUN_FLAGS; do
    if [ "$one" = "$1" ]; then option=$one && return; fi
    case $one in "$1"*) option="$option $one" ;; esac
  done
  option=${option# }
  case $option in
    '') misused "srun: unrecognized option '--$1'" ;;
    *' '*) misused "srun: option '--$1' is ambiguous: $option" ;;
  esac
}

short_name() {
  case $1 in
    n) option=ntasks ;; N) option=nodes ;; c) option=cpus-per-task ;; o) option=output ;; e) option=error ;;
    i) option=input ;; D) option=chdir ;; J) option=job-name ;; w) option=nodelist ;; x) option=exclude ;;
    m) option=distribution ;; t) option=time ;; p) option=partition ;; A) option=account ;; G) option=gpus ;;
    r) option=relative ;; C) option=constraint ;; q) option=qos ;; d) option=dependency ;; B) option=extra-node-info ;;
    W) option=wait ;; S) option=core-spec ;; F) option=nodefile ;; l) option=label ;; u) option=unbuffered ;;
    O) option=overcommit ;; s) option=oversubscribe ;; v) option=verbose ;; Q) option=quiet ;; H) option=hold ;;
    k) option=no-kill ;; E) option=preserve-env ;; X) option=disable-status ;; K) option=kill-on-bad-exit ;;
    I) option=immediate ;; Z) option=no-allocate ;; V) option=version ;; h) option=help ;;
    *) misused "srun: invalid option -- '$1'" ;;
  esac
}

takes_value() { case " $(echo $SRUN_VALUES) " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

srun_option() { # $1 the option, $2 its value
  case $1=$2 in
    gpus*=* | gres=gpu*) [ -n "${SLURM_GPUS_ON_NODE:-}" ] || once gpus "srun --$1=$2: the job has no GPUs; set gpu" ;;
    cpus-per-task=*) [ "$2" -le "${SLURM_CPUS_ON_NODE:-$2}" ] || once cores "srun -c $2: a worker has $SLURM_CPUS_ON_NODE cores; set cpu" ;;
  esac
  case $1 in
    ntasks) tasks=$2 ;;
    nodes) nodes=${2##*-} ;;
    ntasks-per-node | tasks-per-node) per=$2 ;;
    nodelist) listed=$(expand "$2") ;;
    exclude) without=" $(expand "$2" | tr '\n' ' ')" ;;
    relative) from=$2 ;;
    distribution)
      case $2 in
        cyclic*) plane=1 ;;
        plane=*) plane=${2#*=} plane=${plane%%[!0-9]*} ;;
        arbitrary*) refuse "srun --distribution=$2 cannot be meant here: name the nodes with -w" ;;
      esac
      ;;
    output) output=$2 ;;
    error) errors=$2 ;;
    input)
      case $2 in
        none) input=/dev/null ;;
        all) ;;
        *[!0-9]*) input=$2 ;;
        *) stdin=$2 ;;
      esac
      ;;
    kill-on-bad-exit) case $2 in 0) kill='' ;; *) kill=1 ;; esac ;;
    chdir) cd "$2" || exit 1 ;;
    open-mode) case $2 in a*) append=1 ;; esac ;;
    label) label=1 ;;
    multi-prog) multi=1 ;;
    overlap | oversubscribe) overlap=1 ;;
    overcommit) overlap=1 over=1 ;;
    export)
      keep=' '
      IFS=,
      for one in $2; do
        keep="$keep${one%%=*} "
        case $one in *=*) export "${one?}" ;; esac
      done
      unset IFS
      case $keep in *' ALL '*) keep='' ;; esac
      ;;
    cpus-per-task) export SLURM_CPUS_PER_TASK="$2" ;;
    gpus-per-task | ntasks-per-gpu | gpu-bind) case $2 in none*) unset MPIJOB_GPUS_APART ;; *) export MPIJOB_GPUS_APART=1 ;; esac ;;
    pty) once pty "srun --pty is left out: there is no terminal" ;;
    container-image | container) once container "srun --$1 $2: the job's own image is used; set image in the job" ;;
    bcast) once bcast "srun --bcast is left out: the program is where it is" ;;
    het-group | pack-group) components=$2 ;;
    jobid | mpi | job-name | time | partition | account | mem* | cpu* | gpu* | gres | hint | exact \
      | exclusive | whole | unbuffered | verbose | quiet | wait | no-kill | constraint | qos | threads-per-core \
      | ntasks-per-core | ntasks-per-socket | ntasks-per-gpu | sockets-per-node | cores-per-socket | extra-node-info | comment \
      | container-* | no-container-* | profile | switches | tmp | network | core-spec | thread-spec | acctg-freq | mincpus \
      | propagate | nice | contiguous | spread-job | use-min-nodes | immediate | disable-status | preserve-env | signal \
      | reservation | wckey | slurmd-debug | resv-ports | hold | requeue | no-shell | tres-per-task) ;; # not of the result
    *) refuse "srun --$1 cannot be meant here: take it out of the script" ;;
  esac
}

srun_step() {
  nested
  tasks='' nodes='' per='' listed='' without=' ' from=0 plane='' output='' errors='' input='' append='' label='' multi=''
  overlap='' over='' pattern='' hostfile='' kill='' keep='' used=' ' stdin=all components=''
  begin srun "$@"
  left=$# where=options sections=0 total=0 : >"$steps/$step/hosts"
  while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $where$word in
      words:)
        where=options tasks='' per='' nodes='' components=''
        set -- "$@" :
        continue
        ;;
      words*)
        set -- "$@" "$word"
        continue
        ;;
      options--) [ "$left" -gt 0 ] || refuse "srun: no program was given"; word=$1; shift; left=$((left - 1)) ;;
      options--*)
        typed=${word#--} value=''
        case $typed in *=*) value=${typed#*=} typed=${typed%%=*} given=1 ;; *) given='' ;; esac
        long_name "$typed"
        if [ -z "$given" ] && takes_value "$option"; then
          [ "$left" -gt 0 ] || misused "srun: option '--$option' requires an argument"
          value=$1
          shift
          left=$((left - 1))
        fi
        srun_option "$option" "$value"
        continue
        ;;
      options-?*)
        letters=${word#-}
        while [ -n "$letters" ]; do
          letter=${letters%"${letters#?}"}
          letters=${letters#?}
          short_name "$letter"
          value=''
          if takes_value "$option"; then
            if [ -n "$letters" ]; then value=$letters letters=''; else
              [ "$left" -gt 0 ] || misused "srun: option requires an argument -- '$letter'"
              value=$1
              shift
              left=$((left - 1))
            fi
          elif [ "$option" = kill-on-bad-exit ] || [ "$option" = immediate ]; then
            letters=${letters#[0-9]}
          fi
          srun_option "$option" "$value"
        done
        continue
        ;;
    esac
    layout
    sections=$((sections + 1))
    set -- "$@" -n "$tasks" /bin/sh "$MPIJOB_SHIM" "--step=$step" --srun
    if [ -n "$kill" ]; then set -- "$@" --kill; fi
    if [ -n "$keep" ]; then set -- "$@" "--keep=$keep"; fi
    if [ -n "$append" ]; then set -- "$@" --append; fi
    if [ -z "$output" ] && tagged; then set -- "$@" --tell; fi
    if of_task "$output"; then set -- "$@" "--output=$(filled "$output")"; fi
    if of_task "$errors"; then set -- "$@" "--error=$(filled "$errors")"; fi
    if [ -n "$label" ] && [ -n "$open" ]; then set -- "$@" --label; fi
    if [ -n "$multi" ]; then
      [ -r "$word" ] || refuse "srun --multi-prog: there is no file $word"
      set -- "$@" "--multi-prog=$(cat "$word")" --
    else
      set -- "$@" -- "$word"
    fi
    where=words
  done
  if [ "$sections" = 0 ]; then refuse "srun: no program was given"; fi
  hostfile=$steps/$step/hosts ranks=$total
  step_nodes
  if [ -n "$label" ] && [ -z "$open" ]; then pattern='%r: '; fi
  if [ -n "$plane" ] && [ -z "$open" ]; then
    set -- -ppn "$plane" "$@"
  elif [ -n "$plane" ]; then
    [ "$plane" = 1 ] || refuse "srun --distribution=plane=$plane: Open MPI has no such layout; take it out of the script"
    set -- --map-by node "$@"
  fi
  if [ -n "$input" ]; then exec <"$input"; fi
  feed
  redirect "$output" 1
  if [ -n "$errors" ]; then redirect "$errors" 2; elif [ -n "$output" ] && ! of_task "$output"; then exec 2>&1; fi
  launch "$@"
}

feed() { # srun hands what it reads to all its tasks, or to one; a launcher knows the first one only
  if [ -z "${MPIJOB_PIPES:-}" ] || [ "$(readlink "/proc/$$/fd/0")" = /dev/null ]; then return; fi
  set --
  task=0
  while [ "$task" -lt "$ranks" ]; do
    case $stdin in all | "$task") mkfifo "$steps/$step/stdin.$task" && set -- "$@" "$steps/$step/stdin.$task" ;; esac
    task=$((task + 1))
  done
  exec 3<&0 </dev/null
  (trap '' PIPE && exec tee "$@" <&3 >/dev/null 2>&1) &
  feeder=$!
  exec 3<&-
}

filled() { # a file's name with all but the rank's own letters filled in
  printf '%s' "$1" | sed "s|%[0-9]*j|$SLURM_JOB_ID|g;s|%J|$SLURM_JOB_ID.$step|g;s|%s|$step|g;s|%x|$SLURM_JOB_NAME|g;s|%u|${USER:-}|g;s|%A|${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}|g;s|%a|${SLURM_ARRAY_TASK_ID:-0}|g"
}

of_task() { # whether each task, or each node, has its own: a number is the only task that may print
  case $(printf '%s' "$1" | sed 's/%[0-9]*\([tnN]\)/%\1/g') in
    *%[tnN]*) return 0 ;;
    '' | *[!0-9]*) return 1 ;;
  esac
}

redirect() { # $1 a file's name, $2 the stream
  if of_task "$1"; then return; fi
  case $1 in
    '' | all) return ;;
    none) target=/dev/null ;;
    *) target=$(filled "$1") ;;
  esac
  case $2$append in
    1) exec >"$target" ;; 2) exec 2>"$target" ;;
    11) exec >>"$target" ;; 21) exec 2>>"$target" ;;
  esac
}

in_components() { # whether $1, a worker's component, is one of those that srun was given: the first, unless told
  [ -n "${MPIJOB_COMPONENTS:-}" ] || return 0
  for span in $(printf '%s' "${components:-0}" | tr ',' ' '); do
    if [ "$1" -ge "${span%%-*}" ] && [ "$1" -le "${span##*-}" ]; then return 0; fi
  done
  return 1
}

layout() { # how many of this section's ranks each worker gets, as Slurm would: evenly, the first workers first
  if [ -n "${MPIJOB_COMPONENTS:-}" ]; then tasks=${tasks:-$(slots_of_components)}; fi
  chosen='' count=0 at=0 extra=0 tasks=${tasks:-${SLURM_NTASKS:-}}
  if [ -n "$listed" ]; then # all of these, and others where the step needs more nodes
    extra=${nodes:-$(set -- $MPIJOB_HOSTS && echo $#)}
    if [ -z "$nodes" ] && [ -n "$tasks" ] && [ "$tasks" -lt "$extra" ]; then extra=$tasks; fi
    extra=$((extra - $(printf '%s\n' "$listed" | wc -l)))
    for host in $listed; do
      case " $(workers | tr '\n' ' ')" in *" $host "*) ;; *) refuse "srun: $host is no worker of the job" ;; esac
    done
  fi
  set -- ${MPIJOB_COMPONENTS:-}
  for one in $MPIJOB_HOSTS; do
    host=${one%:*} component=${1:-0}
    if [ $# -gt 0 ]; then shift; fi
    in_components "$component" || continue
    at=$((at + 1))
    if [ "$at" -le "$from" ]; then continue; fi
    case $without in *" $host "*) continue ;; esac
    if [ -n "$listed" ]; then
      case "$newline$listed$newline" in
        *"$newline$host$newline"*) ;;
        *)
          if [ "$extra" -le 0 ]; then continue; fi
          extra=$((extra - 1))
          ;;
      esac
    elif [ -n "$nodes" ] && [ "$count" -ge "$nodes" ]; then
      break
    fi
    chosen="$chosen $one" count=$((count + 1))
  done
  [ "$count" -gt 0 ] || refuse "srun: no worker of the job is left for the step"
  if [ -n "$nodes" ] && [ "$count" -lt "$nodes" ]; then refuse "srun: $nodes nodes are asked for, and the job has $count"; fi
  if [ -z "$tasks" ]; then
    if [ -n "$per" ]; then tasks=$((per * count)); else tasks=$count; fi
  fi
  if [ -n "$per" ] && [ "$tasks" -gt "$((per * count))" ]; then
    say "srun: --ntasks-per-node=$per is left out: $tasks tasks on $count nodes"
    per=''
  fi
  unused
  room=0
  for one in $chosen; do room=$((room + ${one##*:})); done
  if [ "$tasks" -gt "$room" ] && [ -z "$over" ] && [ -n "${MPIJOB_WHOLE_NODES:-}" ]; then
    once whole "srun: $tasks tasks share $room slots: the header asks for no tasks, as where nodes are given whole; set slots and cpu"
    over=1 overlap=1
  fi
  if [ "$tasks" -gt "$room" ] && [ -z "$over" ]; then
    refuse "srun: $tasks tasks are asked for, and the job has $room slots on $count workers"
  fi
  until placed; do
    free_slots
    held=''
    once waits "a step waits until $tasks slots are free"
    sleep 0.1 2>/dev/null || sleep 1
  done
  total=$((total + tasks))
  for one in $layout; do if [ "${one##*=}" -gt 0 ]; then used="$used${one%=*} "; fi; done
}

slots_of_components() { # how many tasks they have room for
  all=0
  set -- $MPIJOB_COMPONENTS
  for one in $MPIJOB_HOSTS; do
    if in_components "$1"; then all=$((all + ${one##*:})); fi
    shift
  done
  echo "$all"
}

unused() { # a section takes the workers that no other section of the step has, where they have room
  fresh='' room=0
  for one in $chosen; do
    case $used in *" ${one%:*} "*) ;; *) fresh="$fresh $one" room=$((room + ${one##*:})) ;; esac
  done
  if [ "$room" -ge "$tasks" ]; then chosen=$fresh; fi
}

step_nodes() { # what the step's tasks are told of its nodes
  nodes='' per_node='' count=0
  while read -r host slots; do
    case $host in *:*) slots=${host##*:} host=${host%:*} ;; esac
    case ",$nodes," in *",$host,"*) continue ;; esac
    nodes=$nodes,$host per_node=$per_node,${slots#slots=} count=$((count + 1))
    if [ -z "$append" ]; then
      for one in "$output" "$errors"; do
        case $(printf '%s' "$one" | sed 's/%[0-9]*\([tnN]\)/%\1/g') in
          *%t*) ;;
          *%[nN]*) rm -f "$(filled "$one" | sed "s|%N|$host|g;s|%[0-9]*n|$((count - 1))|g")" ;;
        esac
      done
    fi
  done <"$hostfile"
  nodes=${nodes#,} per_node=${per_node#,}
  export MPIJOB_STEP_NODES="$nodes" SLURM_NNODES="$count" SLURM_STEP_NUM_NODES="$count" SLURM_STEP_NODELIST="$(compressed "$nodes")" \
    SLURM_TASKS_PER_NODE="$(repeated "$per_node")" SLURM_STEP_TASKS_PER_NODE="$(repeated "$per_node")"
}

compressed() { # a list of hosts as Slurm writes it, where they differ by a number at their end: a[0-2]
  printf '%s\n' "$1" | tr ',' '\n' | awk '
    { match($0, /[0-9]*$/); stem = substr($0, 1, RSTART - 1); at = substr($0, RSTART) }
    NR == 1 { whole = $0; first = stem; from = at; plain = at == "" || (length(at) > 1 && at ~ /^0/); last = at; next }
    { whole = whole "," $0; if (stem != first || at == "" || at + 0 != last + 1) plain = 1; last = at }
    END { if (NR == 1 || plain) print whole; else print first "[" from "-" last "]" }'
}

repeated() { # 2,2,1 as Slurm writes it: 2(x2),1
  printf '%s\n' "$1" | tr ',' '\n' | uniq -c | awk '{ printf "%s%s%s", (NR > 1 ? "," : ""), $2, ($1 > 1 ? "(x" $1 ")" : "") }'
}

placed() { # takes the slots: a directory for each, so that steps in the background share them out
  todo=$tasks layout=' '
  for one in $chosen; do layout="$layout${one%:*}=0 "; done
  while [ "$todo" -gt 0 ]; do
    before=$todo
    for one in $chosen; do
      host=${one%:*} slots=${one##*:}
      [ "$todo" -gt 0 ] || break
      now=${layout#* "$host"=}
      now=${now%% *}
      if [ -n "$per" ] && [ "$now" -ge "$per" ]; then continue; fi
      if [ -z "$overlap" ]; then
        got='' slot=0
        while [ "$slot" -lt "$slots" ]; do
          if mkdir "$steps/slots/$host.$slot" 2>/dev/null; then got=$steps/slots/$host.$slot && break; fi
          slot=$((slot + 1))
        done
        [ -n "$got" ] || continue
        held="$held $got"
      elif [ "$now" -ge "$slots" ] && [ -z "$over" ]; then
        continue
      fi
      layout="${layout%% "$host"=*} $host=$((now + 1)) ${layout#* "$host"="$now" }"
      todo=$((todo - 1))
    done
    if [ "$todo" = "$before" ]; then return 1; fi
  done
  turn=0
  while [ -n "$plane" ] && [ "$MPIJOB_FAMILY" = intel ] && [ "$turn" -lt "$tasks" ]; do # it does not go round by itself
    for one in $layout; do
      rest=$((${one##*=} - turn))
      if [ "$rest" -gt "$plane" ]; then rest=$plane; fi
      if [ "$rest" -gt 0 ]; then echo "${one%=*}:$rest"; fi
    done
    turn=$((turn + plane))
  done >>"$steps/$step/hosts"
  if [ "$turn" -gt 0 ]; then return; fi
  for one in $layout; do
    if [ "${one##*=}" -gt 0 ]; then
      if [ -n "$open" ]; then echo "${one%=*} slots=${one##*=}"; else echo "${one%=*}:${one##*=}"; fi
    fi
  done >>"$steps/$step/hosts"
}

# -- what scripts ask of a batch system -----------------------------------------------------------------------
workers() { for one in $MPIJOB_HOSTS; do printf '%s\n' "${one%:*}"; done; }

expand() { # a list of hosts as Slurm writes it: a[0-2,5],b
  rest=$1,
  while [ -n "$rest" ] && [ "$rest" != , ]; do
    case $rest in
      *\[*)
        head=${rest%%\[*}
        case $head in *,*)
          printf '%s\n' "${rest%%,*}"
          rest=${rest#*,}
          continue
          ;;
        esac
        inside=${rest#*\[}
        after=${inside#*\]}
        suffix=${after%%,*}
        inside=${inside%%\]*},
        while [ -n "$inside" ]; do
          span=${inside%%,*} inside=${inside#*,}
          low=${span%%-*} high=${span##*-}
          at=$(number "$low") high=$(number "$high")
          while [ "$at" -le "$high" ]; do
            printf "%s%0${#low}d%s\n" "$head" "$at" "$suffix"
            at=$((at + 1))
          done
        done
        rest=${after#"$suffix"}
        rest=${rest#,}
        ;;
      *)
        printf '%s\n' "${rest%%,*}"
        rest=${rest#*,}
        ;;
    esac
  done
}
number() { # without zeros before it, which would make it octal
  digits=$1
  while [ "${digits#0}" != "$digits" ] && [ "${#digits}" -gt 1 ]; do digits=${digits#0}; done
  printf '%s' "$digits"
}

scontrol_() {
  case "${1:-} ${2:-}" in
    'show hostname' | 'show hostnames') expand "${3:-$SLURM_JOB_NODELIST}" ;;
    'show job' | 'show jobid')
      [ "${3:-$SLURM_JOB_ID}" = "$SLURM_JOB_ID" ] || refuse "scontrol: only this job is known here"
      printf 'JobId=%s JobName=%s\n   JobState=RUNNING NumNodes=%s NumTasks=%s NodeList=%s\n' "$SLURM_JOB_ID" \
        "$SLURM_JOB_NAME" "$SLURM_NNODES" "${SLURM_NTASKS:-}" "$SLURM_JOB_NODELIST"
      ;;
    *) refuse "scontrol $*: only 'show hostnames' and 'show job' are known here" ;;
  esac
}

squeue_() {
  header=1 format=''
  while [ "$#" -gt 0 ]; do
    case $1 in
      -h | --noheader) header='' ;;
      -o | --format | -O) format=${2:-} && shift ;;
      --format=*) format=${1#*=} ;;
      -o*) format=${1#-o} ;;
      -j | --jobs | --job | -u | --user) [ "$#" -gt 1 ] && shift ;;
    esac
    shift
  done
  format=$(printf '%s' "${format:-%i %j %t %D %N}" | sed 's/%[.0-9]*\([a-zA-Z]\)/%\1/g')
  fill() { printf '%s\n' "$format" | sed "s|%i|$1|g;s|%A|$1|g;s|%j|$2|g;s|%t|$3|g;s|%T|$4|g;s|%D|$5|g;s|%N|$6|g;s|%u|$7|g;s|%[a-zA-Z]||g"; }
  if [ -n "$header" ]; then fill JOBID NAME ST STATE NODES NODELIST USER; fi
  fill "$SLURM_JOB_ID" "$SLURM_JOB_NAME" R RUNNING "$SLURM_NNODES" "$SLURM_JOB_NODELIST" "${USER:-}"
}

scancel_() {
  for one; do
    case $one in
      "$SLURM_JOB_ID")
        [ -n "${MPIJOB_PIPES:-}" ] || refuse "scancel: end the script with exit instead"
        report 0 cancel
        ;;
      -Q | --quiet) ;;
      *) refuse "scancel $*: only this job, $SLURM_JOB_ID, can be cancelled here" ;;
    esac
  done
}

sacct_() {
  printf 'JobID|JobName|State|ExitCode\n%s|%s|RUNNING|0:0\n' "$SLURM_JOB_ID" "$SLURM_JOB_NAME"
  at=0
  while [ -d "$steps/$at" ]; do
    read -r what <"$steps/$at/command"
    state=RUNNING code=0
    if [ -e "$steps/$at/code" ]; then
      read -r code <"$steps/$at/code"
      if [ "$code" = 0 ]; then state=COMPLETED; else state=FAILED; fi
    fi
    printf '%s.%s|%s|%s|%s:0\n' "$SLURM_JOB_ID" "$at" "${what%% *}" "$state" "$code"
    at=$((at + 1))
  done
}

hostname_() {
  host=${MPIJOB_HOSTS%%:*}
  if [ -n "${MPIJOB_RANK:-}" ] && [ -n "${MPIJOB_WORKER:-}" ]; then
    host=$(workers | sed -n "$((MPIJOB_WORKER + 1))p")
  fi
  case ${1:-} in
    '' | -f | --fqdn | --long) printf '%s\n' "$host" ;;
    -s | --short) printf '%s\n' "${host%%.*}" ;;
    *) PATH=${PATH#*:} exec hostname "$@" ;;
  esac
}

container() { # apptainer and singularity where there is none: the program after the image runs as it is found here
  [ "${1:-}" = exec ] || refuse "$name is not installed here, and of its commands only exec can do without it"
  shift
  while [ "$#" -gt 0 ]; do
    case $1 in
      --env-file* | --app | --app=* | --overlay* | -o) refuse "$name exec $1 cannot be meant where $name is not installed" ;;
      --env=* | --pwd=* | --cwd=*) option=${1%%=*} value=${1#*=} ;;
      --env | --pwd | --cwd) option=$1 value=${2:-} && shift ;;
      -B | --bind | -H | --home | -W | --workdir | -S | --scratch | --mount | --security | --network | --network-args \
        | --hostname | --dns | --add-caps | --drop-caps | --apply-cgroups | --fusemount | --no-mount | --pem-path | --cpus \
        | --cpuset-cpus | --memory | --pids-limit) option='' && shift ;;
      -*) option='' ;;
      *) break ;;
    esac
    shift
    case $option in
      --env)
        IFS=,
        for one in $value; do export "${one?}"; done
        unset IFS
        ;;
      --?wd) cd "$value" || exit 255 ;;
    esac
  done
  [ "$#" -ge 2 ] || refuse "$name exec needs an image and a program"
  once container "$name exec $1: $name is not installed here, so the program runs as it is found; in pods set image to that image"
  shift
  exec "$@"
}

nodes_of() { # $1 a component
  wanted=$1 found=''
  set -- $MPIJOB_COMPONENTS
  for one in $MPIJOB_HOSTS; do
    if [ "$1" = "$wanted" ]; then found=$found,${one%:*}; fi
    shift
  done
  compressed "${found#,}"
}

set_up() { # programs under their names, and the job's workers by their names
  mkdir -p "$steps/slots" "$steps/bin"
  for one in mpirun mpiexec mpirun.openmpi mpiexec.openmpi orterun prterun mpirun.mpich mpiexec.mpich mpiexec.hydra \
    mpirun.hydra srun aprun ibrun prun scontrol squeue scancel sacct sbatch qsub bsub salloc module ml hostname; do
    printf '#!/bin/sh\nexec /bin/sh %s %s "$@"\n' "'$0'" "$one" >"$steps/bin/$one"
  done
  for one in apptainer singularity; do
    if ! command -v "$one" >/dev/null; then printf '#!/bin/sh\nexec /bin/sh %s %s "$@"\n' "'$0'" "$one" >"$steps/bin/$one"; fi
  done
  chmod 700 "$steps"/bin/*
  MPIJOB_LAUNCHER=$(command -v "$MPIJOB_LAUNCHER") || refuse "there is no program mpirun"
  PATH=$steps/bin:$PATH
  MPIJOB_HOSTS='' list='' each=''
  while read -r word rest || [ -n "$word" ]; do
    case $word in
      '' | '#'*) continue ;;
      *:*) slots=${word##*:} word=${word%:*} ;;
      *) slots=${rest#slots=} ;;
    esac
    case $slots in '' | *[!0-9]*) slots=1 ;; esac
    MPIJOB_HOSTS="$MPIJOB_HOSTS $word:$slots" list="$list,$word" each="$each $word $slots"
    while [ "$slots" -gt 0 ]; do
      printf '%s\n' "$word"
      slots=$((slots - 1))
    done
  done <"$MPIJOB_HOSTFILE" >"$steps/nodefile"
  MPIJOB_HOSTS=${MPIJOB_HOSTS# }
  MPIJOB_STDOUT=$(readlink "/proc/$$/fd/1")
  export PATH MPIJOB_STDOUT MPIJOB_HOSTS MPIJOB_LAUNCHER
  if [ -n "${MPIJOB_MODULES:-}" ]; then # a function: a program could not set the script's variables
    {
      printf '%s\n' "$MPIJOB_MODULES"
      cat <<'EOF'
if declare -F module >/dev/null; then eval "mpijob_site_$(declare -f module)"; else mpijob_site_module() { command module "$@"; }; fi
module() {
  case ${1:-} in
    load | add)
      shift
      local one
      for one; do mpijob_module "$one" || mpijob_site_module load "$one"; done
      ;;
    *) mpijob_site_module "$@" ;;
  esac
}
ml() {
  case ${1:-} in
    load | add | unload | list | avail | spider | purge | use | swap | '' | -*) module "$@" ;;
    *) module load "$@" ;;
  esac
}
EOF
    } >"$steps/module.sh"
    export BASH_ENV="$steps/module.sh"
  fi
  list=$(compressed "${list#,}")
  if [ -n "${MPIJOB_COMPONENT_SIZES:-}" ]; then # as Slurm tells a heterogeneous job of its nodes
    component=0 MPIJOB_COMPONENTS=''
    for left in $MPIJOB_COMPONENT_SIZES; do
      while [ "$left" -gt 0 ]; do
        MPIJOB_COMPONENTS="$MPIJOB_COMPONENTS $component" left=$((left - 1))
      done
      component=$((component + 1))
    done
    export MPIJOB_COMPONENTS
    component=0
    while [ "$component" -lt "$SLURM_HET_SIZE" ]; do
      export "SLURM_JOB_NODELIST_HET_GROUP_$component=$(nodes_of "$component")"
      component=$((component + 1))
    done
    list=$SLURM_JOB_NODELIST_HET_GROUP_0
  fi
  if [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
    export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-$(awk "BEGIN { for (i = 0; i < $SLURM_GPUS_ON_NODE; i++) printf \"%s%d\", (i ? \",\" : \"\"), i }")}"
  fi
  if [ "${OMP_NUM_THREADS:-}" = "${SLURM_CPUS_PER_TASK:-}" ]; then unset OMP_NUM_THREADS; fi # each step gets its own
  export SLURM_JOB_NODELIST="$list" SLURM_NODELIST="$list" SLURMD_NODENAME="${MPIJOB_HOSTS%%:*}" \
    PBS_NODEFILE="$steps/nodefile" LSB_DJOB_HOSTFILE="$steps/nodefile" LSB_MCPU_HOSTS="${each# }" LSB_JOBNAME="${LSB_JOBNAME:-$MPIJOB_NAME}" \
    SLURM_JOB_NAME="${SLURM_JOB_NAME:-$MPIJOB_NAME}" PBS_JOBNAME="${PBS_JOBNAME:-$MPIJOB_NAME}" SLURM_SUBMIT_DIR="$PWD" PBS_O_WORKDIR="$PWD" LS_SUBCWD="$PWD" \
    SLURM_JOB_USER="${USER:-$(id -un)}" SLURM_JOB_UID="$(id -u)" SLURM_SUBMIT_HOST="$(uname -n)" PBS_O_HOST="$(uname -n)" \
    PBS_O_LOGNAME="${USER:-$(id -un)}" PBS_O_HOME="${HOME:-}"
}

execute() { # bash finds the launchers, too, where a script sets the PATH anew: `source /etc/profile`
  exec env 'BASH_FUNC_command_not_found_handle%%=() { if [ -x "$MPIJOB_STEPS/bin/$1" ]; then
  PATH=$MPIJOB_STEPS/bin:$PATH
  exec "$@"
  fi
  printf "%s: line %s: %s: command not found\n" "$0" "${BASH_LINENO[0]}" "$1" >&2
  return 127
}' "$@"
}

script() { # runs the job's script by its own interpreter, as the kernel would
  file=$1
  shift
  set_up
  line=
  read -r line <"$file" || [ -n "$line" ] || refuse "the script $file cannot be read"
  case $file in */*) ;; *) file=./$file ;; esac
  header=$(sed -n '/^#SBATCH/p; /^[^#]/q' "$file")
  case $header in *--gpus-per-task* | *--ntasks-per-gpu* | *--gpu-bind=[!n]*) export MPIJOB_GPUS_APART=1 ;; esac
  case $header in '' | *tasks* | *[' '=]-n*) ;; *) export MPIJOB_WHOLE_NODES=1 ;; esac
  case $line in
    '#!'*)
      line=${line#'#!'}
      line=${line#"${line%%[! 	]*}"}
      word=${line%%[ 	]*}
      rest=${line#"$word"}
      rest=${rest#"${rest%%[! 	]*}"}
      rest=${rest%"${rest##*[! 	]}"}
      command -v "$word" >/dev/null || refuse "the script's interpreter $word is not here"
      case ${word##*/}$rest in
        *sh--login | *sh-l | *sh-l[a-z]* | *sh-[a-z]l*) # its profile may set the PATH anew: ours is put before it again
          others=$(printf '%s' "${rest#--login}" | tr -d l)
          if [ "${others#-}" != '' ]; then set -- "$word" "$others" "$file" "$@"; else set -- "$word" "$file" "$@"; fi
          execute "$word" -l -c 'PATH=$MPIJOB_STEPS/bin:$PATH; exec "$@"' "$word" "$@"
          ;;
      esac
      if [ -n "$rest" ]; then set -- "$rest" "$file" "$@"; else set -- "$file" "$@"; fi
      execute "$word" "$@"
      ;;
  esac
  if command -v bash >/dev/null; then execute bash "$file" "$@"; else exec /bin/sh "$file" "$@"; fi
}

if [ -n "${MPIJOB_IN_STEP:-}" ] && [ -z "${MPIJOB_RANK:-}" ]; then # a launcher that starts another: the real one
  case :$PATH: in *":$steps/bin:"*)
    PATH=:$PATH:
    PATH=${PATH%%":$steps/bin:"*}:${PATH#*":$steps/bin:"}
    PATH=${PATH#:}
    PATH=${PATH%:}
    ;;
  esac
  exec "$name" "$@"
fi
case $name in
  script) script "$@" ;;
  srun) srun_step "$@" ;;
  mpirun.openmpi | mpiexec.openmpi | orterun | prterun)
    [ "$MPIJOB_FAMILY" = openmpi ] || refuse "$name is Open MPI's, and the job runs with $MPIJOB_FAMILY: set mpi: openmpi"
    mpirun_step "$@"
    ;;
  mpirun.mpich | mpiexec.mpich | mpiexec.hydra | mpirun.hydra)
    [ "$MPIJOB_FAMILY" != openmpi ] || refuse "$name is MPICH's, and the job runs with Open MPI: set mpi: mpich"
    mpirun_step "$@"
    ;;
  mpirun | mpiexec | aprun | ibrun | prun) mpirun_step "$@" ;;
  scontrol) scontrol_ "$@" ;;
  squeue) squeue_ "$@" ;;
  scancel) scancel_ "$@" ;;
  sacct) sacct_ "$@" ;;
  hostname) hostname_ "$@" ;;
  apptainer | singularity) container "$@" ;;
  sbatch | qsub | bsub | salloc)
    refuse "$name is not here: submit what follows as a job of its own: mpijob create SCRIPT --after $MPIJOB_NAME"
    ;;
  module | ml) once "module" "$name $*: environment modules are not available, installed programs are used" ;;
  *) refuse "$name is not supported here" ;;
esac
