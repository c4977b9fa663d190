"""The kubelet, kube-proxy, the enforcer of NetworkPolicies and DNS: what makes the machine a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed import build, images, pki, places, processes
from testbed.control_plane import component
from testbed.kubectl import apply_ours, get, has_condition, kubectl
from testbed.shell import retry, wait_for

_FAKE_GPUS = "8"


def start() -> None:
    """Start the kubelet and kube-proxy."""
    run_state = places.run_state()
    resolver = run_state / "resolv.conf"
    resolver.touch()
    processes.start(
        "kubelet",
        component("kubelet"),
        f"--config={_write('kubelet.json', _kubelet(resolver))}",
        f"--kubeconfig={pki.component_config('kubelet')}",
        f"--root-dir={run_state / 'kubelet'}",
        f"--hostname-override={places.NODE}",
        f"--node-ip={places.NODE_IP}",
        "--v=1",
    )
    proxy = _write("kube-proxy.json", _proxy())
    processes.start("kube-proxy", component("kube-proxy"), f"--config={proxy}", "--v=1")


def finish() -> None:
    """Wait for the node, give it GPUs that exist on paper, and start what needs a node."""
    wait_for("a ready node", _node_is_ready, seconds=120)
    apply_ours("kube-router")
    processes.start("kube-router", build.binary("kube-router"), *_kube_router_flags())
    retry("giving the node GPUs", _give_gpus, seconds=30)
    apply_ours("dns", image=images.name_of("coredns"), address=places.DNS_IP)


def wait_for_dns() -> None:
    """Wait until names of services can be looked up."""
    kubectl("--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")


def _node_is_ready() -> bool:
    for name in ("kubelet", "kube-proxy", "containerd"):
        processes.check(name)
    return has_condition("node", places.NODE, condition="Ready")


def _give_gpus() -> None:
    """Add an extended resource without a device behind it: scheduling and quotas are real, the GPU is not."""
    amounts = {"nvidia.com/gpu": _FAKE_GPUS}
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    kubectl("patch", "node", places.NODE, "--subresource=status", "--type=merge", f"--patch={patch}")
    kubectl("label", "node", places.NODE, "mpijob.dev/no-devices=true", "--overwrite")
    assert get("node", places.NODE)["status"]["allocatable"]["nvidia.com/gpu"] == _FAKE_GPUS


def _kubelet(resolver: Path) -> dict[str, Any]:
    folder = places.pki()
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": places.NODE_IP,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{folder}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{folder}/kubelet-serving.crt",
        "tlsPrivateKeyFile": f"{folder}/kubelet-serving.key",
        "containerRuntimeEndpoint": f"unix://{places.containerd_socket()}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{places.NAME}",
        "failCgroupV1": False,
        "cpuCFSQuota": False,  # the small pods of tests start as quickly as two cores let them; shares still hold
        "clusterDNS": [places.DNS_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolver),
        "podLogsDir": f"{places.run_state()}/pod-logs",
        "volumePluginDir": f"{places.run_state()}/volume-plugins",
        "failSwapOn": False,
        "oomScoreAdj": 0,  # a lower one needs CAP_SYS_RESOURCE
        "syncFrequency": "10s",  # the engines wait for their certificates in a mounted secret; default 60 s
        "nodeStatusUpdateFrequency": "10s",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "2%", "imagefs.available": "2%"},
        "maxPods": 200,
        "serializeImagePulls": False,
    }


def _proxy() -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(pki.component_config("proxy"))},
        "hostnameOverride": places.NODE,
        "clusterCIDR": places.POD_CIDR,
        "mode": "iptables",
        "bindAddress": places.NODE_IP,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        # zero leaves the machine's connection table as it is: it belongs to everybody
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nodePortAddresses": [f"{places.NODE_IP}/32"],
    }


def _kube_router_flags() -> tuple[str, ...]:
    return (
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        f"--kubeconfig={pki.component_config('kube-router')}",
        f"--hostname-override={places.NODE}",
        f"--service-cluster-ip-range={places.SERVICE_CIDR}",
        "--health-port=0",
        "--v=1",
    )


def _write(name: str, value: dict[str, Any]) -> Path:
    path = places.run_state() / name
    path.write_text(json.dumps(value, indent=1))
    return path
