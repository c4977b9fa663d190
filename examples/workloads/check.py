"""Was a reference workload's result right? `mpijob logs NAME | python check.py resnet50 --ranks 4`

Reads the RESULT line that each of them ends with and holds it against what the workload must reach; says what
is wrong, and ends with 1 then. Speed is reported, not judged: it is the machine's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping

MUST: Mapping[str, Mapping[str, float | str]] = {
    "horovod-mnist": {"accuracy": 0.95},
    "intel-tensorflow": {"accuracy": 0.9, "library": "Intel"},
    "bert": {"falls_to": 0.9, "tokens_per_second": 0.0},
    "resnet50": {"falls_to": 0.9, "images_per_second": 0.0},
    "deepspeed-7b": {"falls_to": 0.9, "tokens_per_second": 0.0, "checkpoint": "/"},
}


def result(log: str) -> dict[str, str]:
    """Return the words of the last RESULT line; none where there is none."""
    lines = re.findall(r"RESULT (.*)", log)
    return dict(re.findall(r"(\w+)=(\S+)", lines[-1])) if lines else {}


def complaints(workload: str, said: Mapping[str, str], ranks: int | None) -> Iterator[str]:
    """Yield what is wrong with a result."""
    if not said:
        yield "there is no RESULT line: the job did not come to its end"
        return
    if ranks is not None and said.get("ranks") != str(ranks):
        yield f"{said.get('ranks', 'no')} ranks took part, not {ranks}"
    for name, least in MUST[workload].items():
        if name == "falls_to":
            if not float(said["last"]) <= float(least) * float(said["first"]):
                yield f"the loss fell from {said['first']} to {said['last']}, not to {least} of it"
        elif name not in said:
            yield f"{name} is not told"
        elif isinstance(least, str):
            if least not in said[name]:
                yield f"{name} is {said[name]}, without {least}"
        elif not float(said[name]) > least:
            yield f"{name} is {said[name]}, not above {least}"


def main() -> None:
    """Read a log from stdin and judge it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=MUST)
    parser.add_argument("--ranks", type=int)
    args = parser.parse_args()
    said = result(sys.stdin.read())
    wrong = list(complaints(args.workload, said, args.ranks))
    print("\n".join(wrong) or f"{args.workload}: right ({' '.join(f'{k}={v}' for k, v in said.items())})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
