"""Cancel, suspend, scale, exec, stacks, artifacts and schedules."""
