"""Causes around GPUs: NCCL between them, CUDA on each."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

_NCCL_DEBUG = Remedy("enable NCCL's log in the next run: NCCL_DEBUG=INFO", {"env": {"NCCL_DEBUG": "INFO"}})
_INTERFACE = Remedy(
    "set the network interface for NCCL and Gloo",
    {"env": {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}},
)
_NO_IB = Remedy("without InfiniBand, make NCCL use TCP: NCCL_IB_DISABLE=1", {"env": {"NCCL_IB_DISABLE": "1"}})
_STACKS = Remedy("see the call stack of each rank while it hangs: mpijob stacks JOB")
_ONE_EACH = Remedy("use one rank for each GPU: {gpu_slots} slots", {"slots": "{gpu_slots}"})


RULES = (
    Rule(
        id="NCCL_TIMEOUT",
        title="An NCCL collective timed out",
        why="All ranks must make the same collective calls. One rank did not join: it is slow (data, "
        "storage, a checkpoint), it ended, or it made a different call. The waiting ranks report the "
        "timeout; the rank that does not report it is the suspect.",
        signs=(
            Sign(
                "collective operation timeout",
                r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<sequence>\d+), "
                r"OpType=(?P<call>\w+)",
            ),
            Sign("collective operation timeout", r"Watchdog caught collective operation timeout"),
        ),
        causes=(
            "{who} timed out in {call} (NCCL sequence number {sequence}) while waiting for another rank, "
            "which is slow, has ended or made another call.",
            "{who} timed out in an NCCL collective while waiting for another rank, which is slow, has "
            "ended or made another call.",
        ),
        remedies=(
            Remedy(
                "find the rank that does not report the timeout, and read its last lines: mpijob logs "
                "JOB --tail 200"
            ),
            _STACKS,
            _NCCL_DEBUG,
            _INTERFACE,
        ),
        confidence=0.8,
        while_running=True,
        yields_to=(
            "CUDA_OOM",
            "CUDA_ERROR",
            "OOM_KILLED",
            "MEMORY_LIMIT",
            "PYTHON_EXCEPTION",
            "IMPORT_ERROR",
        ),
    ),
    Rule(
        id="NCCL_CONNECTION",
        title="GPUs of different workers cannot connect",
        why="NCCL opens its own connections between the workers, on ports that the system chooses. "
        "They are refused or dropped, or NCCL chose a network interface that does not reach the "
        "other workers.",
        signs=(
            Sign(
                "NCCL WARN",
                r"NCCL WARN (?P<detail>(?!\[Proxy Service)[^\n]{0,160}?(?:[Cc]onnect(?!ion (?:closed"
                r"|reset))|timed out|refused"
                r"|No route to host)[^\n]{0,120})",
            ),
            Sign("Call to connect", r"WARN (?P<detail>Call to connect (?:failed|returned)[^\n]{1,120})"),
            Sign("socket interface found", r"(?P<detail>no socket interface found)"),
            Sign(
                "ncclSystemError",
                r"ncclSystemError: (?P<detail>System call \(e\.g\. socket, malloc\)[^\n]{0,160})",
            ),
            Sign(
                "Last error:",
                r"Last error:\s*\n(?:\S+[ ])?(?P<last>[^\n]{0,160}?(?:[Cc]onnect to|timed out|refused|No route to host)"
                r"[^\n]{0,120})",
            ),
        ),
        causes=(
            "{who} cannot connect to another rank with NCCL: {last}",
            "{who} cannot connect to another rank with NCCL: {detail}",
        ),
        example="NCCL of rank 3 cannot connect to another rank: Call to connect returned Connection refused",
        remedies=(
            _INTERFACE,
            _NO_IB,
            Remedy("allow all TCP ports between the workers"),
            _NCCL_DEBUG,
        ),
        confidence=0.8,
        yields_to=("SHM_FULL", "CUDA_OOM"),
    ),
    Rule(
        id="COLLECTIVE_MISMATCH",
        title="The ranks made different collective calls",
        why="Every rank must make the same collective calls in the same order, with matching tensors. "
        "One rank made a different call or passed a different shape: only some ranks take a branch, "
        "or the model differs between ranks.",
        signs=(
            Sign("ollective", r"(?P<detail>Detected mismatch between collectives on ranks\.[^\n]{0,240})"),
            Sign("ollective mismatch", r"(?P<detail>[Cc]ollective mismatch[^\n]{0,160})"),
            Sign("op mismatch", r"(?P<detail>[^\n]{0,60}\bop mismatch[^\n]{0,120})"),
            Sign("op.preamble.length", r"(?P<detail>op\.preamble\.length <= op\.nbytes[^\n]{0,80})"),
        ),
        causes=("The ranks made different collective calls: {detail}",),
        example="The ranks made different collective calls: Detected mismatch between collectives on ranks.",
        remedies=(
            Remedy(
                "see which call differs: TORCH_DISTRIBUTED_DEBUG=DETAIL",
                {"env": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
            ),
            Remedy(
                "look for collective calls inside a branch (if), and for a last batch of a different size"
            ),
        ),
        confidence=0.85,
    ),
    Rule(
        id="GPU_SHARED",
        title="Two ranks use the same GPU",
        why="NCCL needs one GPU for each rank. Several ranks use the same device, usually because the "
        "program does not use its local rank, or because a worker has more slots than GPUs.",
        signs=(
            Sign(
                "Duplicate GPU detected",
                r"Duplicate GPU detected ?: rank (?P<rank>\d+) and rank (?P<other>\d+)",
            ),
            Sign("Duplicate GPU detected", r"Duplicate GPU detected"),
        ),
        causes=("{who} and rank {other} use the same GPU.", "Two ranks use the same GPU."),
        remedies=(
            _ONE_EACH,
            Remedy("select the device by the local rank: torch.cuda.set_device(local_rank)"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="NCCL_ERROR",
        title="NCCL failed",
        why="The library for communication between GPUs failed. Its own message is short; with "
        "NCCL_DEBUG=INFO it logs the failed call and its location.",
        signs=(
            Sign(
                "NCCL error",
                r"NCCL error in: [^\n]{0,200}?, (?P<detail>[^\n]{1,160})$",
            ),
            Sign("NCCL error", r"NCCL error(?: in)?: ?(?P<detail>[^\n]{0,200})"),
            Sign(
                "Got completion",
                r"(?P<detail>Got completion from peer [^\n]{1,60} with (?:error|status)=?\d*[^\n]{0,120})",
            ),
            Sign("Got completion", r"(?P<detail>Got completion[^\n]{0,200})"),
            Sign("Last error:", r"Last error:\s*\n?(?:\[rank\d+\]:?[ ])?(?P<last>[^\n]{4,200})"),
            Sign("NCCL WARN", r"NCCL WARN (?P<warned>(?!Duplicate GPU)[^\n]{4,200})"),
            Sign("ncclInternalError", r"(?P<detail>ncclInternalError[^\n]{0,160})"),
            Sign("ncclInvalidUsage", r"(?P<detail>ncclInvalidUsage[^\n]{0,160})"),
            Sign("ncclUnhandledCudaError", r"(?P<detail>ncclUnhandledCudaError[^\n]{0,160})"),
            Sign("unhandled cuda error", r"(?P<detail>unhandled cuda error[^\n]{0,120})"),
            Sign("unhandled system error", r"(?P<detail>unhandled system error[^\n]{0,120})"),
        ),
        causes=(
            "NCCL failed on {whom}: {last}",
            "NCCL failed on {whom}: {warned}",
            "NCCL failed on {whom}: {detail}",
            "NCCL failed on {whom}.",
        ),
        example="NCCL failed on rank 3 on worker 1: unhandled cuda error",
        remedies=(_NCCL_DEBUG, _INTERFACE, _NO_IB, Remedy("use one version of NCCL and CUDA on all workers")),
        confidence=0.7,
        yields_to=(
            *(
                "NCCL_CONNECTION",
                "NCCL_TIMEOUT",
                "GPU_SHARED",
                "CUDA_OOM",
                "CUDA_ERROR",
                "NO_GPU",
                "CUDA_DRIVER",
            ),
            *("SHM_FULL", "OOM_KILLED", "MEMORY_LIMIT"),
        ),
    ),
    Rule(
        id="NO_GPU",
        title="A rank found no usable GPU",
        why="The program needs a GPU and finds none: the job requests none, the node's driver or "
        "container runtime does not provide it, or CUDA_VISIBLE_DEVICES hides it.",
        signs=(
            Sign("CUDA-capable device", r"(?P<detail>no CUDA-capable device is detected)"),
            Sign("No CUDA GPUs", r"(?P<detail>No CUDA GPUs are available)"),
            Sign(
                "Cannot access accelerator",
                r"(?P<detail>Cannot access accelerator device when none is available)",
            ),
            Sign("Found no NVIDIA driver", r"(?P<detail>Found no NVIDIA driver on your system)"),
            Sign("not compiled with CUDA", r"(?P<detail>Torch not compiled with CUDA enabled)"),
            Sign("invalid device ordinal", r"(?P<detail>CUDA error: invalid device ordinal)"),
            Sign("Failed to initialize NVML", r"(?P<detail>Failed to initialize NVML: [^\n]{1,80})"),
            Sign("one CUDA device", r"(?P<detail>\w{0,20} ?requires at least one CUDA device)"),
            Sign(
                "no GPUs found",
                r"(?P<detail>ProcessGroupNCCL is only supported with GPUs, no GPUs found[^\n]{0,20})",
            ),
            Sign("no ROCm-capable device", r"(?P<detail>no ROCm-capable device is detected)"),
            Sign("No HIP GPUs", r"(?P<detail>No HIP GPUs are available)"),
            Sign(  # Lightning
                "You requested gpu:",
                r"(?P<detail>You requested gpu: \[[\d, ]*\] But your machine only has: \[[\d, ]*\])",
            ),
            Sign("gpu backend found", r"(?P<detail>No supported gpu backend found)"),
            Sign(
                "accelerator can not run",
                r"(?P<detail>`?(?:CUDA|GPU)Accelerator`? can not run on your system[^\n]{0,120})",
            ),
            Sign(
                "Attempting to deserialize",
                r"(?P<detail>Attempting to deserialize object on (?:a CUDA device|CUDA device \d+) but "
                r"torch\.cuda\.(?:is_available\(\) is False|device_count\(\) is \d+))",
            ),
            Sign("visible GPU devices", r"(?P<detail>[Nn]o visible GPU devices)"),  # JAX
            Sign(
                "nknown backend",
                r"(?P<detail>[Uu]nknown backend:? '?(?:gpu|cuda|rocm)'?[^\n]{0,120})",
            ),
            Sign(
                "initialize backend",
                r"RuntimeError: (?P<detail>Unable to initialize backend '(?:cuda|gpu|rocm)'[^\n]{0,160})",
            ),
            Sign("CudaSupportError", r"CudaSupportError: (?P<detail>[^\n]{4,200})"),  # Numba
            Sign(
                "NVIDIA-SMI has failed",
                r"(?P<detail>NVIDIA-SMI has failed because it couldn't communicate[^\n]{0,80})",
            ),
            Sign(  # GROMACS, LAMMPS, Kokkos and others
                "GPU",
                r"(?i)\b(?:error|fatal|cannot|can not|requires?|requested)\b[^\n]{0,160}?"
                r"(?P<detail>\b(?:no|find any|0)(?: \w+){0,2} (?:gpus?|cuda devices?)"
                r"(?: were| was| is| are)? (?:detected|found|available|visible|present)[^\n]{0,80})",
            ),
        ),
        causes=("{who} found no usable GPU: {detail}.",),
        remedies=(
            Remedy("request a GPU for each worker", {"resources": {"gpu": 1}}),
            Remedy("run no more ranks in a worker than it has GPUs: {gpu_slots}", {"slots": "{gpu_slots}"}),
            Remedy("check the workers' GPUs: mpijob describe JOB; on a worker: nvidia-smi"),
            Remedy("use an image whose torch or TensorFlow is built for CUDA"),
        ),
        confidence=0.9,
        field="resources.gpu",
        uncaught=True,
    ),
    Rule(
        id="CUDA_DRIVER",
        title="The program's CUDA version does not match the node's driver or GPU",
        why="The program was built with a CUDA version that the node's driver does not support, or for "
        "GPUs other than those of the node.",
        signs=(
            Sign("driver version is insufficient", r"(?P<detail>CUDA driver version is insufficient)"),
            Sign(
                "driver on your system is too old", r"(?P<detail>The NVIDIA driver on your system is too old)"
            ),
            Sign("no kernel image is available", r"(?P<detail>no kernel image is available for execution)"),
            Sign(
                "forward compatibility",
                r"(?P<detail>forward compatibility was attempted on non supported HW)",
            ),
            Sign(
                "unsupported toolchain",
                r"(?P<detail>the provided PTX was compiled with an unsupported toolchain)",
            ),
        ),
        causes=("{who} uses a CUDA version that does not match the node's driver or GPU: {detail}.",),
        example="Rank 0 on worker 0 uses a CUDA version that does not match the node's driver or GPU: CUDA driver "
        "version is insufficient.",
        remedies=(
            Remedy("use an image (or wheel) with an older CUDA, or one built for this GPU"),
            Remedy("run on nodes with a newer driver: placement.node_selector"),
        ),
        confidence=0.95,
        field="image",
        uncaught=True,
    ),
    Rule(
        id="CUDA_ERROR",
        title="A CUDA call failed",
        why="A kernel accessed invalid memory, an assertion on the device failed, or the GPU itself "
        "has a fault. CUDA reports errors asynchronously, at a later call, so the failing call "
        "may be an earlier one.",
        signs=(
            Sign("Xid", r"NVRM: Xid \([^)]{1,60}\): (?P<detail>\d+[^\n]{0,120})"),
            Sign("uncorrectable ", r"(?P<detail>uncorrectable (?:NVLink error|ECC error)[^\n]{0,60})"),
            Sign(
                "CUDA error:",
                r"CUDA error: (?P<detail>(?!out of memory|invalid device ordinal|no kernel image)[^\n]{1,120})",
            ),
            Sign(
                "CUDA ",
                r"CUDA (?:[Rr]untime |[Dd]river )?(?:API )?[Ee]rror(?: \d+)?: "
                r"(?P<detail>(?!out of memory|invalid device ordinal|no kernel image"
                r"|.{0,30}driver version)[^\n]{1,120})",
            ),
            Sign("cuDNN error:", r"(?P<detail>cuDNN error: CUDNN_STATUS_\w+)"),
            Sign("device-side assert", r"(?P<detail>device-side assert triggered)"),
            Sign("cudaErrorIllegalAddress", r"(?P<detail>cudaErrorIllegalAddress)"),
            Sign("HIP error:", r"HIP error: (?P<detail>(?!out of memory)[^\n]{1,120})"),
        ),
        causes=("A CUDA call of {whom} failed: {detail}.",),
        example="A GPU call of rank 3 on worker 1 failed: an illegal memory access was encountered.",
        remedies=(
            Remedy(
                "report the failing call itself: CUDA_LAUNCH_BLOCKING=1",
                {"env": {"CUDA_LAUNCH_BLOCKING": "1"}},
            ),
            Remedy(
                "if it is always the same node, exclude it (placement.exclude_nodes) and report it to "
                "an administrator"
            ),
        ),
        confidence=0.85,
        uncaught=True,
        yields_to=("CUDA_OOM", "NO_GPU", "CUDA_DRIVER"),
    ),
)
