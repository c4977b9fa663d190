"""Causes on the way from the launcher to the workers: names, connections, keys, helpers."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="UNKNOWN_HOST",
        title="A host name does not resolve",
        why="The name of a host does not resolve: the worker is not started yet or has ended, the name "
        "is misspelt, or it is in neither DNS nor /etc/hosts.",
        signs=(
            Sign(
                "Could not resolve hostname",
                r"Could not resolve hostname (?P<host>\S+?): (?:Name or service not "
                r"known|Temporary failure in name resolution|No address|nodename nor servname)",
            ),
            Sign("Couldn't resolve", r"Couldn't resolve (?P<host>\S+)"),
            Sign("cannot reach worker", r"cannot reach worker (?P<host>\S+): No such file or directory"),
            Sign("get host address for", r"unable to get host address for (?P<host>\S+)"),
            Sign(
                "unable to connect from",
                r"unable to connect from \"[^\"\n]+\" to \"(?P<host>[^\"\n]+)\" \((?:Unknown host"
                r"|Name or service|Host name lookup)",
            ),
            Sign(
                "getaddrinfo",
                r"getaddrinfo[^\n]{0,60} (?P<host>(?!(?:returned|error)\b)[A-Za-z][\w.-]*)[^\n]{0,20}"
                r"(?:Name or service not known|Temporary failure)",
            ),
            Sign(
                "getaddrinfo returned error",
                r"getaddrinfo returned error -\d+ [^\n]{0,80}\n[^\n]{0,300}connect to server (?P<host>\S+) at port",
            ),
            Sign("unknown worker", r"unknown worker (?P<host>\S+)"),
            Sign("DNS has no address", r"DNS has no address for (?P<host>\S+) after"),
        ),
        causes=("The host name {host} does not resolve.",),
        remedies=(
            Remedy("let mpijob write the hostfile: remove -host, -hostfile or -f from the command"),
            Remedy("check the worker's state: mpijob get JOB"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="CONNECTION_REFUSED",
        title="A worker refuses connections",
        why="The worker's machine responds, but nothing listens on the port: its ssh server or start "
        "agent has not started, listens on another port, or has ended.",
        signs=(
            Sign(
                "Connection refused", r"connect to host (?P<host>\S+) port (?P<port>\d+): Connection refused"
            ),
            Sign("Connection refused", r"cannot reach worker (?P<host>\S+): Connection refused"),
            Sign(
                "unable to connect from",
                r"unable to connect from \"[^\"\n]+\" to \"(?P<host>[^\"\n]+)\" \(Connection refused\)"
                r"(?:[\s\S]{0,200}?at port (?P<port>\d+))?",
            ),
            Sign(
                "connect error",
                r"HYDU_sock_connect[^\n]{0,40}: connect error \((?P<refused>Connection refused)\)",
            ),
        ),
        causes=(
            "{host} refuses connections on port {port}: no process listens there.",
            "{host} refuses connections: no process listens there.",
            "MPI's daemon on a worker refuses connections ({refused}).",
        ),
        remedies=(
            Remedy("see why its server did not start: mpijob logs JOB --role worker"),
            Remedy("use the job's own start command for the workers; a custom one must start the ssh server"),
            Remedy("check that the server listens on the port that the launcher uses"),
        ),
        confidence=0.95,
        yields_to=("NETWORK_BLOCKED",),
    ),
    Rule(
        id="NETWORK_BLOCKED",
        title="Packets to a worker are dropped",
        why="The connection got no answer, not even a refusal: a firewall or a network policy drops the "
        "packets, or there is no route. Some policies reject connections instead: the worker's ssh "
        "server responds on its own machine, but refuses the connection from the launcher.",
        facts=("refused-though-ready",),
        signs=(
            Sign(
                "connect to host",
                r"connect to host (?P<host>\S+) port (?P<port>\d+): (?:Connection timed out|Operation "
                r"timed out|No route to host)",
            ),
            Sign(
                "unable to connect from",
                r"unable to connect from \"[^\"\n]+\" to \"(?P<host>[^\"\n]+)\" \((?:Connection timed out|No route to "
                r"host)\)(?:[\s\S]{0,200}?at port (?P<port>\d+))?",
            ),
            Sign(
                "did not answer on its ssh port",  # and ssh said nothing: else its words tell more
                r"worker (?P<host>\S+) did not answer on its ssh port(?: within \d+ s)?$",
            ),
        ),
        example="MPI communication failure - check NetworkPolicies: HOST, port PORT did not respond.",
        causes=(
            "MPI communication failure - check NetworkPolicies: {host} is up and port {refused_port} is refused.",
            "MPI communication failure - check NetworkPolicies: {host}, port {port} did not respond.",
            "MPI communication failure - check NetworkPolicies: {host} did not respond on its ssh port.",
        ),
        remedies=(Remedy("allow traffic between the launcher and all workers, in both directions"),),
        confidence=0.85,
    ),
    Rule(
        id="MPI_UNREACHABLE",
        title="Ranks started but cannot connect to each other",
        why="The launcher reaches every worker, but the ranks' own connections fail: they use other "
        "ports and sometimes another network interface.",
        signs=(
            Sign(
                "unable to reach each other",
                r"At least one pair of MPI processes are unable to reach each other",
            ),
            Sign(
                "invalid value was given for",
                r"An invalid value was given for (?P<parameter>\w*_if_(?:include|exclude))\.[\s\S]{0,160}?"
                r"Local host: (?P<on>\S+) Value: (?P<interface>\S+) Message: (?P<said>[^\n]{4,80})"
                r"(?=[\s\S]{0,6000}?(?:unable to reach each other|MPI_INIT failed))",
            ),
            Sign(
                "complete a TCP connection",
                r"was unable to complete a TCP connection to another process:"
                r"(?: Local host: \S+ Remote host: (?P<host>\S+))?",
            ),
            Sign(
                "TCP connect to a peer",
                r"failed to TCP connect to a peer MPI process(?:[\s\S]{0,400}?connect\(\) to (?P<host>\S+) failed"
                r"(?: Error: (?P<detail>[^\n(]{4,60}?) \(\d+\))?)?",
            ),
            Sign(
                "btl_tcp_endpoint",
                r"btl_tcp_endpoint[^\n]{0,100}connect\(\) to (?P<host>\S+) failed: (?P<detail>[^\n(]{4,60}?) ?\(\d+\)",
            ),
            Sign(
                "unexpected process identifier",
                r"btl_tcp_endpoint[^\n]{0,100}received unexpected process identifier",
            ),
            Sign(
                "inbound MPI TCP", r"inbound MPI TCP connection request from a peer [\s\S]{0,200}?unexpected"
            ),
        ),
        example="MPI communication failure - check NetworkPolicies: HOST cannot be reached by TCP.",
        causes=(
            "The ranks cannot reach each other: {on} has no network interface {interface}, which {parameter} "
            "selects ({said}).",
            "A rank cannot connect to {host}: {detail}.",
            "MPI communication failure - check NetworkPolicies: {host} cannot be reached by TCP.",
            "MPI communication failure - check NetworkPolicies",
        ),
        remedies=(
            Remedy(
                "let Open MPI choose the interface: set {own_setting} in launch.settings of the job "
                "to an empty value",
                {"launch": {"settings": "{emptied_setting}"}},
            ),
            Remedy(
                "let Open MPI choose the interface: empty the job's own variable {own_variable}",
                {"env": "{emptied_variable}"},
            ),
            Remedy(
                "let Open MPI choose the interface: remove {parameter}, or set one that exists on every node"
            ),
            Remedy(
                "Check if InfiniBand network is available. Fall back to TCP communication by setting "
                "`MPI_FLAGS=--mca btl tcp,self`",
                {"launch": {"settings": {"btl": "tcp,self"}}},
            ),
            Remedy("allow all TCP ports between the workers"),
            Remedy(
                "with several network interfaces, select the right one",
                {"launch": {"settings": {"btl_tcp_if_include": "eth0"}}},
            ),
        ),
        confidence=0.85,
        yields_to=(
            "MPI_ABORT",
            "MEMORY_LIMIT",
            "OOM_KILLED",
            "SEGFAULT",
            "WORKER_LOST",  # of these, the peer is gone
            "LOCKED_MEMORY",
        ),
    ),
    Rule(
        id="HOST_KEY",
        title="ssh does not trust a worker's host key",
        why="ssh checks the worker's host key against known_hosts. The key is missing there, or it "
        "changed because the worker was recreated, and the launcher uses strict host key checking.",
        signs=(
            Sign(
                "Host key verification failed",
                r"(?:host key is known for (?P<host>\S+) and[\s\S]{0,120}?)?Host key verification failed",
            ),
        ),
        causes=("ssh does not trust the host key of {host}.", "ssh does not trust the host key of a worker."),
        remedies=(
            Remedy("let mpijob create the SSH keys: remove custom ssh settings from the image"),
            Remedy("in a custom image: StrictHostKeyChecking no, for the workers only"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="PERMISSION_DENIED",
        title="ssh rejects the launcher's key",
        why="The worker's ssh server does not accept the launcher's key: it is a different key, its file "
        "is readable by other users, or the image does not have the user.",
        signs=(
            Sign(
                "Permission denied (",
                r"(?:\S+@(?P<host>[^\s:]+): )?Permission denied \((?:publickey|password|keyboard)",
            ),
            Sign("UNPROTECTED PRIVATE KEY", r"UNPROTECTED PRIVATE KEY FILE"),
            Sign("Load key", r"Load key [^\n]{1,120}: (?:bad permissions|invalid format|error in libcrypto)"),
            Sign("by PAM account", r"denied for user \S+ by PAM account configuration"),
        ),
        causes=(
            "The ssh server on {host} rejects the launcher's key.",
            "The ssh server of a worker rejects the launcher's key.",
        ),
        remedies=(
            Remedy(
                "let mpijob create the SSH keys, and mount them in the home directory of the user "
                "that runs the pods"
            ),
            Remedy("make the key file readable by its owner only: chmod 600"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="SSH_USER",
        title="The user ID of the pod has no account in the image",
        why="ssh and Open MPI look up the user ID in /etc/passwd. On OpenShift every namespace has its "
        "own range of user IDs, which an image cannot contain.",
        signs=(
            Sign("No user exists for uid", r"No user exists for uid (?P<uid>\d+)"),
            Sign("is unknown to the system", r"The user \((?P<uid>\d+)\) is unknown to the system"),
        ),
        causes=("The user ID {uid} has no account in the image.",),
        remedies=(
            Remedy(
                "set HOME, so that the container runtime adds the entry",
                {"env": {"HOME": "/tmp"}},  # noqa: S108 - the pod's own
            ),
            Remedy(
                "use the job's own start script: it provides the entry without write permission on "
                "/etc/passwd"
            ),
            Remedy("do not make /etc/passwd group-writable: every process in the pod could become root"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="SSHD_FAILED",
        title="A worker's ssh server cannot start",
        why="The server needs permissions that the pod's security policy does not grant: port 22, "
        "chroot, a file capability, host keys, or a writable directory.",
        signs=(
            Sign("/run/sshd", r"(?P<detail>chroot\(\"/run/sshd\"\): Operation not permitted)"),
            Sign(
                "privilege separation directory",
                r"(?P<detail>Missing privilege separation directory[^\n]{0,60})",
            ),
            Sign("no hostkeys available", r"(?P<detail>no hostkeys available)"),
            Sign("Bind to port", r"(?P<detail>Bind to port \d+ on \S+ failed[^\n]{0,60})"),
            Sign("sshd:", r"sshd: (?P<detail>[Oo]peration not permitted)"),
        ),
        causes=(
            "The ssh server of {whom} cannot start: {detail}.",
            "A worker's ssh server cannot start: {detail}.",
        ),
        example="The ssh server of worker 1 cannot start: Bind to port 22 on 0.0.0.0 failed.",
        remedies=(
            Remedy(
                "use the job's own start command for the workers: it runs sshd as an ordinary user on "
                "port 2222"
            ),
            Remedy("in a custom image: remove setcap from sshd, or add NET_BIND_SERVICE to the pods"),
            Remedy("make /tmp or the home directory writable"),
        ),
        confidence=0.9,
        field="image",
    ),
    Rule(
        id="SSH_CUT_OFF",
        title="The ssh connection was closed during the handshake",
        why="The connection was accepted and closed immediately. A proxy in between does that (an Istio "
        "sidecar without support for ssh), and an ssh server that gets more simultaneous connections "
        "than MaxStartups allows.",
        facts=("cut-by-sidecar",),
        signs=(
            Sign(
                "exchange_identification",
                r"(?:kex|ssh)_exchange_identification: (?:read: )?(?:Connection (?:reset|closed) by (?:peer|remote "
                r"host)|Connection reset|client sent invalid protocol)",
            ),
            Sign(
                "disconnect/reset before headers",
                r"upstream connect error or disconnect/reset before headers",
            ),
        ),
        causes=(
            "An Istio sidecar ({sidecar}) closed the ssh connection to {host}.",
            "The ssh connection to {host} was closed during the handshake.",
            "An ssh connection to a worker was closed during the handshake: by a proxy, or by a "
            "server with too many connections.",
        ),
        remedies=(
            Remedy(
                "disable the mesh's sidecar in the job's pods",
                {"labels": {"sidecar.istio.io/inject": "false"}},
            ),
            Remedy("in a custom image: MaxStartups 200 in sshd_config of the workers"),
            Remedy("read the worker's log: mpijob logs JOB --role worker"),
        ),
        confidence=0.8,
    ),
    Rule(
        id="SSH_FAILED",
        title="ssh to a worker failed",
        why="The daemon on the worker was never started. The user's login shell there refuses logins "
        "(nologin), or ssh itself failed: Intel MPI's launcher hides the output of ssh and reports "
        "only its exit code, 65280, which is 255. Only the output of ssh shows whether the name, the "
        "port or the key is wrong.",
        trust=Trust.CAUSE,
        signs=(
            Sign(
                "nable to run",
                r"[Uu]nable to run (?:bstrap_proxy|proxy) on (?P<host>\S+) \(pid \d+, exit code 65280\)",
            ),
            Sign("This account is", r"(?P<shell>This account is currently not available)"),
        ),
        causes=(
            "ssh from the launcher to {host} failed; Intel MPI does not show the reason.",
            "ssh to a worker failed: the user's login shell there refuses logins ({shell}).",
        ),
        remedies=(
            Remedy("run ssh yourself where the launcher runs: ssh {host} true"),
            Remedy("check that the worker's server started: mpijob logs JOB --role worker"),
            Remedy(
                "let mpijob create the SSH keys and the hostfile: remove custom ssh settings from the image"
            ),
        ),
        confidence=0.8,
        yields_to=(
            *("UNKNOWN_HOST", "CONNECTION_REFUSED", "NETWORK_BLOCKED", "HOST_KEY", "PERMISSION_DENIED"),
            *("SSH_USER", "SSHD_FAILED", "SSH_CUT_OFF", "WORKER_LOST", "NO_SSHD", "NO_KEY"),
        ),
    ),
    Rule(
        id="DAEMON_NOT_STARTED",
        title="MPI's daemon did not start on a worker",
        why="The launcher could not start its daemon on a worker, or the daemon could not connect back. "
        "The launcher's report does not contain the reason; a line from ssh or the loader above it "
        "may.",
        trust=Trust.GENERIC,
        signs=(
            Sign(
                "nable to run",
                r"[Uu]nable to run (?:bstrap_proxy|proxy) on (?P<host>\S+)",
            ),
            Sign(
                "daemon failed to report back",
                r"A daemon failed to report back after being spawned"
                r"(?:[\s\S]{0,500}?Remote host: (?P<host>\S+))?",
            ),
            Sign("unable to reliably start", r"was unable to reliably start one or more daemons"),
            Sign("unexpectedly failed after", r"daemon has unexpectedly failed after launch"),
            Sign("Launch proxy failed", r"Launch proxy failed"),
        ),
        causes=(
            "The launcher could not start its daemon on {host}.",
            "The launcher could not start its daemon on a worker.",
        ),
        remedies=(
            Remedy("read the worker's log: mpijob logs JOB --role worker"),
            Remedy("install the same MPI on launcher and workers, in the same path"),
            Remedy(
                "if there is no error above: the worker cannot connect back; allow traffic from the "
                "workers to the launcher"
            ),
        ),
        confidence=0.5,
    ),
)
