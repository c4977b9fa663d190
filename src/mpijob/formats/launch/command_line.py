"""The launch line and the variables of each MPI family, on one machine and on a cluster.

The agent that starts daemons (ssh on a cluster, the engine's own on one machine) and the hostfile are passed both on
the line and in variables, so that a user's own mpirun finds the same workers. The line has names of variables, never
their values: process lists are public.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from mpijob.model import Family, Launch, MPIJob, Program

# The path of a file with a line `worker slots=n` for each worker, the same for every MPI.
HOSTS_FILE = "MPIJOB_HOSTS_FILE"
# The name of the group of a rank's worker.
GROUP = "MPIJOB_GROUP"
# In the launcher of an elastic job: the path of the program that prints the workers.
DISCOVER = "MPIJOB_DISCOVER_HOSTS"
# Hydra's default form, `[3] `, is too much like what programs print.
_HYDRA_TAG = ["-prepend-pattern", "[rank %r] "]


def line(
    family: Family,
    job: MPIJob,
    *,
    launcher: str,
    hostfile: str,
    agent: str,
    shim: Sequence[str],
    names: Iterable[str],
    address: str = "",
    tagged: bool = False,
    nodes: bool = True,
) -> tuple[str, ...]:
    """Return the argv that starts the job's world; `shim` is put before every rank's command.

    `address` is how workers reach a launcher whose name they cannot resolve (Hydra only: Open MPI sends addresses
    itself). With `tagged`, the launcher puts a tag before each line of output (`rank_output` reads it); an engine
    with a stream for each rank needs none. Without `nodes` one daemon starts all ranks on this machine, and no host
    is named.
    """
    if family is Family.CUSTOM:
        return _custom_line(job, hostfile=hostfile, agent=agent, shim=shim)
    exports = _exports(family, names)
    layout = _layout(family, job.launch, nodes=nodes)
    head = [launcher, *(_hosts(family, hostfile, job) if nodes else []), *layout, *exports]
    head += ["-localhost", address] if address and family is not Family.OPENMPI else []
    head += (["--tag-output"] if family is Family.OPENMPI else _HYDRA_TAG) if tagged else []
    head += [*_settings(family, job.launch), *_flags(job)]
    programs = job.programs or (Program(ranks=job.world, command=job.command, args=job.args),)
    sections = [[*_section(family, program), *shim, *program.command, *program.args] for program in programs]
    argv = head + sections[0]
    for section in sections[1:]:
        # Open MPI 4 passes a variable only to the program that the option precedes.
        argv += [":", *exports, *section]
    return tuple(argv)


def variables(family: Family, *, hostfile: str, agent: str, slots: int) -> dict[str, str]:
    """Return the launcher's variables by which any mpirun of the family finds the job's workers."""
    match family:
        case Family.OPENMPI:
            # Open MPI 4 (ORTE) ignores PRTE's variables, 5 (PRRTE) ignores ORTE's. Trainer and the MPI Operator set
            # ORTE's only, so that Open MPI 5 runs all ranks on the launcher (trainer#4028, mpi-operator#842).
            return {
                "OMPI_MCA_orte_default_hostfile": hostfile,
                "OMPI_MCA_plm_rsh_agent": agent,
                "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                "PRTE_MCA_prte_default_hostfile": hostfile,
                "PRTE_MCA_plm_ssh_agent": agent,
                "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
            }
        case Family.INTEL:
            return {
                "I_MPI_HYDRA_HOST_FILE": hostfile,
                # It ignores the hostfile's slots and counts cores instead.
                "I_MPI_PERHOST": str(slots),
                "I_MPI_HYDRA_BOOTSTRAP": "ssh",
                "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
            }
        case _:
            return {"HYDRA_HOST_FILE": hostfile, "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": agent}


def one_daemon(family: Family, version: str) -> dict[str, str]:
    """Return the variables with which one daemon starts all ranks on this machine, and more by MPI_Comm_spawn."""
    match family:
        case Family.OPENMPI:
            return {
                "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                # Probing the other transports takes a second at each start.
                "OMPI_MCA_btl": _transports(version),
            }
        case Family.INTEL:
            return {"I_MPI_HYDRA_BOOTSTRAP": "fork"}
        case _:
            return {"HYDRA_LAUNCHER": "fork"}


def one_machine(family: Family, *, as_root: bool) -> dict[str, str]:
    """Return the variables for workers that share one machine (docs/decisions/0013)."""
    # Ranks are not bound to cores unless the job asks for it: a launcher does not know of the other jobs' ranks.
    match family:
        case Family.OPENMPI:
            root = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
                    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")  # fmt: skip
            unbound = ("OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy")
            return dict.fromkeys(unbound, "none") | (dict.fromkeys(root, "1") if as_root else {})
        case Family.INTEL:
            return {"I_MPI_HYDRA_IFACE": "lo", "FI_TCP_IFACE": "lo", "I_MPI_PIN": "0"}
        case Family.MPICH:
            return {"HYDRA_IFACE": "lo"}
        case _:
            return {}


def workers_as_nodes(family: Family, version: str, *, oversubscribed: bool) -> dict[str, str]:
    """Return the variables for workers that are separate nodes to MPI although they share one machine.

    A world is oversubscribed when it has more ranks than the machine has cores.
    """
    if family is not Family.OPENMPI:
        return {"FI_PROVIDER": "shm"} if family is Family.INTEL else {}
    return {
        # With han, the default for several nodes, an 8 MB allreduce took 2.5 s instead of 0.15 s.
        "OMPI_MCA_coll": "^han",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": _transports(version),
    } | ({"OMPI_MCA_mpi_yield_when_idle": "1"} if oversubscribed else {})


def _transports(version: str) -> str:
    # Until version 4 the transport by shared memory is called vader.
    return "self,vader,tcp" if version.startswith(("2.", "3.", "4.")) else "self,sm,tcp"


def in_pods(family: Family) -> dict[str, str]:
    """Return the variables for processes that may not read each other's memory (no CAP_SYS_PTRACE)."""
    # The default seccomp profile refuses process_vm_readv, with which ranks of one pod copy large messages. MPICH
    # fails then, and Open MPI 4 may lose messages; shared memory works at the cost of one more copy.
    match family:
        case Family.OPENMPI:
            return {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_smsc": "^cma"}
        case Family.MPICH:
            return {"MPIR_CVAR_CH4_CMA_ENABLE": "0", "UCX_TLS": "^cma"}
        case _:
            return {}


def unbound(family: Family, launch: Launch) -> dict[str, str]:
    """Return the variables that keep a launcher from binding ranks to cores, unless the job asks for binding."""
    # Open MPI and Intel MPI bind in each pod from the node's first core on, since no pod knows of another: ranks of
    # two pods on one node then share a core (docs/decisions/0043).
    if launch.bind_to:
        return {}
    match family:
        case Family.OPENMPI:
            policies = ("OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy")
            return dict.fromkeys(policies, "none")
        case Family.INTEL:
            return {"I_MPI_PIN": "0"}
        case _:
            # Hydra binds only on request.
            return {}


def keepalive(family: Family) -> dict[str, str]:
    """Return the variables with which a lost machine is noticed in about 15 s."""
    if family is not Family.OPENMPI:
        # Hydra keeps its ssh connections open, and ssh checks them (`ServerAliveInterval`).
        return {}
    # PRRTE's default is 480 s.
    times = {"time": "5", "intvl": "3", "probes": "3"}
    families = ("OMPI_MCA_oob_tcp_keepalive_", "PRTE_MCA_oob_tcp_keepalive_")
    return {prefix + key: value for prefix in families for key, value in times.items()}


def job_variables(job: MPIJob) -> dict[str, str]:
    return (
        {
            "MPIJOB_NAME": job.name,
            "MPIJOB_NAMESPACE": job.namespace,
            "MPIJOB_WORLD": str(job.world),
            "OMP_NUM_THREADS": str(job.cores_per_rank),
        }
        # Ranks of a script may share a file, in which unbuffered writes would mix parts of lines.
        | ({} if job.script else {"PYTHONUNBUFFERED": "1"})
        | (wandb_names(job.name) if uses_wandb(job) else {})
    )


def uses_wandb(job: MPIJob) -> bool:
    """Whether a job has a variable of Weights & Biases."""
    return any(name.startswith("WANDB_") for name in (*job.env, *(secret.env for secret in job.secrets)))


def wandb_names(name: str) -> dict[str, str]:
    """Return the default names of a job's runs at Weights & Biases."""
    return {"WANDB_NAME": name, "WANDB_RUN_GROUP": name}


def _hosts(family: Family, hostfile: str, job: MPIJob) -> list[str]:
    if family is Family.INTEL and not job.has_equal_slots:
        # With -f it ignores the hosts' different numbers of ranks.
        return ["-machinefile", hostfile]
    return ["--hostfile", hostfile] if family is Family.OPENMPI else ["-f", hostfile]


def _layout(family: Family, launch: Launch, *, nodes: bool) -> list[str]:
    dash = "--" if family is Family.OPENMPI else "-"
    argv: list[str] = []
    if nodes and launch.map_by and not (family is not Family.OPENMPI and launch.map_by == "slot"):
        argv += ["-ppn", "1"] if _round_robin(family, launch) else [f"{dash}map-by", launch.map_by]
    if launch.bind_to:
        argv += [f"{dash}bind-to", launch.bind_to]
    if launch.rankfile:
        argv += [f"{dash}rankfile", launch.rankfile]
    return argv


def _round_robin(family: Family, launch: Launch) -> bool:
    return family in (Family.MPICH, Family.INTEL) and launch.map_by == "node"


def _exports(family: Family, names: Iterable[str]) -> list[str]:
    if family is Family.OPENMPI:
        return [word for name in names for word in ("-x", name)]
    # Hydra passes the launcher's whole environment to every rank.
    return []


def _settings(family: Family, launch: Launch) -> list[str]:
    if family is not Family.OPENMPI:
        # Hydra reads them from the environment: see `settings_as_variables`.
        return []
    chosen = [(key, value) for key, value in launch.settings.items() if not key.isupper()]
    return [word for key, value in chosen for word in ("--mca", key, value)]


def settings_as_variables(family: Family, launch: Launch) -> Mapping[str, str]:
    """Return the launch settings that are read from the environment: all of Hydra's, and Open MPI's like UCX_TLS."""
    from_environment = family is not Family.OPENMPI
    return {key: value for key, value in launch.settings.items() if from_environment or key.isupper()}


def _flags(job: MPIJob) -> list[str]:
    """Return the job's extra flags, then those of the variable MPI_FLAGS."""
    given = job.env.get("MPI_FLAGS", "")
    try:
        return [*job.launch.flags, *shlex.split(given)]
    except ValueError:
        # An unclosed quote: words end at spaces.
        return [*job.launch.flags, *given.split()]


def _section(family: Family, program: Program) -> list[str]:
    argv = ["-n", str(program.ranks)]
    for key, value in program.env.items():
        argv += ["-x", f"{key}={value}"] if family is Family.OPENMPI else ["-env", key, value]
    return argv


def _custom_line(job: MPIJob, *, hostfile: str, agent: str, shim: Sequence[str]) -> tuple[str, ...]:
    assert job.launch.custom is not None
    words = {"hostfile": hostfile, "agent": agent, "ranks": str(job.world)}
    head = [word.format_map(words) for word in job.launch.custom.command]
    return (*head, *_flags(job), *shim, *job.argv)
