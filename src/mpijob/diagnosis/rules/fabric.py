"""Causes below MPI: fast networks that are not there, copies that are forbidden, ranks in the wrong place."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="RAN_ON_LAUNCHER",
        title="Ranks ran in the launcher, the workers were idle",
        why="Open MPI 5 does not read the settings that older launchers understood (OMPI_MCA_orte_default_hostfile), "
        "so mpirun without a hostfile starts everything where it stands, and reports success. The census finds it "
        "before the program starts.",
        trust=Trust.FACT,
        facts=("ran-on-launcher",),
        causes=(
            "The ranks ran on {elsewhere}, not on the job's {workers} workers: the hostfile was not read.",
        ),
        remedies=(
            Remedy("let the job start the ranks: leave mpirun out of the command"),
            Remedy("or give your mpirun the hostfile: --hostfile /etc/mpi/hostfile"),
        ),
        confidence=0.95,
        field="command",
    ),
    Rule(
        id="NO_INFINIBAND",
        title="The fast network that MPI was told to use is not there",
        why="MPI, UCX or libfabric was told to use InfiniBand, RoCE or EFA and found no device that works: the worker "
        "has none, asks for none, or may not lock memory for it.",
        signs=(
            Sign(
                "initializing an OpenFabrics device", r"(?P<detail>error initializing an OpenFabrics device)"
            ),
            Sign("no active ports", r"(?P<detail>no active ports detected)"),
            Sign("no usable transports", r"(?P<detail>no usable transports/devices[^\n]{0,80})"),
            Sign(
                "is not available on", r"UCX ERROR (?P<detail>network device '[^']{1,60}' is not available)"
            ),
            Sign(
                "no auxiliary transport",
                r"UCX ERROR (?P<detail>no (?:active messages|auxiliary) transport to [^\n]{1,80})",
            ),
            Sign(
                "OFI ",
                r"(?P<detail>OFI (?:addrinfo\(\)|fi_\w+(?:\(\))?|endpoint open|domain open) fail(?:ed|ure)"
                r"[^\n]{0,80})",
            ),
            Sign("can't open", r"(?P<detail>PSM[23] can't open (?:hfi|nic) unit[^\n]{0,40})"),
            Sign("ibv_", r"(?P<detail>ibv_\w+(?:\(\))? failed[^\n]{0,60})"),
            Sign("RLIMIT_MEMLOCK", r"(?P<detail>RLIMIT_MEMLOCK[^\n]{0,80})"),
            Sign("max locked memory", r"(?P<detail>Please check max locked memory[^\n]{0,60})"),
            Sign("unable to find any HCAs", r"(?P<detail>unable to find any HCAs)"),
        ),
        causes=("RDMA network not detected. Performance may be degraded. ({detail})",),
        example="RDMA network not detected. Performance may be degraded. (no active ports detected)",
        remedies=(
            Remedy(
                "Check if InfiniBand network is available. Fall back to TCP communication by setting "
                "`MPI_FLAGS=--mca btl tcp,self`",
                {"launch": {"settings": {"btl": "tcp,self", "pml": "ob1"}}},
            ),
            Remedy("with UCX: use TCP and shared memory", {"env": {"UCX_TLS": "tcp,self,sm"}}),
            Remedy("with libfabric (Intel MPI, MPICH): use TCP", {"env": {"FI_PROVIDER": "tcp"}}),
            Remedy("ask for the device in the job's resources: resources.others, as `rdma/hca: 1`"),
        ),
        confidence=0.8,
        yields_to=(
            *("PYTHON_EXCEPTION", "SEGFAULT", "OOM_KILLED", "MEMORY_LIMIT", "IMPORT_ERROR", "MPI_ABORT"),
            *(
                "RANK_EXIT",
                "RANK_SIGNAL",
                "NCCL_TIMEOUT",
                "CUDA_OOM",
                "CUDA_ERROR",
                "MEMORY_ERROR",
                "RANK_KILLED",
            ),
        ),
    ),
    Rule(
        id="COPY_FORBIDDEN",
        title="Fast copies between ranks are forbidden in this container",
        why="Ranks on one worker copy from each other's memory (CMA). Containers usually may not do that "
        "(process_vm_readv needs the right to trace); messages are then lost or slow.",
        signs=(
            Sign("errno = 1", r"Read -1, expected \d+, errno = 1\b"),
            Sign("process_vm_readv", r"process_vm_readv[^\n]{0,120}(?:Operation not permitted|delivered 0)"),
        ),
        causes=("{who} may not copy from another rank's memory (CMA): the container forbids it.",),
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
        confidence=0.8,
        yields_to=("*",),
    ),
)
