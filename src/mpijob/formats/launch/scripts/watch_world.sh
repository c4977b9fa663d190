# Part of a rank's text in pods, run by the first rank of a worker: it looks at the processes there until they have an
# MPI library, at most for a minute. One of another MPI, one without the variables of its launcher, or a second launcher
# would start worlds of their own: then it says which, and ends the ranks of this worker. POSIX sh, with grep.
newline='
'
rank_of() { # $1 a process: sets `of`, the rank that has started it
  above=$1
  while [ "$above" -gt 1 ]; do
    if [ -s "$home/ranks/$above" ]; then
      read -r of <"$home/ranks/$above"
      return
    fi
    { read -r line <"/proc/$above/stat"; } 2>/dev/null || return 1
    line=${line##*) }
    line=${line#* }
    above=${line%% *}
  done
  return 1
}
tell_wrong() { printf 'mpijob-wrong %s\n' "$*"; } # an engine that keeps a journal writes it there
find_processes() { # sets `roots`, the processes that wrappers wait for, and `below`, what they have started
  below='' roots=''
  for file in /proc/[0-9]*; do
    one=${file#/proc/}
    if [ -s "$home/ranks/$one" ]; then roots="$roots $one"; elif rank_of "$one"; then below="$below $one"; fi
  done
}
wrong_world() {
  tell_wrong "rank=$rank of=$of size=$size $*"
  exec >/dev/null # a launcher waits until nobody can print any more
  trap '' TERM
  ended=0 looks=0
  while [ "$ended" -lt "${MPIJOB_SLOTS:-1}" ] && [ "$looks" -lt 20 ]; do # a rank may begin after the others
    found=none
    until [ "$found" = "$below$roots" ]; do # stopped first, so that none starts another meanwhile, which would lose its parent
      found=$below$roots
      find_processes
      kill -s STOP $below $roots 2>/dev/null
    done
    kill -s KILL $below $roots 2>/dev/null # those that wrappers wait for come last: with a wrapper, this here is ended
    for one in $roots; do ended=$((ended + 1)); done
    if [ "$ended" -lt "${MPIJOB_SLOTS:-1}" ]; then sleep 0.25 2>/dev/null || sleep 1; fi
    looks=$((looks + 1))
  done
  exit
}
look_for_launchers() {
  for file in /proc/[0-9]*/comm; do
    { read -r program <"$file"; } 2>/dev/null || continue
    case $program in
      mpirun | mpirun.* | mpiexec | mpiexec.* | orterun | prterun)
        one=${file%/comm}
        if rank_of "${one#/proc/}"; then wrong_world as=nested; fi
        ;;
    esac
  done
}
look_for_libraries() { # sets `good`, the processes that have the MPI library of their launcher
  good=0
  for file in $(grep -lE '/lib(mpi|mpich|mpi_abi)\.so' /proc/[0-9]*/maps 2>/dev/null); do
    one=${file%/maps} theirs=mpich
    one=${one#/proc/}
    rank_of "$one" || continue
    if grep -qE '/libopen-pal\.so|/libmpi\.so\.[24]0' "$file" 2>/dev/null; then theirs=openmpi; fi
    library=$(grep -oE -m1 '/[^ ]*/lib(mpi|mpich|mpi_abi)\.so[.0-9]*$' "$file" 2>/dev/null)
    if [ -z "$library" ]; then continue; fi # it has ended meanwhile
    if [ "$theirs" != "$ours" ]; then wrong_world "as=$theirs" "launcher=$ours" "library=$library"; fi
    good=$((good + 1))
    variables=$newline$(tr '\n\0' '\r\n' <"/proc/$one/environ" 2>/dev/null)
    if printf '%s' "${variables#?}" | grep -qv =; then continue; fi # written over by a title of its own
    for name in $needs; do
      case $variables in
        *"$newline$name="*) ;;
        *) if grep -q . "$file" 2>/dev/null; then wrong_world as=cut "lost=$name" "library=$library"; fi ;;
      esac
    done
  done
}
look_at_world() { # $1 how many processes are to show their MPI library; whether all have
  ours=mpich needs=PMI_RANK
  if [ -n "${OMPI_COMM_WORLD_RANK:-}${PMIX_NAMESPACE:-}" ]; then ours=openmpi needs='PMIX_NAMESPACE PMIX_RANK'; fi
  if [ "${size:-1}" -gt 1 ]; then look_for_launchers; fi
  look_for_libraries
  [ "$good" -ge "$1" ]
}
watch_world() {
  looks=0
  while [ "$looks" -lt 33 ]; do
    if [ "$looks" -lt 4 ]; then pause=0.25; else pause=2; fi
    sleep "$pause" >/dev/null 2>&1 || sleep 1 >/dev/null 2>&1
    looks=$((looks + 1))
    if look_at_world "${MPIJOB_SLOTS:-1}"; then return; fi
  done
}
