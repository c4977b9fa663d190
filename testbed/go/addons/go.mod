module testbed.local/addons

go 1.26.0

require (
	github.com/coredns/coredns v1.14.7
	github.com/kubeflow/mpi-operator v0.8.2
	github.com/kubeflow/trainer/v2 v2.2.1
	sigs.k8s.io/jobset v0.12.0
	sigs.k8s.io/kueue v0.19.2
)
