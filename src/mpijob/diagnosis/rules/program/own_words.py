"""Causes that the program tells in its own words: uncaught errors of several languages, applications of the field."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

_TAG = r"^(?:\S*[ ])?"  # a rank's tag, where a launcher writes one

UNCAUGHT_ERROR = Rule(
    id="UNCAUGHT_ERROR",
    title="The program ended with an unhandled error",
    why="The program (C++, Fortran, R, Julia, Java, Go, Rust, Lua, JavaScript or another language) "
    "raised an error that it does not handle, and its runtime ended it. The text comes from the "
    "program or its library.",
    signs=(
        Sign(
            "terminate called after throwing",
            r"terminate called after throwing an instance of '(?P<kind>[^'\n]{1,120})'"
            r"(?:[\s\S]{0,120}?what\(\): (?P<error>[^\n]{1,300}))?",
        ),
        Sign("pure virtual", r"(?P<error>pure virtual method called)"),
        Sign("terminate called without", r"(?P<error>terminate called without an active exception)"),
        Sign(
            "Fortran runtime error",
            r"(?:At line (?P<line>\d+) of file (?P<file>[^\n]{1,120})\n)?(?:\S+[ ])?Fortran runtime error: "
            r"(?P<error>[^\n]{1,300})",
        ),
        Sign(
            "forrtl: ",
            _TAG + r"forrtl: (?:severe|error) "
            r"\((?P<number>(?!(?:65|7[1-8]|168|174|175)\))\d+)\): (?P<error>[^\n]{1,300})",
        ),
        Sign(
            "Error in ",
            _TAG + r"Error in (?P<error>[^\n]{1,80}? : ?\n?[^\n]{1,300})(?=[\s\S]{0,400}Execution halted)",
        ),
        Sign("Error: ", _TAG + r"Error: (?P<error>[^\n]{1,300})(?=[\s\S]{0,400}Execution halted)"),
        Sign("ERROR: LoadError", _TAG + r"ERROR: LoadError: (?P<error>[^\n]{1,300})"),
        Sign(
            "Exception in thread",
            r"Exception in thread \"[^\"\n]{1,80}\" (?P<error>[\w.$]{1,120}(?:: [^\n]{1,300})?)",
        ),
        Sign("Could not find or load", r"Error: (?P<error>Could not find or load main class [^\n]{1,200})"),
        Sign(
            "stack traceback:",  # Lua
            _TAG
            + r"lua[\d.]*: (?P<file>[^\s:]+):(?P<line>\d+): (?P<error>[^\n]{1,300})(?=\nstack traceback:)",
        ),
        Sign(  # Go's run time
            "fatal error: ",
            _TAG + r"fatal error: (?P<error>[^\n]{1,300})(?=[\s\S]{0,600}?^(?:\S+[ ])?goroutine \d+)",
        ),
        Sign("panic: ", _TAG + r"panic: (?P<error>[^\n]{1,300})(?=[\s\S]{0,400}^goroutine \d+)"),  # Go
        Sign(
            "    at ",  # Node.js
            _TAG + r"(?:Uncaught )?(?P<error>\w*Error(?: \[\w+\])?: [^\n]{1,300})"
            r"(?=(?:\n[^\n]{0,200}){0,3}?\n[ ]{4}at [^\n]+:\d+:\d+\)?$)",
        ),
        Sign(
            "PHP Fatal error", r"PHP Fatal error: (?P<error>[^\n]{1,300}?) in (?P<file>[^\s:]+):(?P<line>\d+)"
        ),
        Sign("' undefined", _TAG + r"error: (?P<error>'\w+' undefined[^\n]{0,200})"),  # Octave
        Sign("Runtime error ", _TAG + r"(?P<error>Runtime error \d+ at \$[0-9A-Fa-f]+)"),  # Free Pascal
        Sign(
            "Unhandled ",  # Common Lisp
            r"Unhandled (?P<kind>[\w:-]+) in thread [^\n]*(?:\n[ ]{20,}[^\n]*)?\n"
            r"(?P<error>(?:[ ]{1,8}\S[^\n]{0,200}\n){1,6})",
        ),
        Sign(
            "panicked at",
            r"thread '[^'\n]{1,60}'(?: \(\d+\))? panicked at (?P<error>[^\n]{1,300}(?:\n[^\n]{1,200})?)",
        ),
    ),
    causes=(
        "{who} ended with an unhandled error: {error} (line {line} of {file})",
        "{who} ended with an unhandled error: {error}",
        "{who} ended with an unhandled error: {kind}",
    ),
    example="Rank 2 ended with an unhandled error: grid size must be a power of two",
    remedies=(
        Remedy("fix what the error names; check the program's input first"),
        Remedy("read the rank's last lines: mpijob logs JOB --rank {rank} --tail 50"),
    ),
    confidence=0.85,
    uncaught=True,
    yields_to=(
        *(
            "MEMORY_ERROR",
            "IMPORT_ERROR",
            "MISSING_LIBRARY",
            "CUDA_OOM",
            "CUDA_ERROR",
            "CUDA_DRIVER",
            "NO_GPU",
            "NCCL_TIMEOUT",
        ),
        *(
            "NCCL_ERROR",
            "NCCL_CONNECTION",
            "RENDEZVOUS",
            "DISK_FULL",
            "SHM_FULL",
            "TOO_MANY_FILES",
            "PROCESS_LIMIT",
        ),
        "COLLECTIVE_MISMATCH",
    ),
)

PROGRAM_ERROR = Rule(
    id="PROGRAM_ERROR",
    title="The program reported an error and ended",
    why="An application checks its input and its results, and ends the job when something is wrong. "
    "The error that it printed is the cause; MPI_Abort or an exit code is the consequence.",
    signs=(
        Sign(
            "ERROR",
            _TAG + r"(?P<error>ERROR(?: on proc \d+)?: [^\n]{1,300}\([^()\n]{1,120}:\d+\))"
            r"(?:\nLast command: [^\n]{1,200})?",
        ),  # LAMMPS
        Sign("[file ", r"^ERROR \d+ \[file [^\]\n]+\]:\s*\n\s*(?P<error>[^\n]{1,300})(?P<input>)"),
        Sign("Fatal error:", r"^Fatal error:\s*\n(?P<error>[^\n]{1,300}(?:\n[^\n]{1,200})?)"),  # GROMACS
        Sign(
            "Error in user input",
            r"^Error in user input:\s*\n(?P<error>[^\n]{1,300}(?:\n[^\n]{1,200}){0,3})",
        ),
        Sign("File input/output error", r"^File input/output error:\s*\n(?P<error>[^\n]{1,300})"),
        Sign(
            "FOAM FATAL",
            r"--> FOAM FATAL (?:IO )?ERROR:?[^\n]*\n\s*(?:\[\d+\][ ]*)*(?P<error>[^\n]{1,300})",
        ),
        Sign(
            "FOAM FATAL",
            r"(?:\[\d+\][ ]*)?--> FOAM FATAL (?:IO )?ERROR:?[^\n]*\s+(?:\[\d+\]\s*)*(?P<error>[^\s\[][^\n]{1,300})",
        ),
        Sign(
            "Error in routine",
            r"Error in routine (?P<routine>\S+) \(-?\d+\):?\s*\n\s*(?P<error>[^\n]{1,300})",  # Quantum ESPRESSO
        ),
        Sign(
            "convergence NOT achieved", r"(?P<error>convergence NOT achieved after +\d+ iterations: stopping)"
        ),
        Sign(
            "Sanitizer: ",
            r"^==\d+==ERROR: (?P<error>\w+Sanitizer: [^\n]{1,160}?)(?: on (?:unknown )?address[^\n]*)?$",
        ),
        Sign(
            "icense",
            r"(?P<error>[^\n]{0,60}\b[Ll]icense (?:checkout|request|server|file)\b[^\n]{0,60}"
            r"(?:denied|failed|refused|rejected|not available|unavailable|expired)[^\n]{0,80})",
        ),
        Sign("[ABORT]", r"\[ABORT\](?P<error>[\s\S]{1,600}?)\n\s*\*{20}"),  # CP2K
        Sign(
            "FATAL CALLED", r"FATAL CALLED[^\n]*\n(?P<error>[^\n]{1,200}(?:\n(?!-)[^\n]{1,200}){0,2})"
        ),  # WRF
        Sign(
            "PETSC ERROR:",
            r"\[\d+\]PETSC ERROR: [ ]*(?P<error>(?=[^\n]*[A-Za-z]{3})(?!-|\[|Caught signal"
            r"|Try option|or (?:see|try)|configure using|to get)[^\n]{1,200}"
            r"(?:\n\[\d+\]PETSC ERROR: (?!See |PETSc |-|\[)[^\n]{1,200})?)",
        ),
        Sign("FATAL ERROR:", _TAG + r"FATAL ERROR: (?P<error>[^\n]{1,300})"),  # NAMD
        Sign("ERROR STOP", _TAG + r"ERROR STOP (?P<error>(?![ ]*-?\d+[ ]*$)[^\n]{1,300})"),  # Fortran
        Sign("VERY BAD NEWS", r"VERY BAD NEWS! (?P<error>[^\n]{1,300}(?:\n[^\n]{1,200})?)"),  # VASP
        Sign("Error ", _TAG + r"[ ]*Error (?P<routine>[A-Z]{4,20}): (?P<error>[^\n]{1,200})"),  # VASP
        Sign(
            "--- !",  # ABINIT
            r"^--- !(?:ERROR|BUG)\s*\n(?:[^\n]*\n){1,6}?message: \|\s*\n[ ]*(?P<error>[^\n]{1,300})",
        ),
        Sign(
            "For more information",
            r"-{70,}\s*\n[ ](?P<error>[^\n]{3,160}?)[ ]{2,}-?\d+\s*\n[ ]-{70,}[\s\S]{0,2000}?For more information",
        ),
        Sign(  # the innermost function of the stack says it best
            "HDF5-DIAG",
            r"HDF5-DIAG: [^\n]*\n(?:[ ]+[^\n]*\n){0,60}[ ]+#\d+: [^\n]{1,200}? line \d+ in \w+\(\): "
            r"(?P<error>[^\n]{1,200})",
        ),
        Sign("HDF5-DIAG", r"HDF5-DIAG: [^\n]*\n(?:[^\n]*\n){0,30}?[^\n]*minor: (?P<error>[^\n]{1,200})"),
    ),
    causes=(
        "The program ended with an error: {last}",
        "{who} exited with code {code}. Its last line on stderr: {final}",
        "{who} reported an error in {routine}: {error}",
        "{who} reported an error and exited with code {code}: {error}",
        "{who} reported an error: {error}",
    ),
    example="Rank 0 reported an error: ERROR: Lost atoms: original 4000 current 3986",
    remedies=(
        Remedy("fix the problem that the program reports: its input, its data, or the problem size"),
        Remedy("read the lines before it: mpijob logs JOB --tail 50"),
    ),
    confidence=0.8,
    yields_to=("MEMORY_ERROR", "CUDA_OOM", "DISK_FULL", "SHM_FULL", "TOO_MANY_FILES", "UNCAUGHT_ERROR"),
)

LAUNCHER_ERROR = Rule(
    id="LAUNCHER_ERROR",
    title="MPI or its launcher reported an error",
    why="The MPI library, or the program that starts the ranks (mpirun, mpiexec, srun), reported an "
    "error that has no code of its own in mpijob. The text is the original message.",
    signs=(Sign("recursive calls", r"(?P<nested>\S+ does not support recursive calls)"),),
    causes=(
        "The program that the ranks run starts mpirun again: {nested}.",
        "MPI or its launcher reported an error: {last}",
        "MPI or its launcher reported an error: {error}",
    ),
    example="MPI or its launcher reported an error: The specified fork agent was not found; Node: n2; Fork agent: "
    "/opt/agent",
    remedies=(
        Remedy("start the ranks only once: remove mpirun from the program that the ranks run{nested:.0}"),
        Remedy("fix the problem in the message: an option, an environment variable, a path or a host"),
        Remedy("read the lines before it: mpijob logs JOB --tail 50"),
    ),
    confidence=0.6,
)

RULES = (UNCAUGHT_ERROR, PROGRAM_ERROR, LAUNCHER_ERROR)
