"""containerd, and the store of images that it starts with.

Importing and unpacking the images takes longer than starting everything else. So it is done once: the store
that results is kept in the cache, and every cluster starts with a copy whose files are hard links.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from testbed import images, isolation, oci, packages, places, processes
from testbed.shell import TestBedError, run, say, succeeds, wait_for

_CONFIG = """\
version = 2
root = "{root}"
state = "{run}/containerd-state"
oom_score = 0 # a lower one needs CAP_SYS_RESOURCE, which a machine may lack; so do the settings of the pods

[grpc]
  address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{run}/registries"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{run}/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
_NO_REGISTRY = """\
server = "http://127.0.0.1:{port}"

[host."http://127.0.0.1:{port}"]
  capabilities = ["pull", "resolve"]
"""
# What an image must be able to do, as the user that a strict cluster gives it.
_PROOF_OF_MPI = (
    "mpirun --version && python -c 'import numpy; from mpi4py import MPI; print(MPI.Get_library_version())'"
)
_PROOF_OF_REMOVAL = "mpirun --version && for file in $REMOVED; do test ! -e /$file; done"


def start_holder() -> None:
    """Start the registry without images, the first process of the node, and link the node to this machine."""
    ready = places.run_state() / "registry.ready"
    script = places.SOURCES / "registry.py"
    processes.start_holder(sys.executable, "-I", script, str(places.REGISTRY_PORT), ready)

    def serves() -> bool:
        processes.check(processes.HOLDER)
        return ready.exists()

    wait_for("the node's registry", serves, seconds=20, pause=0.05)
    isolation.connect(processes.process_id(processes.HOLDER))


def make_store_when_missing() -> None:
    """Import every image once, prove the MPI images, and keep the result in the cache."""
    if _kept_store().is_dir():
        return
    made = images.make()
    say("importing the images; this is done once")
    start()
    wait_until_up()
    for image in made:
        import_image(image)
    for workload in images.WORKLOADS:
        _prove(workload)
    processes.stop("containerd")
    for old in places.cache().glob("store-*"):
        shutil.rmtree(old)
    _keep_store()


def start() -> None:
    """Start containerd on the store in the run state; `wait_until_up` waits for it."""
    run_state = places.run_state()
    config = run_state / "containerd.toml"
    config.write_text(
        _CONFIG.format(
            run=run_state,
            root=_store(),
            socket=places.containerd_socket(),
            pause=images.PAUSE,
            cni=packages.cni_folder(),
        )
    )
    registries = run_state / "registries" / "_default"
    registries.mkdir(parents=True, exist_ok=True)
    (registries / "hosts.toml").write_text(_NO_REGISTRY.format(port=places.REGISTRY_PORT))
    _write_network()
    processes.start("containerd", "containerd", "--config", config)


def wait_until_up() -> None:
    """Wait until containerd answers."""

    def answers() -> bool:
        processes.check("containerd")
        return succeeds(*_ctr("version"))

    wait_for("an answer of containerd", answers, seconds=60)


def copy_store() -> None:
    """Give a new cluster the store of the cache: hard links, but databases of its own."""
    kept = _kept_store()
    try:
        run("cp", "--archive", "--link", kept, _store(), timeout_seconds=300)
    except TestBedError:  # another filesystem: copy then
        shutil.rmtree(_store(), ignore_errors=True)
        run("cp", "--archive", kept, _store(), timeout_seconds=900)
    for database in kept.rglob("*.db"):
        ours = _store() / database.relative_to(kept)
        if not ours.is_relative_to(_store() / "io.containerd.snapshotter.v1.overlayfs" / "snapshots"):
            ours.unlink()
            shutil.copy2(database, ours)


def _write_network() -> None:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": places.NODE_POD_CIDR}]],
            "dataDir": str(places.run_state() / "cni-addresses"),
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
    folder = places.run_state() / "cni"
    folder.mkdir(exist_ok=True)
    (folder / "10-bridge.conflist").write_text(json.dumps(network, indent=1))


def import_image(image: oci.Image) -> None:
    """Give an image to the container runtime, in place of one of the same name."""
    with tempfile.TemporaryDirectory(dir=places.run_state()) as temporary:
        archive = Path(temporary) / "image.tar"
        oci.write_archive(image, archive, images.ARCHITECTURE)
        run(*_ctr("images", "import", archive), timeout_seconds=600)


def export_image(name: str, archive: Path) -> None:
    """Write an image that the container runtime has as an OCI archive."""
    run(*_ctr("images", "export", archive, name), timeout_seconds=300)


def _prove(workload: images.Workload) -> None:
    """Run MPI and mpi4py in an image, as an ordinary user with no entry in its passwd."""
    script = _PROOF_OF_REMOVAL if workload.removed else _PROOF_OF_MPI
    # An empty cgroup path leaves the container where containerd is.
    container = (
        "run",
        "--rm",
        "--cgroup",
        "",
        "--env",
        "HOME=/tmp",
        "--env",
        f"REMOVED={' '.join(workload.removed)}",
    )
    as_somebody = ("setpriv", "--reuid=1000660000", "--regid=0", "--clear-groups")
    shell = ("sh", "-euc", script)
    said = run(*_ctr(*container, workload.image, "proof", *as_somebody, *shell), timeout_seconds=120)
    say(f"{workload.image}: {said.strip().splitlines()[-1]}")


def _keep_store() -> None:
    unfinished = places.cache() / "unfinished-store"
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.move(_store(), unfinished)
    unfinished.rename(_kept_store())


def _kept_store() -> Path:
    return places.cache() / f"store-{images.key()}"


def _store() -> Path:
    return places.run_state() / "containerd"


def _ctr(*words: str | Path) -> tuple[str | Path, ...]:
    return processes.inside("ctr", f"--address={places.containerd_socket()}", "--namespace=k8s.io", *words)
