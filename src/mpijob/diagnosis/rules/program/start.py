"""Causes in the user's own program: how it starts."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

WITH_MPI4PY = Remedy(
    "run the program with python -m mpi4py, so that an exception in one rank ends all ranks",
    {"command": "{with_mpi4py}"},
)
SAID_BY_PYTHON = (
    *("IMPORT_ERROR", "MEMORY_ERROR", "CUDA_OOM", "TRUNCATED_MESSAGE", "INVALID_RANK", "MISSING_LIBRARY"),
    *("NO_GPU", "CUDA_DRIVER", "CUDA_ERROR", "NCCL_CONNECTION", "NCCL_ERROR", "GPU_SHARED"),
    *(
        "RENDEZVOUS",
        "LOADER_KILLED",
        "PORT_IN_USE",
        "HOROVOD_MISMATCH",
        "DISK_FULL",
        "SHM_FULL",
        "TOO_MANY_FILES",
        "PROCESS_LIMIT",
        "FILE_SYSTEM_ERROR",
    ),
)

RULES = (
    Rule(
        id="MISSING_EXECUTABLE",
        title="The program does not exist where the ranks run",
        why="A rank could not start because its program, or a directory of its path, does not exist "
        "there. A relative path is resolved in the job's directory, a bare name on the PATH of "
        "the workers.",
        signs=(
            Sign(
                "Executable:",
                r"could not access (?:or execute )?an executable: Executable: (?P<either>\S+) Node: (?P<host>\S+)",
            ),
            Sign(
                "execvp error",
                r"\[proxy:\d+@(?P<host>\S+)\][^\n]{0,300}?execvp error on file (?P<program>\S+) "
                r"\(No such file or directory\)",
            ),
            Sign("execvp error", r"execvp error on file (?P<program>\S+) \(No such file or directory\)"),
            Sign("execve()", r"execve\(\): (?P<program>[^:\n]{1,200}): No such file or directory"),
            Sign(
                "unable to find the specified",
                r"was unable to find the specified executable file(?:[\s\S]{0,500}?Executable: (?P<program>\S+))?",
            ),
            Sign(
                "executable file not found",
                r"exec: \"(?P<program>[^\"]+)\": executable file not found in \$PATH",
            ),
            Sign(
                "make",
                r"^(?:\S+[ ])?g?make(?:\[\d+\])?: (?P<program>[\w.+/-]+): "
                r"(?:No such file or directory|Command not found)$",
            ),
            Sign("can't open file", r"can't open file '(?P<program>[^']+)': \[Errno 2\]"),
            Sign("exec: ", r"exec: (?P<program>[^\s:]+): not found"),
            Sign(
                ": command not found",
                r"^(?:\S+[ ])?[^\s:]+: (?:line \d+: )?(?P<program>(?!\x7fELF|module:)[^\s:]+): command not found$",
                code=127,
            ),
            Sign(
                ": No such file or directory",
                r"^(?:\S+[ ])?[^\s:]+: (?:line )?\d+: (?P<program>[^\s:]*/[^\s:]+): No such file or directory$",
                code=127,
            ),
            Sign(
                ": not found",
                r"^(?:\S+[ ])?[^\s:]+: (?:line )?\d+: (?P<program>(?!\x7fELF)[^\s:]+): not found$",
                code=127,
            ),
        ),
        causes=(
            "{either} does not exist on the workers, or is not executable.",
            "{program} does not exist on worker {worker}.",
            "{program} does not exist where the ranks run.",
        ),
        remedies=(
            Remedy("if the file exists, make it executable: chmod +x {either}"),
            Remedy("use the path on the workers; a relative path starts in the job's directory"),
            Remedy("if it is your own file, upload it with the job: code.path"),
        ),
        confidence=0.95,
        uncaught=True,
        yields_to=(
            "NOT_EXECUTABLE",
            "MISSING_INTERPRETER",
            "MODULE_NOT_FOUND",
            "MPI_NOT_ON_WORKER",
            "PYTHON_EXCEPTION",
            *SAID_BY_PYTHON,
        ),
        field="command",
    ),
    Rule(
        id="COMPILE_ERROR",
        title="The program could not be compiled",
        why="The job compiles its program before its ranks start, and the compiler reported an error. "
        "Without a successful build, the program does not exist or is outdated.",
        signs=(
            Sign(
                "error: ",
                r"^(?:\S+[ ])?(?P<file>[^\s:]+\.\w{1,4}):(?P<line>\d+):(?:\d+:)?[ ](?:fatal[ ])?error:[ ]"
                r"(?P<said>[^\n]{1,300})$",
            ),
            Sign(
                "): ",  # nvcc
                r"^(?:\S+[ ])?(?P<file>[^\s:(]+\.\w{1,4})\((?P<line>\d+)\): (?:fatal )?error(?: \w+)?: "
                r"(?P<said>[^\n]{1,300})",
            ),
            Sign(
                "undefined reference to",
                r"(?P<file>[^\s:]+):[^\n]{0,200}undefined reference to [`'](?P<symbol>[^'\n]{1,120})'",
            ),
            Sign("cannot find ", r"\bld: (?P<said>cannot find -l(?P<absent>[^\s:]+))"),
            Sign(  # Go, below the name of the package
                ".go:",
                r"^(?:\S+[ ])?# [\w./-]+\n(?:\S+[ ])?(?P<file>[^\s:]+\.go):(?P<line>\d+):(?:\d+:)? "
                r"(?P<said>[^\n]{1,300})$",
            ),
        ),
        causes=(
            "Compiling {file} failed at line {line}: {said}",
            "The linker does not find {symbol}, which {file} needs.",
            "The linker does not find the library {absent}.",
        ),
        remedies=(
            Remedy(
                "install the library {absent} or load its module, and pass its directory to the compiler: -L DIRECTORY"
            ),
            Remedy("link the library or object file that defines {symbol}"),
            Remedy("fix the line and run it again; the compiler's full output: mpijob logs JOB --tail 50"),
            Remedy("upload the missing file with the job: code.path, code.include"),
        ),
        confidence=0.9,
        yields_to=("PYTHON_EXCEPTION", *SAID_BY_PYTHON),
        field="code",
    ),
    Rule(
        id="NOT_EXECUTABLE",
        title="The program is not executable",
        why="The file exists, but it has no execute permission, its file system is mounted noexec, or "
        "it is built for another CPU architecture.",
        signs=(
            Sign(
                "execvp error",
                r"execvp error on file (?P<program>\S+) \((?:Permission denied|Exec format error)\)",
            ),
            Sign("ermission denied", r"exec: \"?(?P<program>[^\":\s]+)\"?: [Pp]ermission denied"),
            Sign(
                "xec format error",
                r"(?:(?P<program>(?!Error\b|exec\b)[^\s:]+): )?(?:cannot execute binary file: )?[Ee]xec format error",
            ),
            Sign(
                "Application name:",
                r"Application name: (?P<program>\S+) Error: (?:Exec format error|Permission denied|Is a directory)",
            ),
            Sign(
                "ermission denied",
                r"^(?:\S+[ ])?(?:/bin/)?(?:ba|da)?sh: (?:line )?(?:\d+: )?(?P<program>\./[^\s:]+"
                r"|/[^\s:]+): Permission denied$",
            ),
            Sign(
                "execve()", r"execve\(\): (?P<program>[^:\n]{1,200}): (?:Permission denied|Exec format error)"
            ),
            Sign("Text file busy", r"(?P<program>[^\s:]+): (?P<busy>Text file busy)"),
            Sign(  # a shell reads a program of another architecture as its own commands
                "\x7fELF",
                r"^(?:\S+[ ])?(?P<program>[^\s:]+): (?:line )?\d+: \x7fELF[^\n]*: (?:command )?not found",
            ),
        ),
        causes=(
            "{program} cannot be started while it is open for writing ({busy}).",
            "{program} is not executable: no permission, or built for another CPU architecture.",
            "The program is not executable: no permission, or built for another CPU architecture.",
        ),
        example="./solver is not executable: no permission, or built for another CPU architecture.",
        remedies=(
            Remedy(
                "build or copy it once, before the ranks start, or under another name in each rank{busy:.0}"
            ),
            Remedy("make it executable: chmod +x {program}"),
            Remedy("run it through its interpreter: python {program}"),
            Remedy("use a program and an image that are built for this CPU architecture (uname -m)"),
        ),
        confidence=0.9,
        field="command",
    ),
    Rule(
        id="MISSING_INTERPRETER",
        title="The interpreter in the script's first line does not exist",
        why="The first line of a script (#!) names its interpreter. That interpreter does not exist "
        "on the worker, or the line ends with a carriage return because the script was written on "
        "Windows.",
        signs=(
            Sign("bad interpreter", r"Error: (?P<program>\S+) has a bad interpreter on the first line"),
            Sign("bad interpreter", r"(?P<program>\S+): (?P<interpreter>\S+): bad interpreter: No such file"),
            Sign("required file not found", r"(?P<program>[^\s:]+): cannot execute: required file not found"),
            Sign("env: ", r"env: (?:'|‘)(?P<interpreter>[^'\n]{1,120}?)(?:'|’): No such file or directory"),
        ),
        causes=(
            "The interpreter {interpreter} of {program} does not exist.",
            "{interpreter} does not exist.",
            "The interpreter in the first line of {program} does not exist.",
        ),
        remedies=(
            Remedy("name the interpreter in the command: python script.py"),
            Remedy(
                "correct the script's first line, for example #!/usr/bin/env python3; for a script "
                "from Windows: sed -i 's/\\r$//' SCRIPT"
            ),
        ),
        confidence=0.95,
        field="command",
    ),
    Rule(
        id="IMPORT_ERROR",
        title="A Python module is not installed for the ranks",
        why="The program imports a module that the Python on the workers does not have or cannot load. "
        "The Python of the ranks may differ from that of your shell.",
        signs=(
            Sign(
                "ModuleNotFoundError",
                r"^(?:\S*[ ])?ModuleNotFoundError: (?P<detail>No module named '(?P<module>(?!encodings')[\w.]+)')",
            ),
            Sign(
                "'encodings'",
                r"^(?:\S*[ ])?ModuleNotFoundError: (?P<detail>No module named '(?P<home>encodings)')",
            ),
            Sign(
                "Error while finding module",
                r"Error while finding module specification for '(?P<started>[\w.]+)' "
                r"\(ModuleNotFoundError: (?P<detail>No module named '(?P<module>[\w.]+)')\)",
            ),
            Sign(
                "No module named",
                r"^(?:\S*[ ])?\S*python[\d.]*: (?P<detail>No module named (?P<module>(?P<started>[\w.]+)))$",
            ),
            Sign(
                "ImportError",
                r"^(?:\S*[ ])?ImportError: (?P<detail>(?:cannot import name|(?![^\n]*\.so))[^\n]{1,200})",
            ),
            Sign(
                "there is no package called",
                r"(?P<detail>there is no package called (?:'|‘)(?P<module>[\w.]+)(?:'|’))",
            ),
        ),
        causes=(
            "{who} could not start Python: it does not find its standard library ('{home}'). PYTHONHOME is wrong, or "
            "the installation is incomplete.",
            "{who} could not import '{module}': the module is not installed there.",
            "{who} could not import a module: {detail}",
        ),
        example="Rank 0 could not import 'torch': the module is not installed there.",
        remedies=(
            Remedy(
                "unset PYTHONHOME and PYTHONPATH, or set them for the Python that runs the ranks{home:.0}"
            ),
            Remedy(
                "if {started} is your own module, upload it: set code.path to its directory, for example code: "
                "{{path: .}}; without code.path, only files that the command names are uploaded"
            ),
            Remedy("install it in the environment of the job: pip install {module}"),
            Remedy(
                "see which Python runs the ranks: mpijob run -- python -c 'import sys; print(sys.executable)'"
            ),
            WITH_MPI4PY,
        ),
        confidence=0.95,
        uncaught=True,
        yields_to=("MPI_MISMATCH", "MISSING_LIBRARY"),
    ),
    Rule(
        id="MISSING_LIBRARY",
        title="A shared library is missing on the workers",
        why="The program needs a shared library that the loader does not find on the workers. The ranks "
        "do not inherit LD_LIBRARY_PATH from your shell unless the job sets it.",
        signs=(
            Sign(
                "error while loading shared",
                r"error while loading shared libraries: (?P<library>\S+): cannot open",
            ),
            Sign(
                "error while loading shared",
                r"error while loading shared libraries: (?P<library>\S+): "
                r"(?P<damage>file too short|invalid ELF header|wrong ELF class: \w+"
                r"|cannot apply additional memory[^\n]{0,40})",
            ),
            Sign(
                "undefined symbol",
                r"symbol lookup error: (?P<library>[^\s:]+): undefined symbol: (?P<symbol>[^\s,]+)",
            ),
            Sign(
                "undefined symbol",
                r"ImportError: (?P<library>[^\s:]+\.so[\d.]*): undefined symbol: (?P<symbol>[^\s,]+)",
            ),
            Sign("GLIBC", r"version .(?P<library>GLIBC(?:XX)?_[\d.]+). not found"),
            Sign(
                "not found (required by",
                r"(?P<library>[^\s:]+\.so[\d.]*): version .(?P<version>(?!GLIBC)[^\s'`]{1,80}). not found "
                r"\(required by (?P<needed_by>[^)\n]{1,200})\)",
            ),
            Sign(
                "cannot open shared",
                r"(?:ImportError|OSError): (?P<library>[^\s:]+\.so[\d.]*): cannot open shared object file",
            ),
        ),
        causes=(
            "{library} needs the symbol {symbol}, which no loaded library has: the version of one of "
            "them differs from that at build time.",
            "{needed_by} needs version {version} of {library}, which does not have it.",
            "The library {library} exists but cannot be loaded: {damage}.",
            "The library {library} is missing on worker {worker}.",
            "The library {library} is missing where the ranks run.",
        ),
        remedies=(
            Remedy(
                "use the library that the program was built with: ldd {needed_by} shows which one is loaded; "
                "set env.LD_LIBRARY_PATH"
            ),
            Remedy("replace the damaged file {library}: copy or install it again{damage:.0}"),
            Remedy(
                "pass its directory to the ranks: env.LD_LIBRARY_PATH={library_path}",
                {"env": {"LD_LIBRARY_PATH": "{library_path}"}},
            ),
            Remedy("pass its directory to the ranks: env.LD_LIBRARY_PATH{unknown_path:.0}"),
            Remedy("install it, load its module, or use an image that has it"),
            Remedy("for a library of the GPU driver (libcuda.so): request a GPU for the worker"),
        ),
        confidence=0.95,
        yields_to=("MPI_MISMATCH",),
    ),
)
