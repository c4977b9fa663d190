"""From a job to a submitted job: validate, plan, submit, resubmit."""
