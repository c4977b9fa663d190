# Part of the texts in pods, of a job whose MPI calls are counted: unpacks the shim, and prints what ranks have counted,
# each file as lines that a pipe takes whole. The worker prints all of them into its own log now and then, a rank's
# wrapper those of its rank at the end. POSIX sh, with gzip, base64 and cut.
profiles=$home/mpi-profile shim=$home/profiler.so

print_profile() { # $1 file, $2 what tells this time from others, $3 the rank
  packed=$(gzip -c <"$1" 2>/dev/null | base64 2>/dev/null | tr -d '\n') || return 0
  total=$(((${#packed} + 2999) / 3000)) part=0
  while [ "$part" -lt "$total" ]; do
    from=$((part * 3000 + 1)) part=$((part + 1))
    printf 'mpijob-mpi rank=%s name=%s id=%s part=%s/%s data=%s\n' "$3" "${1##*/}" "$2" "$part" "$total" \
      "$(printf '%s' "$packed" | cut -c "$from-$((from + 2999))")"
  done
}

begin_profile() { # in a worker, before its sshd: leaves the shim for ranks, or says why there is none
  packed=${MPIJOB_PROFILER_FILES:-/mpijob/profiler}/mpi_profile-$(uname -m).gz lack=''
  mkdir -p "$profiles"
  if [ ! -e "$packed" ]; then
    lack="whoever submitted the job had no shim for $(uname -m)"
  elif ! command -v base64 >/dev/null || ! gzip -dc "$packed" >"$shim" 2>/dev/null; then
    lack='the image lacks gzip or base64'
  else
    lack=$(LD_PRELOAD=$shim /bin/sh -c : 2>&1 | tr -d '\n') # the loader says it where the C library does not fit
  fi
  if [ -n "$lack" ]; then
    rm -f "$shim"
    printf 'mpijob-mpi lack=%s\n' "$(printf '%s' "$lack" | tr ' \t\n' '\037\037\037')"
    return
  fi
  # for ranks that have no wrapper of ours, because another launcher starts them, or a rank: they inherit it from sshd
  printf 'LD_PRELOAD=%s\nMPIJOB_MPI_PROFILE=%s\n' "$shim" "$profiles" >>"$home/.ssh/environment"
  keep_printing &
}

keep_printing() { # every 10 s, later every 30 s; at once when ranks have ended: the pod may go with them
  second=0 next=10 before=0
  while sleep 1; do
    second=$((second + 1)) now=0
    for file in "$home"/ranks/*; do
      if kill -s 0 "${file##*/}" 2>/dev/null; then now=$((now + 1)); fi
    done
    if [ "$now" -lt "$before" ] || [ "$second" -ge "$next" ]; then
      print_all "$second"
      next=$((second + 10))
      if [ "$second" -gt 120 ]; then next=$((second + 30)); fi
    fi
    before=$now
  done
}

print_all() {
  for file in "$profiles"/*.mpiprofile; do
    if [ -e "$file" ]; then
      number=${file##*-}
      print_profile "$file" "$1" "${number%%.*}"
    fi
  done
}

end_profile() { # $1 the rank that has ended: also to its own output, which stays when the workers go
  for file in "$profiles"/rank-"$1".*mpiprofile "$profiles"/step-*-rank-"$1".*mpiprofile; do
    [ -e "$file" ] || continue
    print_profile "$file" end "$1" >/proc/1/fd/1 2>/dev/null
    if [ "${MPIJOB_WORLD:-1}" -le 128 ]; then print_profile "$file" end "$1"; fi
  done
}
