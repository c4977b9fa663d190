#!/bin/sh
# Everything that explains a problem with the platform, without secrets: `oc adm must-gather -- /usr/share/mpijob/deploy/openshift/must-gather.sh`,
# or by hand with oc or kubectl: `KUBECTL=kubectl sh must-gather.sh FOLDER`.
set -u
kubectl=${KUBECTL:-oc}
folder=${1:-/must-gather}/mpijob
mkdir -p "$folder" || exit 1

keep() { # FILE WORDS…: what a command says, or why it says nothing
  file=$folder/$1; shift
  mkdir -p "$(dirname "$file")"
  "$kubectl" "$@" >"$file" 2>"$file.err" || true
  [ -s "$file.err" ] || rm -f "$file.err"
}

keep platform.yaml get mpijobplatforms.mpijob.dev -o yaml
keep limits.yaml get mpijoblimits.mpijob.dev -o yaml
keep definitions.txt get customresourcedefinitions
keep nodes.yaml get nodes -o yaml
keep webhooks.yaml get validatingwebhookconfigurations,mutatingwebhookconfigurations -o yaml
keep runtimes.yaml get clustertrainingruntimes.trainer.kubeflow.org -o yaml
keep monitoring.yaml get servicemonitors.monitoring.coreos.com,podmonitors.monitoring.coreos.com,prometheusrules.monitoring.coreos.com -A -l app.kubernetes.io/name=mpijob -o yaml
keep page.txt -n mpijob-system get routes.route.openshift.io,consolelinks.console.openshift.io -o wide
keep queues.yaml get clusterqueues.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io -o yaml
keep trainjobs.yaml get trainjobs.trainer.kubeflow.org --all-namespaces -o yaml
keep mpijobs.yaml get mpijobs.kubeflow.org --all-namespaces -o yaml
for namespace in mpijob-system kubeflow-system jobset-system kueue-system mpi-operator; do
  "$kubectl" get namespace "$namespace" >/dev/null 2>&1 || continue
  keep "$namespace/objects.yaml" -n "$namespace" get deployments,pods,services,leases,poddisruptionbudgets -o yaml
  keep "$namespace/events.txt" -n "$namespace" get events --sort-by=.lastTimestamp
  for pod in $("$kubectl" -n "$namespace" get pods -o name); do
    keep "$namespace/logs/${pod#pod/}.txt" -n "$namespace" logs "$pod" --all-containers --timestamps --tail=20000
    keep "$namespace/logs/${pod#pod/}-before.txt" -n "$namespace" logs "$pod" --all-containers --previous --tail=20000
  done
done
find "$folder" -type f | wc -l
