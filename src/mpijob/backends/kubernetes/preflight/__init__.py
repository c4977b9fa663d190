"""What a cluster offers a job: permissions, quotas, queues, nodes, images."""
