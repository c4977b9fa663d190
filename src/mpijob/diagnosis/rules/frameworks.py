"""Causes that training frameworks name: Horovod, DeepSpeed, torch.distributed."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

_INTERFACE = Remedy(
    "name the network interface of the pods for NCCL and Gloo",
    {"env": {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}},
)
_STACKS = Remedy("capture stacks while it hangs: mpijob stacks JOB")

RULES = (
    Rule(
        id="HOROVOD_STALL",
        title="Some ranks wait for others in Horovod",
        why="Every rank must reduce the same tensors. Some submitted a tensor, others did not: one rank evaluates or "
        "saves alone, takes another path through the code, or has ended.",
        signs=(
            Sign(
                "tensors were submitted",
                r"One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks"
                r"(?:[\s\S]{0,600}?(?:Missing|Stalled) ranks: ?\n?(?P<missing>\d[^\n]{0,120}))?",
            ),
        ),
        causes=(
            "Some ranks wait for others in Horovod; those that are missing: {missing}",
            "Some ranks wait for others in Horovod.",
        ),
        remedies=(
            Remedy(
                "let the job fail instead of waiting forever",
                {
                    "env": {
                        "HOROVOD_STALL_CHECK_TIME_SECONDS": "60",
                        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "300",
                    }
                },
            ),
            _STACKS,
            Remedy(
                "look for work that only one rank does (evaluation, checkpoints) and for calls inside an if"
            ),
        ),
        confidence=0.75,
        while_running=True,
        yields_to=("*",),
    ),
    Rule(
        id="HOROVOD_MISMATCH",
        title="The ranks do not agree on a tensor in Horovod",
        why="The ranks gave tensors of the same name with different shapes, types or devices, so they cannot be "
        "combined: usually data or a model that differs between ranks.",
        signs=(
            Sign("Mismatched", r"(?P<detail>Mismatched [\w/ ]{1,60}: [^\n]{1,200})"),
            Sign("Mismatched", r"(?P<detail>Mismatched \w+ CPU/GPU device selection[^\n]{0,120})"),
        ),
        causes=("The ranks do not agree in Horovod: {detail}",),
        example="The ranks do not agree in Horovod: Mismatched allreduce tensor shapes: One rank sent a tensor of "
        "shape [2], but another rank sent a tensor of shape [3].",
        remedies=(
            Remedy("compare shapes and types of that tensor on all ranks; drop the last, smaller batch"),
            Remedy("put the model on the GPU of every rank before the optimizer is made"),
        ),
        confidence=0.9,
    ),
    Rule(
        id="HOROVOD_LOST_RANK",
        title="Horovod lost a rank",
        why="A rank found that another one is gone and stopped. That other rank failed first; this line follows.",
        trust=Trust.GENERIC,
        signs=(
            Sign("HorovodInternalError", r"HorovodInternalError"),
            Sign("Horovod has been shut down", r"Horovod has been shut down"),
        ),
        causes=("{who} lost another rank in Horovod, which had ended before.",),
        remedies=(
            Remedy("find the rank that ended first: mpijob describe JOB"),
            Remedy("look at memory: a rank that vanishes without a word was often killed for it"),
        ),
        only_how=True,
        confidence=0.4,
    ),
    Rule(
        id="DEEPSPEED_ONE_MACHINE",
        title="DeepSpeed used one machine only",
        why="DeepSpeed's launcher looks for a hostfile, found none, and went on with the machine that it runs on. The "
        "other workers were idle, and the job even reports success.",
        trust=Trust.GENERIC,
        facts=("deepspeed-alone",),
        causes=("DeepSpeed found no hostfile and trained on one machine only; the other workers were idle.",),
        remedies=(
            Remedy("give it the job's hostfile: deepspeed --hostfile /etc/mpi/hostfile …"),
            Remedy("or let the job start the ranks: leave out deepspeed, and the command is run by mpirun"),
        ),
        confidence=0.9,
        even_on_success=True,
        field="command",
    ),
    Rule(
        id="MAIN_GUARD",
        title="The program starts processes before it is ready to",
        why="A process that is started anew (spawn) imports the program again. Without a guarded main part it starts "
        "processes itself, and Python refuses that: data loaders and pools then end unexpectedly.",
        signs=(
            Sign(
                "bootstrapping phase",
                r"start a new process before the current process has finished its bootstrapping phase",
            ),
        ),
        causes=("{who} starts processes while the program is still being imported.",),
        remedies=(
            Remedy("put what the program does below if __name__ == '__main__':"),
            Remedy("let data loaders work in the rank itself: num_workers=0"),
        ),
        confidence=0.85,
    ),
    Rule(
        id="PORT_IN_USE",
        title="A port that the program wants is taken",
        why="The first rank opens a port where the others meet. Something already listens there: another job on the "
        "machine, or a process that is left from an earlier one.",
        signs=(
            Sign(
                "ddress already in use",
                r"(?:(?:port[: ]+|\[::\]:|\b(?:\d{1,3}\.){3}\d{1,3}:|localhost:)(?P<port>\d{2,5})[\s\S]{0,400}?)?"
                r"[Aa]ddress already in use",
            ),
            Sign("EADDRINUSE", r"(?:port[: ]+(?P<port>\d{2,5})[^\n]{0,160}?)?EADDRINUSE"),
        ),
        causes=(
            "Port {port}, which {whom} wants to open, is taken.",
            "A port that {whom} wants to open is taken.",
        ),
        example="Port 29500, which rank 0 wants to open, is taken.",
        remedies=(
            Remedy("use another port", {"env": {"MASTER_PORT": "29511"}}),
            Remedy("see what listens there: mpijob exec JOB --worker 0 -- ss -ltnp"),
        ),
        confidence=0.9,
        uncaught=True,
        yields_to=("TOO_MANY_FILES",),
    ),
    Rule(
        id="RENDEZVOUS",
        title="The ranks did not meet (torch.distributed)",
        why="Every rank connects to the first one at MASTER_ADDR and MASTER_PORT. Some could not: the address is "
        "localhost or a name that the workers do not know, the first rank ended, or traffic is not allowed.",
        signs=(
            Sign("DistNetworkError", r"DistNetworkError: (?P<detail>[^\n]{1,200})"),
            Sign(
                "ncclUniqueId",
                r"retrieving ncclUniqueId from [^\n]{1,200}?got error: (?P<detail>[^\n]{1,160})",
            ),
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
            Sign("Unable to find address for", r"(?P<detail>[Uu]nable to find address for: [^\n]{1,80})"),
            Sign("host not found", r"(?P<detail>[^\n]{0,60}host not found[^\n]{0,80})"),
            Sign(
                "IPv",
                r"(?P<detail>The IPv[46] network addresses of \([^)\n]{1,120}\) cannot be retrieved[^\n]{0,80})",
            ),
            Sign("shutdown barrier", r"(?P<detail>[^\n]{0,80}coordination service[^\n]{0,120})"),
            Sign("DEADLINE_EXCEEDED:", r"(?P<detail>DEADLINE_EXCEEDED: [^\n]{1,160})"),
            Sign("Gloo connectFullMesh failed", r"(?P<detail>Gloo connectFullMesh failed with [^\n]{1,160})"),
        ),
        causes=("{who} did not meet the other ranks: {detail}",),
        example="Rank 3 did not meet the other ranks: The client socket has timed out after 600s while trying to "
        "connect to (localhost, 29500).",
        remedies=(
            Remedy("let MASTER_ADDR be the name of worker 0, not localhost"),
            Remedy("allow all TCP ports between the workers"),
            _INTERFACE,
        ),
        confidence=0.8,
        uncaught=True,
        yields_to=("PORT_IN_USE",),
    ),
)
