module testbed.local/kwok

go 1.26.0

require (
	k8s.io/api v0.36.2
	k8s.io/apimachinery v0.36.2
	k8s.io/client-go v0.36.2
	sigs.k8s.io/kwok v0.8.0
)
