"""The options of mpirun, mpiexec, horovodrun and deepspeed that a plan needs.

The end of the options, where the user's program starts, can be found only if options with values are known. `command`
parses whole commands, `checks` the flags of a spec.
"""

from __future__ import annotations

import msgspec


class Grammar(msgspec.Struct, frozen=True):
    """One launcher's options for ranks and hosts, and those that take values."""

    ranks: frozenset[str]
    hosts: frozenset[str]
    values: dict[str, int]
    workers: frozenset[str] = frozenset()
    per_worker: frozenset[str] = frozenset()
    programs_apart: bool = False


class Options(msgspec.Struct, frozen=True):
    """What the options of one command set."""

    ranks: int | None = None
    workers: int | None = None
    per_worker: int | None = None
    ranks_option: str = ""
    hosts_option: str = ""
    hosts: str = ""


def _listed(words: str) -> list[str]:
    return words.split()


_RANKS = frozenset({"-n", "-np", "--np", "--n", "-c"})
_HOSTS = frozenset(
    {"-H", "-host", "--host", "-hosts", "--hosts", "-f", "-hostfile", "--hostfile"}
    | {"-machinefile", "--machinefile", "-machine", "--machine", "--default-hostfile", "-default-hostfile"}
    | {"-hostlist", "--hostlist"}
)
_TWO = ("mca", "prtemca", "pmixmca", "gmca", "gpmixmca", "omca", "genv", "env")
_ONE = _listed(
    "x map-by bind-to rank-by wdir wd prefix rankfile rf N npernode npersocket ppr timeout output "
    "output-filename app path tune personality pset stdin cpu-set cpu-list dvm report-uri ompi-server "
    "tmpdir am runtime-options display set-env launch-agent xterm "
    "genvlist envlist ppn perhost launcher launcher-exec iface rmk configfile outfile-pattern "
    "errfile-pattern prepend-pattern usize membind topolib nameserver demux localhost port-range soft "
    "arch bootstrap bootstrap-exec bootstrap-exec-args branch-count trace-pattern s"
)

MPIRUN = Grammar(
    ranks=_RANKS,
    hosts=_HOSTS,
    values={
        f"{dash}{name}": count
        for dash in ("-", "--")
        for names, count in ((_TWO, 2), (_ONE, 1))
        for name in names
    },
    programs_apart=True,
)
DISCOVERY_OPTION = "--host-discovery-script"
HOROVODRUN = Grammar(
    ranks=frozenset({"-np", "--num-proc"}),
    hosts=frozenset({"-H", "--hosts", "-hostfile", "--hostfile", DISCOVERY_OPTION}),
    values=dict.fromkeys(
        _listed(
            "-p --ssh-port -i --ssh-identity-file --network-interfaces --network-interface --start-timeout "
            "--mpi-args --output-filename --min-np --max-np --num-proc --min-num-proc --max-num-proc "
            "--slots-per-host --slots --elastic-timeout --reset-limit --timeline-filename --config-file "
            "--fusion-threshold-mb --cycle-time-ms --cache-capacity --log-level --binding-args "
            "--autotune-log-file --thread-affinity --gloo-timeout-seconds --cooldown-range "
            "--blacklist-cooldown-range --tcp-flag"
        ),
        1,
    ),
)
DEEPSPEED = Grammar(
    ranks=frozenset(),
    hosts=frozenset({"-H", "--hostfile"}),
    values=dict.fromkeys(
        _listed(
            "-i --include -e --exclude --min_elastic_nodes --max_elastic_nodes --master_port --master_addr "
            "--node_rank --launcher --launcher_args --autotuning --bind_core_list --ssh_port --venv_script "
            "--enable_each_rank_log --save_pid"
        ),
        1,
    ),
    workers=frozenset({"--num_nodes"}),
    per_worker=frozenset({"--num_gpus", "--num_accelerators"}),
)


def read(words: tuple[str, ...], grammar: Grammar) -> Options:
    """Return what a launcher's options set; several programs in one world are added up."""
    parts = [_read_one(part, grammar) for part in _programs(words, grammar)]
    counts = [part.ranks for part in parts]
    known = [count for count in counts if count is not None]
    named = next((part for part in parts if part.hosts_option), parts[0])
    return msgspec.structs.replace(
        parts[0],
        ranks=sum(known) if len(known) == len(counts) else None,
        hosts_option=named.hosts_option,
        hosts=named.hosts,
    )


def _programs(words: tuple[str, ...], grammar: Grammar) -> list[tuple[str, ...]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":" and grammar.programs_apart:
            parts.append([])
        else:
            parts[-1].append(word)
    return [tuple(part) for part in parts]


def _read_one(words: tuple[str, ...], grammar: Grammar) -> Options:
    found: dict[str, tuple[str, str]] = {}
    groups = {
        "ranks": grammar.ranks,
        "hosts": grammar.hosts,
        "workers": grammar.workers,
        "per_worker": grammar.per_worker,
    }
    for option, value in pairs(words, grammar):
        for group, names in groups.items():
            if option in names:
                found[group] = (option, value)
    numbers = {group: _number(value) for group, (_, value) in found.items()}
    return Options(
        ranks=numbers.get("ranks"),
        workers=numbers.get("workers"),
        per_worker=numbers.get("per_worker"),
        ranks_option=next((found[group][0] for group in ("ranks", "per_worker") if group in found), ""),
        hosts_option=found["hosts"][0] if "hosts" in found else "",
        hosts=found["hosts"][1] if "hosts" in found else "",
    )


def pairs(words: tuple[str, ...], grammar: Grammar) -> list[tuple[str, str]]:
    """Return each option with its first value ("" if it takes none), up to the program."""
    known = grammar.ranks | grammar.hosts | grammar.workers | grammar.per_worker
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        count = 0 if equals else grammar.values.get(option, 1 if option in known else 0)
        if count:
            value = words[at + 1] if at + 1 < len(words) else ""
        found.append((option, value))
        at += 1 + count
    return found


def bounds(words: tuple[str, ...]) -> tuple[int | None, int | None]:
    """Return the least and the greatest number of ranks in horovodrun's options, if it has a discovery script."""
    values = dict(pairs(words, HOROVODRUN))
    if DISCOVERY_OPTION not in values:
        return None, None
    least, most = (
        _number(values.get(f"--{which}-np", values.get(f"--{which}-num-proc", "")))
        for which in ("min", "max")
    )
    return least, most


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
