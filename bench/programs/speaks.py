"""A rank that works and speaks: so many lines, each after a fixed amount of work; it notes when it began and ended.

Arguments: ranks, lines, units of work between two lines, and whether what is said goes nowhere.
"""

from __future__ import annotations

import os
import sys
import time

ranks, lines, units, silent = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "silent"
mine = f"{os.getpid()}"
out = os.open(os.devnull, os.O_WRONLY) if silent else 1
os.makedirs("here", exist_ok=True)
open(f"here/{mine}", "w").close()
while len(os.listdir("here")) < ranks:
    time.sleep(0.01)
begun = time.time()
for number in range(lines):
    total = 0
    for unit in range(units):
        total += unit
    os.write(
        out,
        b"step %d of %d: loss=0.123456 grad_norm=1.2345 lr=0.0001 tokens/s=12345.6 %d\n"
        % (number, lines, total),
    )
ended = time.time()
with open(f"time-{mine}", "w") as file:
    file.write(f"{begun} {ended}")
