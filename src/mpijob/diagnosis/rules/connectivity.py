"""Causes on the way from the launcher to the workers: names, connections, keys, helpers."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign, Trust

RULES = (
    Rule(
        id="UNKNOWN_HOST",
        title="The launcher does not find a worker by its name",
        why="The hostfile names a worker that nobody knows: it was never started, it is gone, or its name is "
        "written in another way than the network knows it.",
        signs=(
            Sign(
                "Could not resolve hostname",
                r"Could not resolve hostname (?P<host>\S+?): (?:Name or service not "
                r"known|Temporary failure in name resolution|No address|nodename nor servname)",
            ),
            Sign("Couldn't resolve", r"Couldn't resolve (?P<host>\S+)"),
            Sign("cannot reach worker", r"cannot reach worker (?P<host>\S+): No such file or directory"),
            Sign("get host address for", r"unable to get host address for (?P<host>\S+)"),
            Sign("unable to connect from", r"unable to connect from \"[^\"\n]+\" to \"(?P<host>[^\"\n]+)\" \((?:Unknown host"
                 r"|Name or service|Host name lookup)"),
            Sign(
                "getaddrinfo",
                r"getaddrinfo[^\n]{0,60} (?P<host>[\w.-]+)[^\n]{0,20}(?:Name or service not known|Temporary failure)",
            ),
            Sign("unknown worker", r"unknown worker (?P<host>\S+)"),
            Sign("DNS has no address", r"DNS has no address for (?P<host>\S+) after"),
        ),
        causes=("The launcher does not find the worker {host}.",),
        remedies=(
            Remedy("let the job write the hostfile: leave out a -host, -hostfile or -f of your own"),
            Remedy("see whether the worker is up: mpijob get JOB"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="CONNECTION_REFUSED",
        title="A worker does not accept connections",
        why="The worker's machine answers, but nothing listens on the port: its ssh server or start agent "
        "has not started, listens on another port, or has ended.",
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
            Sign("connect error", r"HYDU_sock_connect[^\n]{0,40}: connect error \((?P<refused>Connection refused)\)"),
        ),
        causes=(
            "Nothing answers on {host}, port {port}.",
            "The worker {host} does not accept connections.",
            "MPI's helper process on a worker does not accept connections ({refused}).",
        ),
        remedies=(
            Remedy("see why it did not come up: mpijob logs JOB --role worker"),
            Remedy("let the workers' start command be the job's own; one of yours must start the ssh server"),
            Remedy("compare the port of the server with the launcher's"),
        ),
        confidence=0.95,
        yields_to=("NETWORK_BLOCKED",),
    ),
    Rule(
        id="NETWORK_BLOCKED",
        title="Packets to a worker are dropped",
        why="The connection got no answer at all, not even a refusal: a firewall or a network policy in "
        "between, or an address that is not routed. Some policies refuse instead: the worker's server answers "
        "on its own machine, and from the launcher's it is refused.",
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
        example="MPI communication failure - check NetworkPolicies: HOST, port PORT gave no answer.",
        causes=(
            "MPI communication failure - check NetworkPolicies: {host} is up and port {refused_port} is refused.",
            "MPI communication failure - check NetworkPolicies: {host}, port {port} gave no answer.",
            "MPI communication failure - check NetworkPolicies: {host} gave no answer on its ssh port.",
        ),
        remedies=(Remedy("allow traffic between the launcher and all workers, in both directions"),),
        confidence=0.85,
    ),
    Rule(
        id="MPI_UNREACHABLE",
        title="Ranks can start but cannot talk to each other",
        why="The launcher reached every worker, but the ranks' own connections do not work: they use other "
        "ports and sometimes another network interface.",
        signs=(
            Sign(
                "unable to reach each other",
                r"At least one pair of MPI processes are unable to reach each other",
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
            Sign("unexpected process identifier", r"btl_tcp_endpoint[^\n]{0,100}received unexpected process identifier"),
            Sign(
                "inbound MPI TCP", r"inbound MPI TCP connection request from a peer [\s\S]{0,200}?unexpected"
            ),
        ),
        causes=(
            "A rank cannot connect to {host}: {detail}.",
            "MPI communication failure - check NetworkPolicies: {host} cannot be reached by TCP.",
            "MPI communication failure - check NetworkPolicies",
        ),
        remedies=(
            Remedy(
                "Check if InfiniBand network is available. Fall back to TCP communication by setting "
                "`MPI_FLAGS=--mca btl tcp,self`",
                {"launch": {"settings": {"btl": "tcp,self"}}},
            ),
            Remedy("allow all TCP ports between the workers"),
            Remedy(
                "with several network interfaces, name the right one",
                {"launch": {"settings": {"btl_tcp_if_include": "eth0"}}},
            ),
        ),
        confidence=0.85,
        yields_to=(
            "MPI_ABORT",
            "MEMORY_LIMIT",
            "OOM_KILLED",
            "SEGFAULT",
            "WORKER_LOST",
        ),  # then the peer is gone
    ),
    Rule(
        id="HOST_KEY",
        title="A worker's ssh key is not known",
        why="ssh compares the worker's key with a list and found none, or another one: the worker was made "
        "anew, or the launcher's ssh settings ask for strict checking.",
        signs=(
            Sign(
                "Host key verification failed",
                r"(?:host key is known for (?P<host>\S+) and[\s\S]{0,120}?)?Host key verification failed",
            ),
        ),
        causes=("ssh did not accept the key of {host}.", "ssh did not accept the key of a worker."),
        remedies=(
            Remedy("let the job make its own keys: no ssh settings of your own in the image"),
            Remedy("in an image of your own: StrictHostKeyChecking no, for the workers only"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="PERMISSION_DENIED",
        title="ssh rejects the launcher's key",
        why="The worker's ssh server did not accept the launcher's key: another key, a key file that others "
        "may read, or a user that the image does not know.",
        signs=(
            Sign(
                "Permission denied (",
                r"(?:\S+@(?P<host>[^\s:]+): )?Permission denied \((?:publickey|password|keyboard)",
            ),
            Sign("UNPROTECTED PRIVATE KEY", r"UNPROTECTED PRIVATE KEY FILE"),
            Sign("Load key", r"Load key [^\n]{1,120}: (?:bad permissions|invalid format|error in libcrypto)"),
            Sign("by PAM account", r"denied for user \S+ by PAM account configuration"),
        ),
        causes=("ssh on {host} did not accept the launcher's key.", "ssh did not accept the launcher's key."),
        remedies=(
            Remedy("let the job make its own keys, and mount them where the running user's home is"),
            Remedy("the key file must be readable by its owner only: chmod 600"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="SSH_USER",
        title="The user that a pod runs as has no account in the image",
        why="ssh and Open MPI look the user up by its number. On OpenShift every namespace has numbers of its own, "
        "which no image can know; the entry is then missing from /etc/passwd.",
        signs=(
            Sign("No user exists for uid", r"No user exists for uid (?P<uid>\d+)"),
            Sign("is unknown to the system", r"The user \((?P<uid>\d+)\) is unknown to the system"),
        ),
        causes=("The user number {uid} has no account in the image.",),
        remedies=(
            Remedy(
                "set HOME, so that the container runtime adds the entry",
                {"env": {"HOME": "/tmp"}},  # noqa: S108 - the pod's own
            ),
            Remedy("let the job's own start script run: it makes the entry without rights on /etc/passwd"),
            Remedy("never make /etc/passwd writable for the group: anybody in the pod could become root"),
        ),
        confidence=0.95,
    ),
    Rule(
        id="SSHD_FAILED",
        title="A worker's ssh server cannot start",
        why="The server wants rights that the pod's security policy does not give: the port 22, a change of root, a "
        "capability on its file, keys of the host, or a directory that it may write.",
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
                "let the workers' start command be the job's own: it runs sshd as an ordinary user on port 2222"
            ),
            Remedy("in an image of your own: no setcap on sshd, or add NET_BIND_SERVICE to the pods"),
            Remedy("let /tmp or the home directory be writable"),
        ),
        confidence=0.9,
        field="image",
    ),
    Rule(
        id="SSH_CUT_OFF",
        title="Something cut the ssh connection before it was made",
        why="The connection was accepted and closed at once. A proxy in between does that (an Istio sidecar that does "
        "not know ssh), and so does an ssh server that gets more connections at once than MaxStartups allows.",
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
            "An Istio sidecar ({sidecar}) cut the ssh connection to {host}.",
            "The ssh connection to {host} was cut before it was made.",
            "An ssh connection to a worker was cut before it was made: by a proxy, or by a server that has too many.",
        ),
        remedies=(
            Remedy(
                "keep the mesh's sidecar out of the job's pods",
                {"labels": {"sidecar.istio.io/inject": "false"}},
            ),
            Remedy("in an image of your own: MaxStartups 200 in sshd_config of the workers"),
            Remedy("see what the worker said: mpijob logs JOB --role worker"),
        ),
        confidence=0.8,
    ),
    Rule(
        id="SSH_FAILED",
        title="ssh could not reach a worker, and its words were not passed on",
        why="Intel MPI's launcher keeps what ssh says to itself and reports only its exit code: 65280 is 255, which "
        "ssh uses for its own failures alone. So the helper was never started; whether the name, the port or the "
        "key was wrong, only ssh itself can say.",
        trust=Trust.CAUSE,
        signs=(
            Sign(
                "nable to run",
                r"[Uu]nable to run (?:bstrap_proxy|proxy) on (?P<host>\S+) \(pid \d+, exit code 65280\)",
            ),
        ),
        causes=("ssh from the launcher to {host} failed; Intel MPI does not pass on why.",),
        remedies=(
            Remedy("ask ssh itself, in the launcher: ssh {host} true"),
            Remedy("see whether the worker's server came up: mpijob logs JOB --role worker"),
            Remedy("let the job make its own keys and hostfile: no ssh settings of your own in the image"),
        ),
        confidence=0.8,
        yields_to=(
            *("UNKNOWN_HOST", "CONNECTION_REFUSED", "NETWORK_BLOCKED", "HOST_KEY", "PERMISSION_DENIED"),
            *("SSH_USER", "SSHD_FAILED", "SSH_CUT_OFF", "WORKER_LOST", "NO_SSHD", "NO_KEY"),
        ),
    ),
    Rule(
        id="DAEMON_NOT_STARTED",
        title="MPI's helper process did not start on a worker",
        why="The launcher could not start its helper on a worker, or the helper could not connect back. The "
        "launcher's report does not say why; the first line of ssh or of the loader above it does, if there "
        "is one.",
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
            "The launcher could not start its helper on {host}.",
            "The launcher could not start its helper on a worker.",
        ),
        remedies=(
            Remedy("see what the worker said: mpijob logs JOB --role worker"),
            Remedy("the same MPI must be on launcher and workers, at the same path"),
            Remedy(
                "without an error above: the worker cannot connect back; allow worker-to-launcher traffic"
            ),
        ),
        confidence=0.5,
    ),
)
