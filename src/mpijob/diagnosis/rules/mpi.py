"""Causes in the use of MPI: libraries that do not fit, worlds that are not as planned, wrong calls."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust
from mpijob.diagnosis.rules.launcher_reports import ended_by

_STACK = (  # the end of MPICH's error stack, where it says what is wrong: `function(line)...: reason`
    r"(?:\n(?:\S+[ ])?[\w.]+\([\w./:]*\d+\)\.*:[^\n]*)*\n(?:\S+[ ])?[\w.]+\([\w./:]*\d+\)\.*:[ ]*"
    r"(?P<reason>(?!P?MPI_\w+\()\S[^\n]{3,200})"
)
_SAME = Remedy("use the MPI that the program was built with: mpi: openmpi, mpich or intel")

RULES = (
    Rule(
        id="MPI_MISMATCH",
        title="The program was built for a different MPI from the one that starts it",
        why="Each rank then runs alone: all print rank 0 of 1, each does the whole work, and the "
        "launcher even reports success. It happens when the image or the environment has two MPI "
        "libraries.",
        trust=Trust.FACT,
        facts=("world-of-singletons",),
        signs=(
            Sign(
                "suspicious MPI execution",
                r"suspicious MPI execution environment\s+Your environment has \S+ set, "
                r"but mpi4py was built with (?P<library>[^\n]+?)\.?\s*$",
            ),
            Sign("no-pmix-but", r"no-pmix-but"),
            Sign("No PMIx server", r"No PMIx server was reachable, but a PMI1/2 was detected"),
            Sign("unsupported PMI version", r"Runtime environment uses unsupported PMI version"),
            Sign("_Init", r"PMI2?_Init (?:failed|returned)"),
            Sign("undefined symbol", r"undefined symbol: (?P<symbol>(?:ompi_|P?MPI|MPIR_|opal_)\w+)"),
            Sign("libmpi", r"(?P<missing>libmpi(?:cxx|_cxx)?\.so\.\d+): cannot open shared object"),
        ),
        causes=(
            "MPI version mismatch detected. The program was built for a different MPI from the one "
            "that it loads: the symbol {symbol} is missing there.",
            "MPI version mismatch detected. The program needs {missing}, which the loader does not "
            "find: it was built for another MPI, or LD_LIBRARY_PATH lacks its directory.",
            "MPI version mismatch detected. The program is built with {library}, the launcher is "
            "{family}: each rank ran as rank 0 of 1.",
            "MPI version mismatch detected. The program is built for another MPI than the launcher's, "
            "so each rank ran as rank 0 of 1.",
        ),
        remedies=(
            _SAME,
            Remedy("check the image's MPI installation: only one MPI should be on PATH and LD_LIBRARY_PATH"),
            Remedy("rebuild mpi4py or the program with the mpicc of the MPI in use"),
        ),
        confidence=0.9,
        even_on_success=True,
        yields_to=("WRONG_WORLD",),
        field="mpi",
    ),
    Rule(
        id="WRONG_WORLD",
        title="The program's MPI is not the one that started it",
        why="A launcher can start only programs that use its own MPI. A rank of another MPI would run as "
        "rank 0 of 1: every rank would do the whole work, and all would succeed. So mpijob stopped "
        "the job immediately.",
        trust=Trust.FACT,
        facts=("reason:WrongWorld", "refused-open-mpi"),
        signs=(
            Sign(
                "mpijob_started_this_rank_with_mpich",
                r"Component: mpijob_started_this_rank_with_(?P<starter>mpich)",
            ),
            Sign(
                "Unable to connect to 127.0.0.1 on 1", r"Unable to connect to (?P<nobody>127\.0\.0\.1) on 1$"
            ),
            Sign("Found both env vars PMI", r"Found both env vars PMI_\w+ and (?P<both>PMIX_\w+)"),
        ),
        causes=(
            "The program uses Open MPI, but {starter} started it: each rank would run as rank 0 of 1.",
            "The program uses MPICH or Intel MPI, but Open MPI started it (there is no PMI server at "
            "{nobody}:1): each rank would run as rank 0 of 1.",
            "The program uses MPICH or Intel MPI, but a launcher of another MPI started it ({both} is "
            "set): each rank would run as rank 0 of 1.",
            "The program's MPI is not the one that started it: {message}.",
        ),
        remedies=(
            Remedy(
                "run it as a script, in which each mpirun is a step: script: {as_script}",
                {"script": "{as_script}", "command": [], "args": "{script_args}"},
            ),
            Remedy("start it with the MPI that it loads: mpi: {wanted_mpi}", {"mpi": "{wanted_mpi}"}),
            Remedy("start it with Open MPI instead of {starter}: mpi: openmpi", {"mpi": "openmpi"}),
            Remedy(
                "start it with MPICH (its MPI looked for a PMI server at {nobody}:1): mpi: mpich",
                {"mpi": "mpich"},
            ),
            Remedy("start it with MPICH, which does not set {both}: mpi: mpich", {"mpi": "mpich"}),
            Remedy(
                "if a script starts the program, specify the program by its path in the command, so "
                "that mpijob can read its MPI"
            ),
        ),
        confidence=0.98,
        even_on_success=True,
        field="mpi",
    ),
    Rule(
        id="MPI_NOT_ON_WORKER",
        title="The workers do not have the launcher's MPI",
        why="The launcher starts a daemon of its MPI library on every worker. The workers do not have "
        "that program: their image has another MPI, another version, none, or has it in another "
        "path.",
        signs=(
            Sign(
                "not found",
                r"(?P<helper>[\w./-]*(?:orted|prted|hydra_\w+|pmi_proxy)): (?:command )?not found",
            ),
            Sign(
                "No such file or directory",
                r"(?P<helper>[\w./-]*(?:orted|prted|hydra_\w+|pmi_proxy)): No such file or directory",
            ),
            Sign(
                "nable to run",  # 127, by which a shell says that there is no such program
                r"[Uu]nable to run (?P<helper>bstrap_proxy|proxy) on (?P<host>\S+) \(pid \d+, exit code 32512\)",
            ),
        ),
        causes=(
            "MPI version mismatch detected. The workers do not have {helper}: their MPI differs from "
            "that of the launcher, is missing, or is in a different path.",
        ),
        remedies=(
            Remedy(
                "check the image's MPI installation: launcher and workers need the same MPI in the same path"
            ),
            _SAME,
        ),
        confidence=0.95,
        field="image",
    ),
    Rule(
        id="MPI_FAMILY",
        title="The MPI in the image differs from the one that the job sets",
        why="Every MPI library has its own launcher, and all are called mpirun. The one in the image "
        "rejects the options of the job, because the job sets a different library, or none (Open MPI "
        "is then assumed).",
        signs=(
            Sign("token slots", r"token slots not supported at this time"),
            Sign("unknown option", r'mpirun: Error: unknown option "-f"'),
            Sign(
                "unrecognized option",
                r"An unrecognized option was included on the mpirun command line: Option: -f$",
            ),
        ),
        causes=("MPI version mismatch detected. The launcher in the image does not belong to {family}.",),
        remedies=(
            Remedy("set the MPI that the image has: mpi: openmpi, mpich or intel"),
            Remedy("check the image's MPI installation: mpirun --version"),
        ),
        confidence=0.95,
        field="mpi",
    ),
    Rule(
        id="WORLD_DIFFERS",
        title="The number of ranks differs from the plan",
        why="Before the program starts, mpijob counts the ranks with a short separate launch. It "
        "found a number that differs from the plan, so it stopped the job.",
        trust=Trust.FACT,
        facts=("world-differs", "reason:WorldDiffers"),
        causes=(
            "The job planned {planned} ranks, but {proved} started.",
            "The number of ranks differs from the plan: {message}",
        ),
        remedies=(
            Remedy("compare with the plan: mpijob plan FILE"),
            Remedy("if the command calls mpirun itself, set its -np to {planned}"),
        ),
        confidence=0.95,
        yields_to=("RAN_ON_LAUNCHER",),
    ),
    Rule(
        id="NOT_ENOUGH_SLOTS",
        title="More ranks are requested than there are slots",
        why="The job has workers × slots slots. Open MPI refuses to start more ranks than slots; "
        "MPICH and Intel MPI oversubscribe.",
        signs=(
            Sign(
                "not enough slots", r"not enough slots available in the system to satisfy the (?P<asked>\d+)"
            ),
            Sign("number of slots:", r"requested number of processes exceeds the allocated number of slots:"),
            Sign("conflicting number of", r"requested a conflicting number of processes for the application"),
            Sign("no allocated resources", r"There are no allocated resources for the application"),
            Sign("No nodes are available", r"No nodes are available for this job, either due to a failure"),
            Sign("already filled", r"All nodes which are allocated for this job are already filled"),
        ),
        causes=(
            "{asked} ranks are requested, but {workers} workers × {slots} slots allow {room}.",
            "More ranks are requested than the {room} slots of the workers.",
        ),
        remedies=(
            Remedy("run as many ranks as there are slots: {room}", {"ranks": "{room}"}),
            Remedy("increase slots or workers until their product is enough"),
            Remedy("for tests only, oversubscribe the slots", {"launch": {"map_by": ":OVERSUBSCRIBE"}}),
        ),
        confidence=0.95,
        field="slots",
    ),
    Rule(
        id="TRUNCATED_MESSAGE",
        facts=("mpi-error:15",),
        title="A message is larger than its receive buffer",
        why="A rank received more data than fits into its buffer: counts or types differ between sender "
        "and receiver, or it received a message that belongs to another call.",
        signs=(
            Sign("MPI_ERR_TRUNCATE", r"MPI_ERR_TRUNCATE"),
            Sign("Message truncated", r"Message truncated"),
        ),
        causes=("{who} received a message that is larger than its buffer (MPI_ERR_TRUNCATE).",),
        remedies=(
            Remedy("compare count and type of the matching Send and Recv"),
            Remedy("use different tags for different kinds of messages"),
        ),
        confidence=0.95,
        uncaught=True,
    ),
    Rule(
        id="INVALID_RANK",
        facts=("mpi-error:6",),
        title="An MPI call names a rank that does not exist",
        why="Ranks are numbered from 0 to the number of ranks minus 1. The program uses a number outside "
        "this range: often the number of ranks is fixed in the code, and the job has fewer.",
        signs=(
            Sign("MPI_ERR_RANK", r"MPI_ERR_RANK"),
            Sign(
                "Invalid rank",
                r"Invalid rank has value (?P<named>-?\d+) but must be nonnegative and less than "
                r"(?P<size>\d+)",
            ),
            Sign("Invalid rank", r"Invalid rank, error stack"),
        ),
        causes=(
            "{who} addresses rank {named}, but there are only {size} ranks (numbered from 0).",
            "{who} addresses a rank that does not exist; the job has {world} ranks.",
        ),
        remedies=(
            Remedy("take the number of ranks from MPI (comm.size) instead of a constant"),
            Remedy("or run as many ranks as the program expects"),
        ),
        confidence=0.95,
        uncaught=True,
    ),
    Rule(
        id="MPI_CALL_ERROR",
        facts=("mpi-error",),
        title="An MPI call failed",
        why="An MPI call failed and MPI ended the job. The error class shows what is wrong: counts, "
        "types, communicators or roots that do not match.",
        signs=(
            Sign(
                "An error occurred in",
                r"\*\*\* An error occurred in MPI_(?P<call>(?!Init)\w+)(?:[\s\S]{0,300}?\*\*\* "
                r"(?P<error>MPI_ERR_\w+))?",
            ),
            Sign(
                "Fatal error in",
                r"Fatal error in (?:internal_|P?MPI_)(?P<call>(?!Init)\w+): (?P<error>[^\n]{1,160}?),? error stack:"
                rf"(?:{_STACK})?",
            ),
            Sign("error stack:", rf"Exception: (?P<error>[^\n,]{{4,120}}), error stack:{_STACK}"),
            Sign("Fatal error in", r"Fatal error in (?:internal_|P?MPI_)(?P<call>(?!Init)\w+)"),
            Sign("MPI_ERR_BUFFER", r"\*\*\* An error occurred in MPI_I?(?P<bsend>[Bb]send)\b"),
            Sign("Bsend buffer", r"space in (?P<bsend>Bsend) buffer"),
            Sign("MPI_ERR_TOPOLOGY", r"\*\*\* (?P<topology>MPI_ERR_TOPOLOGY)"),
            Sign(
                "topology associated",
                r"No (?P<topology>[\w -]{1,20}) topology associated with this communicator",
            ),
        ),
        causes=(
            "MPI_{call} failed: {error} ({reason}).",
            "MPI_{call} failed with {error}.",
            "An MPI call failed: {error} ({reason}).",
            "An MPI call of {whom} failed with {error_class}: the exit code {code} is Open MPI's number of this error.",
            "MPI_{call} failed.",
        ),
        example="MPI_Bcast failed: Invalid root (Invalid root (value given was 77)).",
        remedies=(
            Remedy(
                "attach a buffer that holds all messages not yet received (MPI_Buffer_attach), or use MPI_Isend"
                "{bsend:.0}"
            ),
            Remedy("pass the communicator that MPI_Cart_create or MPI_Graph_create returned{topology:.0}"),
            Remedy("compare the arguments of this call on all ranks: counts, types, root, communicator"),
        ),
        confidence=0.85,
        yields_to=(
            *(
                "TRUNCATED_MESSAGE",
                "INVALID_RANK",
                "FABRIC_FAILED",
                "WRONG_WORLD",
                "MPI_MISMATCH",
                "TOO_MANY_FILES",
            ),
            *(
                "SHM_FULL",
                "DISK_FULL",
                "LOCKED_MEMORY",
                "MPI_UNREACHABLE",
                "UNKNOWN_HOST",
                "COMPONENT_MISSING",
            ),
            *("MPI_AFTER_FINALIZE", "PMI_MISSING", "PYTHON_EXCEPTION"),
        ),
    ),
    Rule(
        id="MPI_AFTER_FINALIZE",
        title="MPI was called before MPI_Init or after MPI_Finalize",
        why="MPI may be used only between MPI_Init and MPI_Finalize. A call outside ends the job. Often "
        "an object frees its communicator when the program ends, or a library initializes MPI itself.",
        signs=(
            Sign(
                "MPI_FINALIZE",
                r"The (?P<call>MPI_\w+)\(\) function was called (?P<when>after MPI_FINALIZE was invoked)",
            ),
            Sign(
                "MPI_INIT",
                r"The (?P<call>MPI_\w+)\(\) function was called (?P<when>before MPI_INIT was invoked)",
            ),
            Sign(
                "more than once",
                r"this process has attempted to (?P<twice>(?:initialize|finalize) MPI) [\s\S]{0,80}?more than once",
            ),
            Sign(
                "more than once", r"Cannot call (?P<twice_called>MPI_INIT or MPI_INIT_THREAD) more than once"
            ),
            Sign(
                "after finalizing",
                r"(?P<when>[Aa]ttempting to use an MPI routine (?:\((?P<call>\w+)\) )?(?:before "
                r"initializing or )?after finalizing)",
            ),
            Sign(
                "before initializing",
                r"(?P<when>[Aa]ttempting to use an MPI routine (?:\((?P<call>\w+)\) )?before initializing[^\n]{0,40})",
            ),
        ),
        causes=(
            "{call} was called outside of MPI_Init and MPI_Finalize: {when}.",
            "MPI was called too early or too late: {when}.",
            "The program tries to {twice} a second time (MPI_Init, MPI_Finalize).",
            "The program calls {twice_called} more than once.",
        ),
        example="MPI_Barrier was called outside of MPI_Init and MPI_Finalize: after MPI_FINALIZE was invoked.",
        remedies=(
            Remedy(
                "free communicators, windows and files before MPI_Finalize, not in destructors of globals"
            ),
            Remedy("call MPI_Init first, once, in every rank"),
        ),
        confidence=0.85,
    ),
    Rule(
        id="MPI_INIT_FAILED",
        trust=Trust.GENERIC,
        title="MPI_Init failed, and MPI does not report why",
        why="MPI_Init failed on a rank. Usual reasons are a transport that does not work, a full /tmp "
        "or /dev/shm, a limit, or two versions of MPI; the library's report only names the step "
        "that failed.",
        signs=(
            Sign(
                "MPI_INIT failed",
                r"MPI_INIT failed[\s\S]{0,600}?\n\s+(?P<detail>[^\n]{4,120}) --> Returned (?P<error>[^\n]{1,80})",
            ),
            Sign("An error occurred in", r"An error occurred in MPI_Init"),
            Sign(
                "Fatal error in",
                r"Fatal error in (?:internal_|P?MPI_)Init\w*: (?P<detail>[^\n]{1,120}?)(?:, error stack|$)",
            ),
            Sign(
                "Fatal error in",
                rf"Fatal error in (?:internal_|P?MPI_)Init\w*: [^\n]{{1,120}}error stack:{_STACK}",
            ),
        ),
        causes=(
            "MPI_Init failed on {whom}: {reason}.",
            "MPI_Init failed on {whom}: {detail} ({error}).",
            "MPI_Init failed on {whom}: {detail}.",
            "MPI_Init failed on {whom}.",
        ),
        remedies=(
            Remedy("check the free space on that node: df -h /tmp /dev/shm"),
            Remedy(
                "{openmpi}: enable verbose output: OMPI_MCA_btl_base_verbose=30",
                {"env": {"OMPI_MCA_btl_base_verbose": "30"}},
            ),
            Remedy("{intel}: enable debug output: I_MPI_DEBUG=10", {"env": {"I_MPI_DEBUG": "10"}}),
            Remedy("{mpich}: enable libfabric's log: FI_LOG_LEVEL=info", {"env": {"FI_LOG_LEVEL": "info"}}),
        ),
        confidence=0.5,
        yields_to=(
            *(
                "FABRIC_FAILED",
                "LOCKED_MEMORY",
                "SHM_FULL",
                "DISK_FULL",
                "TOO_MANY_FILES",
                "PROCESS_LIMIT",
                "MEMORY_ERROR",
            ),
            *(
                "MPI_MISMATCH",
                "WRONG_WORLD",
                "COMPONENT_MISSING",
                "MPI_UNREACHABLE",
                "UNKNOWN_HOST",
                "PMI_MISSING",
            ),
            *(
                "PYTHON_EXCEPTION",
                "IMPORT_ERROR",
                "MPI_AFTER_FINALIZE",
                "MPI_CALL_ERROR",
                "BUS_ERROR",
                "SEGFAULT",
            ),
            *("COPY_FORBIDDEN", "NOT_ENOUGH_SLOTS", "BAD_BINDING", "SSH_USER"),
        ),
    ),
    Rule(
        id="PEER_LOST",
        title="A rank lost the connection to another rank",
        why="The connection to another rank was closed. That other rank ended first; this error is a "
        "consequence.",
        trust=Trust.GENERIC,
        signs=(
            Sign(
                "Socket closed",
                r"An error occurred in Socket closed \[\S+ \*\*\* reported by process \[\d+,(?P<rank>\d+)\]",
            ),
            Sign(
                "unexpectedly disconnected", r"MPI communication peer process has unexpectedly disconnected"
            ),
            Sign("ommunication error with rank", r"[Cc]ommunication error with rank (?P<peer>\d+)"),
            Sign("by peer", r"/gloo/[^\n]{0,120}Connection (?:closed|reset) by peer"),
            Sign(
                "btl_tcp_frag",
                r"btl_tcp_frag[^\n]{0,80}(?:readv|writev) failed: (?:Connection reset by peer"
                r"|Broken pipe|Connection timed out)",
            ),
            Sign("ncclRemoteError", r"ncclRemoteError: A call failed possibly due to a network error"),
        ),
        causes=("{who} lost the connection to another rank, which had already ended.",),
        remedies=(
            Remedy("find the rank that ended first: mpijob describe JOB shows the exits by time"),
            Remedy(
                "check memory use: a rank that ends without a message was often killed when memory ran out"
            ),
        ),
        only_how=True,
        confidence=0.4,
    ),
    Rule(
        id="RANK_ENDED_EARLY",
        title="A rank ended before the others; the launcher does not report how",
        why="After a failure, Intel MPI kills the other ranks and reports them in the same way as a rank "
        "that was killed from outside. Its report alone does not show which rank failed first, or "
        "why.",
        trust=Trust.GENERIC,
        signs=(
            Sign(
                "KILLED BY SIGNAL: 9",
                r"\A(?:(?!BAD TERMINATION)[\s\S])*(?P<here>BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES = RANK "
                r"(?P<only_rank>\d+) PID \d+ RUNNING AT (?P<host>\S+) = KILLED BY SIGNAL: 9\b)"
                r"(?![\s\S]*BAD TERMINATION)",
            ),
            Sign(
                "KILLED BY SIGNAL",
                r"RANK \d+ PID \d+ RUNNING AT (?P<host>\S+) = KILLED BY SIGNAL: 9\b",
            ),
            Sign(
                "BAD TERMINATION",
                r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES = PID \d+ RUNNING AT "
                r"(?P<host>\S+) = EXIT CODE: (?!(?:4|6|7|8|9|11|15|13[24567]|139|143)\b)(?P<code>\d+)",
            ),
        ),
        causes=(
            "Rank {only_rank} on {host} ended by signal 9: the kernel killed it because memory ran "
            "out, or MPI stopped it after another rank had failed.",
            "A rank on worker {worker} ended early; the launcher's report does not show which one "
            "failed first.",
            "A rank ended early; the launcher's report does not show which one failed first.",
        ),
        remedies=(
            Remedy(
                "read the last lines of the ranks on that worker: mpijob logs JOB --worker {worker} --tail 50"
            ),
            Remedy(
                "check memory use: a rank that ends without a message was often killed when memory ran out"
            ),
        ),
        only_how=True,
        confidence=0.3,
    ),
    Rule(
        id="TERMINATED",
        title="The launcher was terminated (signal 15)",
        why="Signal 15 ended the ranks. A launcher forwards this signal to its ranks; it is sent by a "
        "cancel, a time limit, a logout or a user.",
        trust=Trust.GENERIC,
        signs=(
            Sign("KILLED BY SIGNAL", r"KILLED BY SIGNAL: 15 \(Terminated\)"),
            Sign(
                "Abort is in progress", r"Abort is in progress\.\.\.hit ctrl-c again"
            ),  # mpirun, after a signal
            Sign("got signal: 15", r"SignalException: Process \d+ got signal: 15\b"),
            *ended_by(15),
        ),
        causes=("The launcher and its ranks received signal 15 (SIGTERM).",),
        remedies=(
            Remedy("see who or what sent it: mpijob events JOB"),
            Remedy("run it again: mpijob retry JOB"),
        ),
        confidence=0.4,
        yields_to=("RANK_ENDED_EARLY",),
    ),
)
