# Read by launcher and ranks in an allocation. `read_clock` reads both clocks of this machine without starting more than
# `date`: it sets `boot` and `wall`, as they say it, and `ahead`, the hundredths of a second by which the wall clock is
# ahead of the time since boot.
read_clock() {
  wall=$(date +%s.%N)
  read -r boot _ </proc/uptime
  case $wall in *[!0-9.]*) wall=${wall%%[!0-9.]*}00 ;; esac # busybox knows no %N
  fraction=${wall#*.}00
  ahead=$((${wall%.*}00 + 1${fraction%"${fraction#??}"} - 100 - ${boot%.*}00 - 1${boot#*.} + 100))
}
gone() { # whether these children have ended, seen without starting a process
  for one; do
    { read -r _ _ state _ <"/proc/$one/stat"; } 2>/dev/null || continue
    [ "$state" = Z ] || return 1
  done
}
await() { # these children, which read what the program says: what it has left in the background may hold that open
  tries=0
  until gone "$@"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 500 ]; then sleep 0.1; fi
    if [ "$tries" -gt 530 ]; then kill "$@"; fi
  done
  wait "$@" 2>/dev/null
}
