"""Causes that Kubernetes' API server and kubectl tell: rights, logins, webhooks, objects that are not in order."""

from __future__ import annotations

from mpijob.diagnosis.rule import Remedy, Rule, Sign

RULES = (
    Rule(
        id="API_FORBIDDEN",
        title="The account lacks a permission in the cluster",
        why="The account is authenticated, but no RBAC role allows this request in this namespace.",
        signs=(
            Sign(
                "is forbidden: User",
                r"is forbidden: User \"(?P<user>[^\"]+)\" cannot (?P<verb>\w+) resource \"(?P<resource>[^\"]+)\""
                r"(?: in API group \"[^\"]*\")?(?: in the namespace \"(?P<namespace>[^\"]+)\")?",
            ),
            Sign(
                "cannot set blockOwnerDeletion",
                r"is forbidden: (?P<detail>cannot set blockOwnerDeletion[^\n]{0,160})",
            ),
            Sign(
                "attempting to grant RBAC",
                r"(?P<detail>is attempting to grant RBAC permissions not currently held)",
            ),
        ),
        causes=(
            "{user} may not {verb} {resource} in namespace {namespace}.",
            "{user} may not {verb} {resource}.",
            "The account lacks a permission in the cluster: {detail}.",
        ),
        example="system:serviceaccount:team:runner may not create trainjobs in namespace team.",
        remedies=(
            Remedy("check the permission: kubectl auth can-i {verb} {resource} -n {namespace}"),
            Remedy("request a role with that permission, or use an account that has it: service_account"),
        ),
        confidence=0.9,
    ),
    Rule(
        id="API_UNAUTHORIZED",
        title="The API server rejects the credentials",
        why="The token or certificate has expired, belongs to another cluster, or is missing.",
        signs=(
            Sign("must be logged in", r"(?P<detail>You must be logged in to the server[^\n]{0,80})"),
            Sign(
                "Unauthorized", r"^(?:\S+[ ])?(?:error: |Error from server )?\(?(?P<detail>Unauthorized)\)?"
            ),
            Sign(
                "provide credentials",
                r"(?P<detail>the server has asked for the client to provide credentials)",
            ),
            Sign("token has expired", r"(?P<detail>(?:the )?token has expired[^\n]{0,60})"),
        ),
        causes=("The API server rejects the credentials: {detail}.",),
        remedies=(
            Remedy("log in again: oc login, or your cluster's own command; then kubectl auth whoami"),
            Remedy("check which cluster is configured: kubectl config current-context"),
        ),
        confidence=0.85,
        yields_to=("IMAGE_REFUSED", "IMAGE_PULL_FAILED", "PYTHON_EXCEPTION"),
    ),
    Rule(
        id="API_UNREACHABLE",
        title="The cluster's API server does not respond",
        why="Nothing responds at the API server's address: there is no configuration, the address is "
        "wrong, a VPN is off, or the server is down.",
        signs=(
            Sign(
                "Unable to connect to the server",
                r"Unable to connect to the server: (?P<detail>[^\n]{1,200})",
            ),
            Sign("The connection to the server", r"The connection to the server (?P<server>\S+) was refused"),
            Sign(
                "unable to recognize",
                r"unable to recognize [^\n]{1,80}: Get \"?(?P<server>https?://[^/\"\s]+)[^\n]{0,60}: "
                r"(?P<detail>[^\n]{1,120})",
            ),
            Sign(
                'Get "http',
                r"Get \"(?P<server>https?://[^/\"]+)[^\n]{0,60}: (?P<detail>[^\n]{1,120})",
            ),
            Sign("does not exist", r"(?:error: |[^\n]{0,40})(?P<detail>context \"[^\"]+\" does not exist)"),
            Sign(
                "context was not found",
                r"(?P<detail>context was not found for specified context: [^\n]{1,80})",
            ),
            Sign(
                "no configuration has been provided",
                r"(?P<detail>no configuration has been provided[^\n]{0,60})",
            ),
        ),
        causes=(
            "The cluster's API server {server} does not respond: {detail}.",
            "The cluster's API server {server} refuses connections.",
            "The cluster's API server cannot be reached: {detail}.",
        ),
        example="The cluster's API server localhost:8080 refuses connections.",
        remedies=(
            Remedy(
                "check which cluster is configured, and whether it responds: kubectl config view "
                "--minify; kubectl version"
            ),
            Remedy("set the configuration: export KUBECONFIG=FILE, or kubectl config use-context NAME"),
        ),
        confidence=0.85,
    ),
    Rule(
        id="WEBHOOK_UNREACHABLE",
        title="An admission webhook of the cluster does not respond",
        why="The API server calls webhooks before it accepts an object. One of them does not respond, "
        "so no such object can be created: its pod is down, or its certificate has expired.",
        signs=(
            Sign(
                "failed calling webhook",
                r"failed calling webhook \"(?P<hook>[^\"]+)\":[^\n]{0,200}?: (?P<detail>[^:\n]{1,120}(?:: "
                r"[^:\n]{1,80})?)$",
            ),
            Sign("failed calling webhook", r"failed calling webhook \"(?P<hook>[^\"]+)\""),
        ),
        causes=(
            "The cluster's webhook {hook} does not respond: {detail}.",
            "The cluster's webhook {hook} does not respond.",
        ),
        example="The cluster's webhook validator.trainer.kubeflow.org does not respond: connect: "
        "connection refused.",
        remedies=(
            Remedy("check its pod: kubectl get pods -A; kubectl get validatingwebhookconfigurations"),
            Remedy("ask an administrator: the controller is down or its certificate has expired"),
        ),
        confidence=0.9,
    ),
    Rule(
        id="API_INVALID",
        title="The API server rejects an invalid object",
        why="The API server validated the object: a field is wrong, missing or unknown, or the "
        "cluster does not have that kind of object.",
        signs=(
            Sign(
                "is invalid:",
                r"(?P<detail>The \S+ \"[^\"]+\" is invalid: (?![^\n]{0,80}AdmissionPolicy)[^\n]{1,240})",
            ),
            Sign(
                "field is immutable",
                r"(?P<object>[\w.]+ \"[^\"]+\") is invalid: (?P<place>[\w.\[\]]+): Invalid value: "
                r"[^\n]{1,6000}: field is immutable",
            ),
            Sign(
                "is being terminated",
                r"(?P<detail>unable to create new content in namespace \S+ because it is being terminated)",
            ),
            Sign("no matches for kind", r"(?P<detail>no matches for kind \"[^\"]+\" in version \"[^\"]+\")"),
            Sign("strict decoding error", r"(?P<detail>strict decoding error: [^\n]{1,200})"),
            Sign("error converting YAML", r"(?P<detail>error converting YAML to JSON: [^\n]{1,160})"),
            Sign("have a resource type", r"(?P<detail>the server doesn't have a resource type \"[^\"]+\")"),
            Sign(
                "the server could not find",
                r"(?P<detail>the server could not find the requested resource[^\n]{0,80})",
            ),
            Sign("failed quota:", r"(?P<detail>failed quota: \S+: must specify [^\n]{1,120})"),
            Sign(
                "usage per",
                r"(?P<detail>(?:minimum|maximum) (?:cpu|memory) usage per \w+ is [^\n]{1,120})",
            ),
            Sign(
                "Error from server (",
                r"Error from server \((?!Forbidden|Unauthorized|Timeout|InternalError)\w+\): (?P<detail>[^\n]{1,240})",
            ),
            Sign("maximum memory usage", r"(?P<detail>maximum memory usage per \w+ is [^\n]{1,120})"),
        ),
        causes=(
            "The API server rejects the object: {detail}.",
            "{object} cannot be changed: {place}: field is immutable.",
        ),
        example='The API server rejects the object: no matches for kind "TrainJob" in version '
        '"trainer.kubeflow.org/v1alpha1".',
        remedies=(
            Remedy(
                "correct the field that the message names; kubectl explain KIND.FIELD shows the allowed values"
            ),
            Remedy("check that the controller is installed: mpijob doctor"),
        ),
        confidence=0.9,
    ),
)
