"""The job queue of this machine: store, scheduler, runner."""
