# Puts before each line its time, its stream and F, as container runtimes do. `ahead` is by how many hundredths of a second
# the wall clock is ahead of the time since boot, which is read without starting a process. For every awk there is.
function date(day,   z, era, doe, yoe, doy, mp, m) { # days since 1970 as YYYY-MM-DD
  z = day + 719468; era = int(z / 146097); doe = z - era * 146097
  yoe = int((doe - int(doe / 1460) + int(doe / 36524) - int(doe / 146096)) / 365)
  doy = doe - (365 * yoe + int(yoe / 4) - int(yoe / 100)); mp = int((5 * doy + 2) / 153)
  m = mp < 10 ? mp + 3 : mp - 9
  return sprintf("%04d-%02d-%02d", yoe + era * 400 + (m <= 2), m, doy - int((153 * mp + 2) / 5) + 1)
}
{
  getline boot < "/proc/uptime"
  close("/proc/uptime")
  split(boot, up, " ")
  now = ahead / 100 + up[1]
  second = int(now)
  if (second != last) {
    last = second
    rest = second % 86400
    stamp = sprintf("%sT%02d:%02d:%02d", date(int(second / 86400)), int(rest / 3600), int(rest % 3600 / 60), rest % 60)
  }
  printf "%s.%02d0000000Z %s F %s\n", stamp, int((now - second) * 100), stream, $0
  fflush()
}
