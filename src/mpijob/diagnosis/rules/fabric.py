"""Causes below MPI: fast networks that are not there, copies that are forbidden, ranks in the wrong place."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

_GAVE_UP = (
    r"(?=[\s\S]{0,3000}?(?:Failed to create UCP worker|MPI_INIT failed|cannot be selected|MPI_Init|Fatal error"
    r"|unable to reach each other))"
)
_TCP = (  # in the words of the MPI that is in use; all of them where it is not known
    Remedy(
        "Check if InfiniBand network is available. Fall back to TCP communication by setting "
        "`MPI_FLAGS=--mca btl tcp,self`{openmpi:.0}",
        {"launch": {"settings": {"btl": "tcp,self", "pml": "ob1"}}},
    ),
    Remedy("{intel}: use TCP: FI_PROVIDER=tcp", {"env": {"FI_PROVIDER": "tcp"}}),
    Remedy(
        "{mpich}: use TCP: FI_PROVIDER=tcp, with UCX UCX_TLS=tcp,self,sm",
        {"env": {"FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self,sm"}},
    ),
    Remedy(
        "use TCP and shared memory only: UCX_TLS=tcp,self,sm FI_PROVIDER=tcp",
        {"env": {"UCX_TLS": "tcp,self,sm", "FI_PROVIDER": "tcp"}},
    ),
)

RULES = (
    Rule(
        id="RAN_ON_LAUNCHER",
        title="The ranks ran in the launcher; the workers were idle",
        why="Open MPI 5 does not read the settings of older launchers "
        "(OMPI_MCA_orte_default_hostfile), so mpirun without a hostfile starts all ranks on its "
        "own machine and reports success. mpijob detects it before the program starts.",
        trust=Trust.FACT,
        facts=("ran-on-launcher",),
        causes=(
            "The ranks ran on {elsewhere}, not on the job's {workers} workers: mpirun did not read "
            "the hostfile.",
        ),
        remedies=(
            Remedy("let the job start the ranks: remove mpirun from the command"),
            Remedy("or pass the hostfile to your mpirun: --hostfile /etc/mpi/hostfile"),
        ),
        confidence=0.95,
        field="command",
    ),
    Rule(
        id="FABRIC_FAILED",
        title="MPI could not use the selected network",
        why="MPI, UCX or libfabric selects a network (InfiniBand, RoCE, EFA, Omni-Path, or a named "
        "interface) and finds no device or provider that works, so MPI_Init fails.",
        signs=(
            Sign("no usable transports", r"(?P<detail>no usable transports/devices[^\n]{0,80})"),
            Sign("' is not available", r"UCX ERROR (?P<detail>network device '[^']{1,60}' is not available)"),
            Sign(
                "' is not available",
                r"UCX WARN (?P<detail>network device '[^']{1,60}' is not available)[\s\S]{0,4000}?PML ucx cannot be",
            ),
            Sign(
                "transport to",
                r"UCX ERROR (?P<detail>no (?:active messages|auxiliary|remote registered memory access"
                r"|\w+) transport to "
                r"[^\n]{1,80})",
            ),
            Sign("pml_ucx.c", r"pml_ucx\.c:\d+ +Error: (?P<failed>[^\n]{4,160})"),
            Sign("cannot create cq", r"(?P<detail>\w+\(\d+\)\.*: cannot create cq)"),
            Sign(
                "OFI ",
                r"(?P<detail>OFI (?:addrinfo\(\)|fi_\w+(?:\(\))?|endpoint open|domain open|\w+) fail(?:ed|ure)"
                r"[^\n]{0,80})",
            ),
            Sign("fi_getinfo", r"(?P<detail>[^\n]{0,60}fi_getinfo[^\n]{0,40}fail[^\n]{0,80})"),
            Sign("o provider found", r"(?P<detail>(?:OFI )?[Nn]o provider found[^\n]{0,80})"),
            Sign("can't open", r"(?P<detail>PSM[23] can't open (?:hfi|nic) unit[^\n]{0,40})"),
            Sign("unable to find any HCAs", r"(?P<detail>unable to find any HCAs)"),
        ),
        causes=(
            "MPI could not use the selected network: {detail}.",
            "MPI could not use the selected network: {failed}.",
        ),
        example="MPI could not use the selected network: OFI addrinfo() failed.",
        remedies=(
            *_TCP,
            Remedy("request the device in the job's resources: resources.others, as `rdma/hca: 1`"),
        ),
        confidence=0.85,
        yields_to=("LOCKED_MEMORY", "SHM_FULL", "TOO_MANY_FILES", "DISK_FULL"),
    ),
    Rule(
        id="LINK_FAILED",
        title="The RDMA connection between two ranks was lost",
        why="A network card retransmitted a message and got no answer. The other rank, its node or "
        "the link between them failed: a rank that ended first, a cable, a switch, or a card that "
        "was reset.",
        signs=(
            Sign("retry count exceeded", r"(?P<detail>[Tt]ransport retry count exceeded on \S+)"),
            Sign(
                "InfiniBand retry count",
                r"InfiniBand retry count between two MPI processes has been exceeded(?:[\s\S]{0,600}?Local host: "
                r"(?P<from>\S+)[\s\S]{0,100}?Local device: (?P<device>\S+)[\s\S]{0,100}?Peer host: (?P<host>\S+))?",
            ),
            Sign(
                "Got completion",
                r"Got completion from peer (?P<peer>\S+?)(?:<\d+>)? with (?:error|status)[= ]12\b",
            ),
            Sign("Remote ", r"(?P<detail>[Rr]emote (?:invalid request|operation error|access error) on \S+)"),
        ),
        causes=(
            "The RDMA connection from {from} ({device}) to {host} was lost.",
            "The RDMA connection to {peer} was lost: no answer after all retries (status 12).",
            "The RDMA connection between two ranks was lost: {detail}.",
            "The RDMA connection between two ranks was lost.",
        ),
        example="The RDMA connection from n3 (mlx5_0) to n4 was lost.",
        remedies=(
            Remedy("check that {host} is up and its link is active: ibstat, ibv_devinfo, dmesg"),
            Remedy("check whether another rank ended earlier: if so, its last lines show the cause"),
            Remedy("if it is always the same node, exclude it: placement.exclude_nodes"),
        ),
        confidence=0.6,
        yields_to=(
            "OOM_KILLED",
            "MEMORY_LIMIT",
            "SEGFAULT",
            "BUS_ERROR",
            "PYTHON_EXCEPTION",
            "CUDA_ERROR",
            "CUDA_OOM",
        ),
    ),
    Rule(
        id="LOCKED_MEMORY",
        title="The limit on locked memory is too small for RDMA",
        why="RDMA needs locked (pinned) memory. The limit on locked memory (ulimit -l) is too small, "
        "so a buffer could not be registered with the network card.",
        signs=(  # good runs complain of it, too: only where MPI then gave up
            Sign("ocked memory", r"(?P<detail>[^\n]{0,80}max locked memory[^\n]{0,80})" + _GAVE_UP),
            Sign(
                "ibv_",
                r"(?P<detail>ibv_\w+(?:\([^\n)]{0,80}\))? failed[^\n]{0,40}Cannot allocate memory)"
                + _GAVE_UP,
            ),
            Sign(
                "mlx5dv_",
                r"(?P<detail>mlx5dv_\w+(?:\([^\n)]{0,80}\))? failed[^\n]{0,40}Cannot allocate memory)"
                + _GAVE_UP,
            ),
            Sign("nable to register memory", r"(?P<detail>[Uu]nable to register memory[^\n]{0,60})"),
            Sign(
                "some locked memory",
                r"(?P<detail>failed to initialize while trying to allocate some locked memory)" + _GAVE_UP,
            ),
        ),
        causes=("{who} cannot lock enough memory for RDMA (ulimit -l): {detail}.",),
        example="Rank 3 cannot lock enough memory for RDMA (ulimit -l): ibv_create_cq "
        "failed: Cannot allocate memory.",
        remedies=(
            Remedy(
                "raise the limit before the program starts: ulimit -l unlimited; in a container: --ulimit memlock=-1"
            ),
            Remedy(
                "under Slurm: PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, and set no limit "
                "for slurmd"
            ),
            *_TCP,
        ),
        confidence=0.85,
    ),
    Rule(
        id="NO_INFINIBAND",
        title="MPI found no RDMA network",
        why="MPI searched for InfiniBand, RoCE or EFA and found no working device. It uses TCP, which is "
        "slower; if the run fails, the reason is a different one.",
        signs=(
            Sign(
                "initializing an OpenFabrics device", r"(?P<detail>error initializing an OpenFabrics device)"
            ),
            Sign("no active ports", r"(?P<detail>no active ports detected)"),
            Sign("ibv_", r"(?P<detail>ibv_\w+(?:\(\))? failed[^\n]{0,60})"),
            Sign("RLIMIT_MEMLOCK", r"(?P<detail>RLIMIT_MEMLOCK[^\n]{0,80})"),
        ),
        causes=("RDMA network not detected. Performance may be degraded. ({detail})",),
        example="RDMA network not detected. Performance may be degraded. (no active ports detected)",
        remedies=(
            *_TCP,
            Remedy("request the device in the job's resources: resources.others, as `rdma/hca: 1`"),
        ),
        confidence=0.7,
        warning=True,
    ),
    Rule(
        id="COPY_FORBIDDEN",
        title="The container forbids cross-memory copies (CMA) between ranks",
        why="Ranks on one worker copy from each other's memory (CMA). Containers usually forbid this "
        "(process_vm_readv requires ptrace permission); messages are then lost or slow.",
        signs=(
            Sign("errno = 1", r"Read -1, expected \d+, errno = 1\b"),
            Sign("process_vm_readv", r"process_vm_readv[^\n]{0,120}(?:Operation not permitted|delivered 0)"),
        ),
        causes=("{who} cannot copy from another rank's memory (CMA), because the container forbids it.",),
        remedies=(
            Remedy(
                "copy through shared memory instead",
                {
                    "env": {
                        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
                        "OMPI_MCA_smsc": "^cma",
                        "UCX_TLS": "^cma",
                    }
                },
            ),
        ),
        confidence=0.7,
        warning=True,
    ),
)
