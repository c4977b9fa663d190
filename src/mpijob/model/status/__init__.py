"""What was observed of jobs: states, log lines, events, accounts."""
