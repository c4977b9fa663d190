"""Causes that training frameworks name: Horovod, DeepSpeed, torch.distributed."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

_INTERFACE = Remedy(
    "set the network interface for NCCL and Gloo",
    {"env": {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}},
)
_STACKS = Remedy("see the call stack of each rank while it hangs: mpijob stacks JOB")

RULES = (
    Rule(
        id="HOROVOD_STALL",
        title="Horovod is stalled: some ranks wait for others",
        why="Every rank must reduce the same tensors. Some ranks submitted a tensor and others did not: "
        "only one rank evaluates or saves, one rank takes a different branch, or one rank has exited.",
        signs=(
            Sign(
                "tensors were submitted",
                r"One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks"
                r"(?:[\s\S]{0,600}?(?:Missing|Stalled) ranks: ?\n?(?P<missing>\d[^\n]{0,120}))?",
            ),
        ),
        causes=(
            "Horovod is stalled: ranks wait for others that did not submit the tensor, missing {missing}",
            "Horovod is stalled: ranks wait for others that did not submit the tensor.",
        ),
        remedies=(
            Remedy(
                "make the job fail instead of waiting forever",
                {
                    "env": {
                        "HOROVOD_STALL_CHECK_TIME_SECONDS": "60",
                        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "300",
                    }
                },
            ),
            _STACKS,
            Remedy(
                "look for work that only one rank does (evaluation, checkpoints) and for calls inside a branch (if)"
            ),
        ),
        confidence=0.75,
        while_running=True,
        yields_to=("*",),
    ),
    Rule(
        id="HOROVOD_MISMATCH",
        title="The ranks submitted different tensors to Horovod",
        why="The ranks submitted tensors of the same name with different shapes, types or devices. "
        "Usually the data or the model differs between ranks.",
        signs=(
            Sign("Mismatched", r"(?P<detail>Mismatched [\w/ ]{1,60}: [^\n]{1,200})"),
            Sign("Mismatched", r"(?P<detail>Mismatched \w+ CPU/GPU device selection[^\n]{0,120})"),
        ),
        causes=("The ranks submitted different tensors to Horovod: {detail}",),
        example="The ranks submitted different tensors to Horovod: Mismatched allreduce tensor "
        "shapes: One rank sent a tensor of shape [2], but another rank sent a tensor of shape "
        "[3].",
        remedies=(
            Remedy("compare shapes and types of that tensor on all ranks; drop the last, smaller batch"),
            Remedy("move the model to the GPU on every rank before creating the optimizer"),
        ),
        confidence=0.9,
    ),
    Rule(
        id="HOROVOD_LOST_RANK",
        title="Horovod lost the connection to a rank",
        why="A rank lost the connection to another rank and stopped. That other rank failed first; "
        "this error is a consequence.",
        trust=Trust.GENERIC,
        signs=(
            Sign("HorovodInternalError", r"HorovodInternalError"),
            Sign("Horovod has been shut down", r"Horovod has been shut down"),
        ),
        causes=("Horovod: {who} lost the connection to another rank, which had already exited.",),
        remedies=(
            Remedy("find the rank that ended first: mpijob describe JOB"),
            Remedy(
                "check memory use: a rank that ends without a message was often killed when memory ran out"
            ),
        ),
        only_how=True,
        confidence=0.4,
    ),
    Rule(
        id="DEEPSPEED_ONE_MACHINE",
        title="DeepSpeed used one machine only",
        why="DeepSpeed's launcher found no hostfile and used only the machine that it runs on. The "
        "other workers were idle, and the job even reports success.",
        trust=Trust.GENERIC,
        facts=("deepspeed-alone",),
        causes=("DeepSpeed found no hostfile and trained on one machine only; the other workers were idle.",),
        remedies=(
            Remedy("pass the job's hostfile: deepspeed --hostfile /etc/mpi/hostfile …"),
            Remedy("or let the job start the ranks with mpirun: remove deepspeed from the command"),
        ),
        confidence=0.9,
        even_on_success=True,
        field="command",
    ),
    Rule(
        id="MAIN_GUARD",
        title="The program starts processes while its main module is being imported",
        why="A process that is started with spawn imports the program again. Without the guard if "
        "__name__ == '__main__' it starts processes itself, and Python refuses that: data loaders "
        "and pools then end unexpectedly.",
        signs=(
            Sign(
                "bootstrapping phase",
                r"start a new process before the current process has finished its bootstrapping phase",
            ),
        ),
        causes=("{who} starts processes while its main module is still being imported.",),
        remedies=(
            Remedy("move the main code below if __name__ == '__main__':"),
            Remedy("load data in the rank itself: num_workers=0"),
        ),
        confidence=0.85,
    ),
    Rule(
        id="PORT_IN_USE",
        title="A port is already in use",
        why="The program listens on a port, for example for the rendezvous of its ranks. Another "
        "process already uses it: another job on the machine, or a process left from an earlier "
        "run.",
        signs=(
            Sign(
                "ddress already in use",
                r"(?:(?:port[: ]+|\[::\]:|\b(?:\d{1,3}\.){3}\d{1,3}:|localhost:)(?P<port>\d{2,5})[\s\S]{0,400}?)?"
                r"[Aa]ddress already in use",
            ),
            Sign(
                "server socket has failed",
                r"(?P<rendezvous>server socket has failed to)[^\n]{0,300}(?:ddress already in use|EADDRINUSE)",
            ),
            Sign("EADDRINUSE", r"(?:port[: ]+(?P<port>\d{2,5})[^\n]{0,160}?)?EADDRINUSE"),
        ),
        causes=(
            "{who} cannot listen on port {port}: another process already uses it.",
            "{who} cannot listen on its port: another process already uses it.",
        ),
        example="Rank 0 cannot listen on port 29500: another process already uses it.",
        remedies=(
            Remedy("use another port{rendezvous:.0}", {"env": {"MASTER_PORT": "29511"}}),
            Remedy(
                "if each rank listens, use a separate port for each (for example the port plus the rank), or let "
                "only rank 0 listen"
            ),
            Remedy("use another port: its option or setting in the program"),
            Remedy("see which process listens there: mpijob exec JOB --worker 0 -- ss -ltnp"),
        ),
        confidence=0.9,
        uncaught=True,
        yields_to=("TOO_MANY_FILES",),
    ),
    Rule(
        id="COLLECTIVE_TIMEOUT",
        title="A collective call timed out",
        why="All ranks must make the same collective calls. One rank did not join in time: it is slow "
        "(data, storage, a checkpoint), it ended, or it made a different call.",
        signs=(
            Sign(
                "gloo",
                r"/gloo/[^\n]{0,120}(?P<detail>Timed out waiting \d+ms for (?:recv|send) operation to complete)",
            ),
            Sign(
                "monitoredBarrier",
                r"(?P<detail>Rank (?P<missing>\d+) failed to pass monitoredBarrier in \d+ ms)",
            ),
            Sign("monitoredBarrier", r"Ranks (?P<missing>[\d, ]+) failed to pass monitoredBarrier"),
        ),
        causes=(
            "Rank {missing} did not reach a barrier in time: it is slow, has ended, or made another call.",
            "{who} waited too long for the others in a collective call: {detail}",
        ),
        example="Rank 3 did not reach a barrier in time: it is slow, has ended, or made another call.",
        remedies=(
            Remedy("read the last lines of that rank: mpijob logs JOB --rank {missing} --tail 50"),
            Remedy(
                "find the rank that does not report the timeout, and read its last lines: mpijob "
                "logs JOB --tail 200"
            ),
            _STACKS,
        ),
        confidence=0.8,
    ),
    Rule(
        id="RENDEZVOUS",
        title="The rendezvous of the ranks failed",
        why="Every rank connects to rank 0 at MASTER_ADDR and MASTER_PORT. Some ranks could not connect: "
        "the address is localhost or a name that does not resolve on the workers, rank 0 ended or "
        "never started, or the traffic is blocked.",
        signs=(
            Sign("DistNetworkError", r"DistNetworkError: (?P<detail>[^\n]{1,200})"),
            Sign(
                "ncclUniqueId",
                r"retrieving ncclUniqueId from [^\n]{1,200}?got error: (?P<detail>[^\n]{1,160})",
            ),
            Sign(
                "Rendezvous",
                r"Rendezvous(?:Connection|Timeout|Closed|State)Error(?:: (?P<detail>[^\n]{4,200}))?",
            ),
            Sign("connect() timed out", r"RuntimeError: (?P<detail>connect\(\) timed out\.[^\n]{0,80})"),
            Sign("DistStoreError", r"DistStoreError: (?P<detail>[^\n]{1,200})"),
            Sign(
                "client socket has timed out",
                r"(?P<detail>The client socket has timed out after [^\n]{1,160})",
            ),
            Sign(
                "client socket has failed to connect",
                r"(?P<detail>The client socket has failed to connect [^\n]{1,160})",
            ),
            Sign(
                "server socket has failed to listen",
                r"(?P<detail>The server socket has failed to listen[^\n]{0,160})",
            ),
            Sign("nable to find address for", r"(?P<detail>[Uu]nable to find address for: [^\n]{1,80})"),
            Sign("host not found", r"(?P<detail>[^\n]{0,60}host not found[^\n]{0,80})"),
            Sign(
                "IPv",
                r"(?P<detail>The IPv[46] network addresses of \([^)\n]{1,120}\) cannot be retrieved[^\n]{0,80})",
            ),
            Sign("coordination service", r"(?P<detail>[^\n]{0,80}coordination service[^\n]{0,120})"),
            Sign("DEADLINE_EXCEEDED:", r"(?P<detail>DEADLINE_EXCEEDED: [^\n]{1,160})"),
            Sign("Gloo connectFullMesh failed", r"(?P<detail>Gloo connectFullMesh failed with [^\n]{1,160})"),
        ),
        causes=(
            "{who} could not join the rendezvous: {detail}",
            "{who} could not join the rendezvous: no connection in time.",
        ),
        example="The rendezvous of rank 3 failed: The client socket has timed out after 600s while "
        "trying to connect to (localhost, 29500).",
        remedies=(
            Remedy("set MASTER_ADDR to the name of worker 0, not localhost"),
            Remedy("allow all TCP ports between the workers"),
            _INTERFACE,
        ),
        confidence=0.8,
        uncaught=True,
        yields_to=("PORT_IN_USE",),
    ),
)
