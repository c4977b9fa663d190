module testbed.local/kube-router

go 1.24.0

require github.com/cloudnativelabs/kube-router v1.6.1
