"""Says the time once a second, for a while, from every rank."""

import sys
import time

for _ in range(int(sys.argv[1])):
    print(time.time_ns(), flush=True)
    time.sleep(1)
