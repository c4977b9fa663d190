"""Causes in how the ranks are launched: options, host lists, binding, folders, process managers."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

_LET_THE_JOB = Remedy("let the job start the ranks: remove mpirun and its options from the command")

RULES = (
    Rule(
        id="BAD_LAUNCH_OPTION",
        title="The launcher rejects its command line",
        why="The command line of mpirun, mpiexec or srun has an option that this launcher, or this "
        "version of it, does not know. Options differ between Open MPI, MPICH, Intel MPI and "
        "Slurm.",
        signs=(
            Sign(
                "unrecognized option",
                r"[Aa]n unrecognized option was included on the (?P<launcher>\S+) command line:"
                r" Option: (?P<option>\S+)",
            ),
            Sign(
                "nknown option",
                r"(?P<launcher>mpirun|mpiexec|prterun|prun)[^\n]{0,40}: (?:Error: )?[Uu]nknown option "
                r"(?P<option>[^\n]{1,60})",
            ),
            Sign(
                "expected format:",
                r"does not match the expected format: Option: (?P<option>\S+)(?: Param: (?P<value>\S+))?",
            ),
            Sign(
                "nrecognized argument",
                r"(?:match_arg|mpiexec|mpirun|HYD)[^\n]{0,160}?: [Uu]nrecognized argument (?P<option>\S+)",
            ),
            Sign(
                "unrecognized option",
                r"(?P<launcher>srun|sbatch|salloc|mpirun|mpiexec)\S*: unrecognized option '?(?P<option>[^'\n]{1,60})",
            ),
            Sign(
                "invalid option",
                r"(?P<launcher>srun|sbatch|salloc|mpirun|mpiexec)\S*: invalid option -- '?(?P<option>[^'\n]{1,60})",
            ),
            Sign("was given a value", r"(?P<option>--?[\w-]+) was given a value"),
            Sign(
                "No executable",
                r"No executable was specified on the (?P<launcher>\S+) command line(?P<nothing>)",
            ),
            Sign("find anything to do", r"(?P<launcher>\S+) could not find anything to do(?P<nothing>)"),
            Sign(". Try -h", r"(?P<nothing>)(?:No|Missing) executable(?: provided)?\. Try -h"),
            Sign("no executable specified", r"(?P<nothing>)no executable specified"),
            Sign(
                "is not recognized:",
                r"The specified [^\n]{1,40}(?:policy|directive) is not recognized: (?:Policy|Directive): "
                r"(?P<option>\S+)",
            ),
            Sign(
                "unrecognized qualifier",
                r"contains an unrecognized qualifier: (?:Request|Directive|Qualifier): (?P<option>\S+)",
            ),
            Sign(
                "requires a value",
                r"was given that requires a value[\s\S]{0,80}?(?:Policy|Option): (?P<option>\S+)",
            ),
            Sign(
                "listed more than once",
                r"The \"(?P<option>[^\"\n]{1,60})\" command line option was listed more than once",
            ),
            Sign(
                "Deprecated option:",
                r"Deprecated option: (?P<option>[^\n]{1,60})[\s\S]{0,200}?not able to proceed",
            ),
            Sign(
                "nrecognized",
                r"(?P<detail>[Uu]nrecognized (?:launcher|RMK|sort order|directive|pattern specifier)[^\n]{0,60})",
            ),
            Sign("duplicate setting", r"(?P<detail>duplicate setting: [^\n]{1,60})"),
            Sign(
                "number of processes",
                r"(?P<detail>the number of processes to start was omitted|processes to start was omitted)",
            ),
            Sign(
                "error parsing parameters",
                r"(?P<detail>[^\n]{0,20}\): (?!match handler|argument matching|error parsing|unable to "
                r"parse)[^\n]{4,100})\n[\s\S]{0,900}?error parsing parameters",
            ),
        ),
        causes=(
            "The launcher does not accept {value} for its option {option}.",
            "{launcher} does not know the option {option}.",
            "The launcher does not know the option {option}.",
            "The launcher rejects its command line: {detail}.",
            "The command line of {launcher} names no program to run.{nothing}",
            "The launcher's command line names no program to run.{nothing}",
        ),
        example="mpirun does not know the option --bind-two.",
        remedies=(
            _LET_THE_JOB,
            Remedy("correct the option; mpirun --help lists the options of the MPI in use"),
        ),
        confidence=0.85,
        field="command",
        yields_to=("MPI_FAMILY", "BAD_HOSTFILE", "UNKNOWN_HOST", "BAD_WORKDIR"),
    ),
    Rule(
        id="BAD_HOSTFILE",
        title="The hostfile cannot be read",
        why="The hostfile does not exist, or the launcher cannot parse it. Open MPI expects HOST "
        "slots=N, MPICH and Intel MPI expect HOST:N.",
        signs=(
            Sign("unable to open the hostfile", r"unable to open the hostfile: (?P<path>\S+)"),
            Sign("unable to open host file", r"unable to open host file: (?P<path>\S+)"),
            Sign("no such file, or not a regular", r"\): (?P<path>\S+) no such file, or not a regular file"),
            Sign(
                "in the hostfile:", r"detected a (?:parse error|bad parameter) in the hostfile: (?P<path>\S+)"
            ),
            Sign("unable to process token", r"(?P<detail>unable to process token)"),
            Sign("hostfile parsing error", r"(?P<detail>hostfile parsing error)"),
            Sign("hostfile:", r"A hostfile was provided that contains[\s\S]{0,120}?hostfile: (?P<path>\S+)"),
            Sign("error parsing hostfile", r"(?P<detail>error parsing hostfile)"),
            Sign("token ", r"(?P<detail>token \S+ not supported at this time)"),
            Sign("while parsing", r"(?P<detail>[^\n]{0,60}hostfile[^\n]{0,60}while parsing[^\n]{0,100})"),
            Sign(
                "hostfile",
                r"(?P<detail>(?:ORTE|PRTE|PRRTE|Open RTE) detected a parse error in the "
                r"hostfile:[^\n]{0,80}(?:\n[^\n]{1,120}){0,3})",
            ),
            Sign("Hostfile", r"(?P<detail>Hostfile (?:contains|is not|error)[^\n]{0,160})"),
            Sign(
                "hostfile",
                r"(?P<detail>[Bb]ad hostfile[^\n]{0,160}|Hostfile[^\n]{0,40}not formatted correctly[^\n]{0,100})",
            ),
        ),
        causes=("The hostfile {path} cannot be read.", "The launcher cannot read its hostfile: {detail}"),
        example="The hostfile hosts.txt cannot be read.",
        remedies=(
            Remedy("let mpijob write the hostfile: remove -hostfile or -f from the command"),
            Remedy("{openmpi}: write one line for each host, for example HOST slots=4"),
            Remedy("{mpich}: write one line for each host, as in HOST:4"),
            Remedy("{intel}: write one line for each host, as in HOST:4"),
        ),
        confidence=0.85,
        field="command",
        yields_to=("MPI_FAMILY",),
    ),
    Rule(
        id="BAD_BINDING",
        facts=("daemon-lost-binding",),
        title="The ranks cannot be bound as requested",
        why="The command binds or maps ranks to more cores, sockets or hardware threads than the node "
        "(or the container) has.",
        signs=(
            Sign(
                "per resource (ppr)",
                r"(?P<detail>unrecognized value was given for the number of processes per resource \(ppr\))"
                r"[^\n]{0,40} Value: (?P<target>\S+)",
            ),
            Sign("binding more", r"would result in binding more processes than cpus on a resource"),
            Sign(
                "A request ",
                r"(?P<detail>A request (?:was made|for multiple cpus-per-proc)[^\n]{0,60}bind[^\n]{0,80})",
            ),
            Sign(
                "appropriate target",
                r"A request was made to bind to (?P<target>[^\n,]{1,40}), but an appropriate target could not be found",
            ),
            Sign(
                "to bind",
                r"(?P<detail>A request was made to bind that would require binding processes to more cpus "
                r"than are available)",
            ),
            Sign(
                "cpus per process",
                r"(?P<detail>Your job has requested more cpus per process\(rank\) than there are cpus in a \w+)",
            ),
            Sign(
                "number of CPUs",
                r"(?P<detail>An insufficient number of CPUs was found while attempting to map the job)",
            ),
            Sign("not enough cpus", r"(?P<detail>not enough cpus are available to meet the request)"),
            Sign(
                "no available cpus",
                r"(?P<detail>While computing bindings, we found no available cpus on the following node)",
            ),
            Sign("bindable objects", r"(?P<detail>No bindable objects of the specified type were available)"),
            Sign(
                "objects of the specified",
                r"(?P<detail>No objects of the specified type were found on at least one node)",
            ),
            Sign(
                "tried to bind a new process",
                r"(?P<detail>tried to bind a new process, but (?:process binding is not supported"
                r"|something went wrong))",
            ),
            Sign("failed to map", r"(?P<detail>Your job failed to map[^\n]{0,80})"),
            Sign(
                "object level that",
                r"(?P<detail>a directive was also given to map to an object level that (?:has less cpus "
                r"than requested|cannot support))",
            ),
            Sign(
                "hardware locations",
                r"(?P<detail>attempt to assign hardware locations to processes on a compute node failed)",
            ),
            Sign(
                "than the ppr",
                r"(?P<detail>Your job has requested more processes than the ppr for this topology can support)",
            ),
            Sign("was unable to be bound", r"(?P<detail>[^\n]{0,80}was unable to be bound[^\n]{0,80})"),
            Sign(
                "Setting processor affinity failed",
                r"(?P<detail>Setting processor affinity failed[^\n]{0,60})",
            ),
            Sign("hwloc_set_cpubind", r"(?P<detail>hwloc_set_cpubind returned \"Error\"[^\n]{0,60})"),
            Sign("CPU binding outside", r"(?P<detail>CPU binding outside of job step allocation[^\n]{0,80})"),
        ),
        causes=(
            "MPI's daemon ended before it started a rank, and Open MPI 4 does not report why. The job binds its ranks "
            "({asked_binding}): probably the node has fewer cores than that requires.",
            "The ranks cannot be bound as requested: {detail}",
            "The ranks cannot be bound to {target}: the node has none free.",
            "The node has fewer cores than ranks to bind.",
        ),
        example="The ranks cannot be bound as requested: not enough cpus are available to meet the request",
        remedies=(
            Remedy("turn binding off: --bind-to none", {"launch": {"bind_to": "none"}}),
            Remedy("run fewer ranks on each node, or request more cores: resources.cpu"),
        ),
        confidence=0.85,
        field="launch",
    ),
    Rule(
        id="BAD_WORKDIR",
        title="The ranks' working directory does not exist",
        why="The launcher changes to a directory before it starts a rank. That directory does not exist "
        "on the rank's node: it is on the local disk of the machine from which you submitted, and "
        "not shared with the nodes.",
        signs=(
            Sign(
                "cannot change to",
                r"(?:mpirun|prterun|mpiexec)?[^\n]{0,120}(?:could not|unable to|cannot) change to (?:the "
                r")?(?:working )?directory:? ?[`'\"]?(?P<path>/[^\s'\"`]+)",
            ),
            Sign("Working directory:", r"specified working directory: Working directory: (?P<path>\S+)"),
            Sign("hange wdir to", r"unable to change wdir to (?P<path>\S+)"),
            Sign(
                "working directory",
                r"(?:[Ii]nvalid|wrong|specified|change to) (?:the )?working "
                r"directory:?[\s\S]{0,120}?(?P<path>/[^\s'\"`]+)",
            ),
            Sign("WDir:", r"WDir: (?P<path>/\S+)"),
            Sign("couldn't chdir to", r"couldn't chdir to `(?P<path>[^'\n]+)'"),
        ),
        causes=("The working directory {path} does not exist where the ranks run.",),
        remedies=(
            Remedy("create it on every node: mkdir -p {path}"),
            Remedy("use a directory that all nodes have, such as a volume, or remove working_dir"),
        ),
        confidence=0.85,
        field="working_dir",
    ),
    Rule(
        id="COMPONENT_MISSING",
        title="A selected Open MPI component is not available",
        why="A parameter (--mca, OMPI_MCA_…) selects a transport or another component that this build "
        "of Open MPI does not have, or that does not work on this machine.",
        signs=(
            Sign(
                "requested component was not",
                r"A requested component was not found[\s\S]{0,500}?Framework: (?P<framework>\S+) "
                r"Component: (?P<component>\S+)",
            ),
            Sign(
                "No components were able",
                r"No components were able to be opened in the (?P<needed>\w+) framework",
            ),
            Sign("PML ", r"PML (?P<component>\w+) cannot be selected"),
        ),
        causes=(
            "Open MPI has no usable {framework} component {component}, so no {needed} component can be used either.",
            "Open MPI has no usable {framework} component {component} on this machine.",
            "Open MPI cannot use the component {component} on this machine.",
            "Open MPI has no usable {needed} component on this machine.",
        ),
        remedies=(
            Remedy(
                "let Open MPI choose: set {own_setting} in launch.settings of the job to an empty value",
                {"launch": {"settings": "{emptied_setting}"}},
            ),
            Remedy(
                "let Open MPI choose: empty the job's own variable {own_variable}",
                {"env": "{emptied_variable}"},
            ),
            Remedy("let Open MPI choose: remove --mca {framework} and unset OMPI_MCA_{framework}"),
            Remedy("let Open MPI choose: remove --mca {needed} and unset OMPI_MCA_{needed}"),
            Remedy("let Open MPI choose: remove the --mca options and unset the OMPI_MCA_ variables"),
            Remedy("list the components of this build: ompi_info | grep {framework}"),
        ),
        confidence=0.85,
        field="launch",
        yields_to=("FABRIC_FAILED", "WRONG_WORLD", "LOCKED_MEMORY"),
    ),
    Rule(
        id="NO_SSH",
        title="ssh is not installed where the launcher runs",
        why="To start ranks on other hosts the launcher runs ssh, or the program that is set in a "
        "parameter. That program is not installed where the launcher runs.",
        signs=(
            Sign("agent", r"(?:value|parameter)[\s\S]{0,200}?plm_(?:rsh|ssh)_agent:? (?P<agent>\S+)"),
            Sign("ssh", r"execvp error on file (?P<agent>\S*ssh) "),
            Sign("not found in ", r"(?P<agent>ssh)[^\n]{0,60}not found in (?:the )?PATH"),
        ),
        causes=(
            "{agent} is not installed where the launcher runs; the launcher needs it to reach other hosts.",
        ),
        remedies=(
            Remedy("install openssh-client where the launcher runs, or let the job use its own agent"),
            Remedy("unset plm_rsh_agent, plm_ssh_agent, I_MPI_HYDRA_BOOTSTRAP_EXEC and HYDRA_LAUNCHER_EXEC"),
        ),
        confidence=0.8,
        field="image",
    ),
    Rule(
        id="PMI_MISSING",
        title="srun and the program's MPI support no common PMI",
        why="srun starts ranks through PMI or PMIx. The program's MPI was built without the one that "
        "this Slurm offers, so MPI_Init fails, or each rank runs as rank 0 of 1.",
        signs=(
            Sign(
                "application appears to have been direct launched",
                r"(?P<detail>application appears to have been direct launched using \"?srun\"?)",
            ),
            Sign("PMI support", r"(?P<detail>OMPI was not built with SLURM'?s? PMI support)"),
            Sign(
                "plugin name for mpi",
                r"(?P<detail>Couldn't (?:find|load) (?:the )?specified plugin name for mpi[^\n]{0,100})",
            ),
            Sign("Invalid MPI type", r"(?P<detail>Invalid MPI type[^\n]{0,100})"),
            Sign("load PMIx library", r"(?P<detail>can(?:'t| ?not) load PMIx library)"),
            Sign("PMI server not found", r"(?P<detail>PMI server not found[^\n]{0,80})"),
            Sign("PMI2_Init failed", r"(?P<detail>PMI2_Init failed to (?:intialize|initialize)[^\n]{0,80})"),
            Sign("init failed", r"(?P<detail>PMI2? init failed[^\n]{0,60})"),
            Sign("pmix_init", r"(?P<detail>PMIX?_Init(?: failed|: error)[^\n]{0,80})"),
        ),
        causes=("srun and the program's MPI support no common PMI: {detail}.",),
        remedies=(
            Remedy(
                "select the PMI that both support: srun --mpi=pmix ({openmpi}); srun --mpi=list shows "
                "what Slurm has"
            ),
            Remedy("select the PMI that both support: srun --mpi=pmi2 ({mpich})"),
            Remedy("{intel}: I_MPI_PMI_LIBRARY=/usr/lib64/libpmi2.so and srun --mpi=pmi2"),
            Remedy("start the ranks with mpirun instead of srun"),
        ),
        confidence=0.85,
    ),
    Rule(
        id="MPI_VERSIONS",
        title="Launcher and ranks have different versions of the same MPI",
        why="Launcher and ranks exchange messages whose format differs between versions. One of them "
        "cannot read what the other sent: two versions are installed, the nodes differ, or the "
        "versions in the container and on its host differ.",
        signs=(
            Sign(
                "read past end",
                r"(?P<detail>Data unpack would read past end of buffer in file (?!\S*show_help)\S+)",
            ),
            Sign("UNPACK-", r"(?P<detail>PMIX ERROR: UNPACK-[A-Z-]+[^\n]{0,80})"),
            Sign(
                "PMIX ERROR: ",
                r"(?P<detail>PMIX ERROR: (?:NOT-SUPPORTED|PMIX TEMPORARILY UNAVAILABLE"
                r"|UNREACHABLE) in file [^\n]{0,80})",
            ),
            Sign(
                "ersion mismatch",
                r"(?P<detail>(?:PMIx|PRTE|ORTE|Open MPI)[^\n]{0,60}[Vv]ersion mismatch[^\n]{0,80})",
            ),
            Sign("opal_value_t", r"(?P<detail>opal_value_t[^\n]{0,80}version[^\n]{0,60})"),
        ),
        causes=("Launcher and ranks have different versions of MPI: {detail}.",),
        remedies=(
            Remedy("use one version everywhere: compare mpirun --version in the launcher and on a worker"),
            Remedy("keep only one MPI on PATH and LD_LIBRARY_PATH"),
        ),
        confidence=0.7,
        yields_to=("*",),
        field="image",
    ),
)
