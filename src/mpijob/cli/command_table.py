"""The table of all commands: module, group in the help, help text and examples.

`mpijob --help` and shell completion read only this table; `root` imports a command when it is used.
"""

from __future__ import annotations

from mpijob.cli.lazy_group import CommandEntry

RUN, INSPECT, DIAGNOSE, MANAGE = "Run", "Inspect", "Diagnose", "Manage"
REUSE, CONVERT, ADMIN, SERVICES = "Reuse", "Convert", "Admin", "Services"

# Other names of commands: those of docker, kubectl and Slurm that people type first.
ALIASES = {
    "ls": "list",
    "ps": "list",
    "rm": "delete",
    "status": "get",
    "runtime": "runtimes",
    "history": "acct",
    "sacct": "acct",
}

ENTRIES: dict[str, CommandEntry] = {
    "run": CommandEntry(
        "submit",
        RUN,
        "Create a job and follow its output to the end.",
        examples=(
            "mpijob run --workers 4 -- python train.py",
            "mpijob run job.sh",
            "mpijob run -f job.yaml --workers 8",
        ),
        common=True,
    ),
    "create": CommandEntry(
        "submit",
        RUN,
        "Create a job.",
        examples=(
            "mpijob create train --workers 4 --image quay.io/team/train:1 --gpu 1 -- python train.py",
            "mpijob create -f job.yaml --dry-run",
        ),
        common=True,
    ),
    "plan": CommandEntry(
        "submit",
        RUN,
        "Show exactly what would run, without starting it.",
        examples=("mpijob plan -f job.yaml", "mpijob plan job.sh --context slurm"),
        common=True,
    ),
    "alloc": CommandEntry(
        "exec",
        RUN,
        "Hold workers for an interactive shell.",
        examples=("mpijob alloc --workers 2 --slots 4",),
    ),
    "array": CommandEntry(
        "array",
        RUN,
        "Create one job for each combination of values.",
        examples=(
            "mpijob array sweep --values env.LR=0.1,0.01 --values workers=2,4 --at-once 2 -- python train.py",
        ),
    ),
    "schedule": CommandEntry(
        "schedule",
        RUN,
        "Run jobs on a cron schedule.",
        examples=(
            "mpijob schedule create nightly --when '30 2 * * *' --workers 4 -- python train.py",
            "mpijob schedule list -A",
            "mpijob schedule show nightly",
            "mpijob schedule pause nightly",
            "mpijob schedule resume nightly",
            "mpijob schedule fire nightly",
            "mpijob schedule delete nightly",
            "mpijob schedule serve",
            "mpijob schedule rights",
        ),
    ),
    "list": CommandEntry(
        "list",
        INSPECT,
        "List jobs, newest first.",
        "list_jobs",
        examples=(
            "mpijob list --phase running",
            "mpijob list -A -l team=cv --since 7d",
            "mpijob list --all-contexts",
        ),
        common=True,
    ),
    "get": CommandEntry(
        "list",
        INSPECT,
        "Show the status of jobs.",
        examples=("mpijob get train", "mpijob get train -o json"),
        common=True,
    ),
    "describe": CommandEntry(
        "describe",
        INSPECT,
        "Show the details of a job: launcher, workers, ranks and findings.",
        examples=("mpijob describe train", "mpijob describe train@1"),
        common=True,
    ),
    "logs": CommandEntry(
        "logs",
        INSPECT,
        "Print the merged output of launcher, workers and ranks.",
        examples=(
            "mpijob logs train -f",
            "mpijob logs train --rank 0-3 --grep loss --tail 50",
            "mpijob logs train --download logs --gzip",
        ),
        common=True,
    ),
    "events": CommandEntry(
        "logs", INSPECT, "Print the events of a job, oldest first.", examples=("mpijob events train -f",)
    ),
    "watch": CommandEntry(
        "watch",
        INSPECT,
        "Watch jobs live.",
        examples=("mpijob watch train", "mpijob watch -l team=cv"),
        common=True,
    ),
    "wait": CommandEntry(
        "lifecycle",
        INSPECT,
        "Wait until jobs end or reach a phase.",
        examples=("mpijob wait train --timeout 2h", "mpijob wait -l team=cv --for running"),
    ),
    "runs": CommandEntry(
        "runs",
        INSPECT,
        "List all runs of a job name and their attempts, newest first.",
        examples=("mpijob runs train",),
    ),
    "queue": CommandEntry(
        "top",
        INSPECT,
        "Show waiting jobs: position, reason and estimated start.",
        examples=("mpijob queue", "mpijob queue --accuracy --since 168h"),
    ),
    "quota": CommandEntry(
        "top",
        INSPECT,
        "Show capacity, free resources and the quota of the namespace.",
        examples=("mpijob quota -n team-cv",),
    ),
    "top": CommandEntry(
        "top",
        INSPECT,
        "Show CPU, memory, GPU and MPI time of workers.",
        examples=("mpijob top train", "mpijob top"),
    ),
    "curves": CommandEntry(
        "curves",
        INSPECT,
        "Show training metrics, progress and estimated end.",
        examples=("mpijob curves train", "mpijob curves train --rank 0", "mpijob curves train --event-files"),
    ),
    "acct": CommandEntry(
        "acct",
        INSPECT,
        "Show resource usage and cost of jobs, as sacct does.",
        examples=(
            "mpijob acct --since 7d --format name,state,elapsed",
            "mpijob acct list train --attempts",
            "mpijob acct report --by user --since 30d",
            "mpijob acct budget",
            "mpijob acct advice train",
        ),
    ),
    "artifacts": CommandEntry(
        "artifacts",
        INSPECT,
        "List and download output files of a job.",
        examples=(
            "mpijob artifacts list train",
            "mpijob artifacts fetch train model.pt --to results",
            "mpijob artifacts store train",
        ),
    ),
    "ui": CommandEntry(
        "ui",
        INSPECT,
        "Open the web UI.",
        examples=("mpijob ui", "mpijob ui --port 9000 --no-browser"),
        common=True,
    ),
    "mlflow": CommandEntry(
        "tracking",
        INSPECT,
        "Send training metrics to an MLflow server.",
        examples=("mpijob mlflow train --to https://mlflow.example.org --follow",),
    ),
    "tensorboard": CommandEntry(
        "tracking", INSPECT, "Run TensorBoard for a job.", examples=("mpijob tensorboard train",)
    ),
    "why": CommandEntry(
        "why",
        DIAGNOSE,
        "Explain why a job failed, is waiting or hangs, and how to fix it.",
        examples=("mpijob why train", "mpijob why --log slurm-4711.out"),
        common=True,
    ),
    "stacks": CommandEntry(
        "stacks",
        DIAGNOSE,
        "Show the call stack of every rank of a running job, grouped.",
        examples=("mpijob stacks train", "mpijob stacks train --rank 0-3 --short"),
        common=True,
    ),
    "doctor": CommandEntry(
        "about",
        DIAGNOSE,
        "Check whether this machine or a cluster is ready to run jobs.",
        examples=("mpijob doctor", "mpijob doctor --context my-cluster"),
        common=True,
    ),
    "explain": CommandEntry(
        "about",
        DIAGNOSE,
        "Explain a field of the job file, or an error code.",
        examples=("mpijob explain retry.limit", "mpijob explain OOM_KILLED"),
    ),
    "profile": CommandEntry(
        "profile",
        DIAGNOSE,
        "Show MPI time, messages and bytes of the ranks of a job.",
        examples=("mpijob profile train --pairs 20",),
    ),
    "network": CommandEntry(
        "network",
        DIAGNOSE,
        "Measure the network between workers; show MPI traffic.",
        examples=(
            "mpijob network probe --workers 4",
            "mpijob network ledger",
            "mpijob network talk train",
        ),
    ),
    "patterns": CommandEntry(
        "patterns",
        DIAGNOSE,
        "Show the most frequent causes of failed jobs.",
        examples=("mpijob patterns --since 24h -A",),
    ),
    "rules": CommandEntry(
        "rules",
        DIAGNOSE,
        "List the diagnosis rules, and test rules of your site.",
        examples=("mpijob rules list", "mpijob rules test rules.yaml"),
    ),
    "trace": CommandEntry(
        "trace",
        DIAGNOSE,
        "Show the stages of a job as an OpenTelemetry trace.",
        examples=("mpijob trace train", "mpijob trace train --send http://collector:4318"),
    ),
    "bundle": CommandEntry(
        "bundle",
        DIAGNOSE,
        "Create a support bundle of a job, with secrets masked.",
        examples=("mpijob bundle train -O train.tar.gz",),
    ),
    "image": CommandEntry(
        "image",
        DIAGNOSE,
        "Check container images for MPI, sshd and Python.",
        examples=(
            "mpijob image inspect quay.io/team/train:1",
            "mpijob image exists quay.io/team/train:1",
        ),
    ),
    "cancel": CommandEntry(
        "lifecycle",
        MANAGE,
        "Cancel jobs; their records stay.",
        examples=("mpijob cancel train", "mpijob cancel -l team=cv --phase queued --yes"),
        common=True,
    ),
    "delete": CommandEntry(
        "delete",
        MANAGE,
        "Delete jobs and all their runs; their records stay for a while.",
        examples=("mpijob delete train", "mpijob delete --all --phase succeeded --yes"),
        common=True,
    ),
    "retry": CommandEntry(
        "resubmit",
        MANAGE,
        "Run a finished job again with the same configuration.",
        examples=("mpijob retry train --follow", "mpijob retry train --with-fix 1"),
        common=True,
    ),
    "suspend": CommandEntry(
        "lifecycle",
        MANAGE,
        "Stop the processes of jobs and free their resources.",
        examples=("mpijob suspend train",),
    ),
    "resume": CommandEntry(
        "lifecycle", MANAGE, "Queue suspended jobs again.", examples=("mpijob resume train",)
    ),
    "scale": CommandEntry(
        "lifecycle",
        MANAGE,
        "Change the number of workers of an elastic job.",
        examples=("mpijob scale train 8",),
    ),
    "exec": CommandEntry(
        "exec",
        MANAGE,
        "Run a command in a worker, beside a rank or in the launcher.",
        "execute",
        examples=("mpijob exec train --worker 0 -- nvidia-smi", "mpijob exec train --rank 3 -- bash"),
    ),
    "clone": CommandEntry(
        "resubmit",
        REUSE,
        "Create a copy of a job with changes.",
        examples=("mpijob clone train train-8 --workers 8", "mpijob clone train --replace --memory 8Gi"),
        common=True,
    ),
    "compare": CommandEntry(
        "resubmit",
        REUSE,
        "Compare jobs: configuration, duration, result.",
        examples=("mpijob compare train train-8", "mpijob compare train@local train@slurm"),
    ),
    "template": CommandEntry(
        "templates",
        REUSE,
        "Save, share and use job templates.",
        examples=(
            "mpijob template save base --from train",
            "mpijob template use base train-2 --workers 8",
            "mpijob template list",
            "mpijob template show base",
            "mpijob template share base",
            "mpijob template delete base",
        ),
    ),
    "export": CommandEntry(
        "resubmit",
        REUSE,
        "Print a job as a job file.",
        examples=("mpijob export train -o yaml",),
    ),
    "register": CommandEntry(
        "register",
        REUSE,
        "Register the model of a job in the model registry.",
        examples=("mpijob register train --model bert --model-version 2 --model-path /out/model.onnx",),
    ),
    "data": CommandEntry(
        "data",
        REUSE,
        "Download and upload S3 folders through data connections.",
        examples=(
            "mpijob data fetch my-bucket/train ./train",
            "mpijob data store my-bucket/results ./results",
            "mpijob data keep my-bucket/results ./results --every 60",
        ),
    ),
    "convert": CommandEntry(
        "convert",
        CONVERT,
        "Convert MPIJobs, TrainJobs, Slurm and PBS scripts, both ways.",
        examples=(
            "mpijob convert mpijob.yaml > job.yaml",
            "mpijob convert job.sbatch --report text",
            "mpijob convert job.yaml --to sbatch",
        ),
        common=True,
    ),
    "move": CommandEntry(
        "move",
        CONVERT,
        "Plan a job on another engine and show every difference.",
        examples=("mpijob move train --to slurm --submit",),
    ),
    "schema": CommandEntry(
        "about",
        CONVERT,
        "Print the JSON Schema of the job file.",
        examples=("mpijob schema > job.schema.json",),
    ),
    "admin": CommandEntry(
        "admin",
        ADMIN,
        "Set limits of namespaces, and show the whole cluster.",
        examples=(
            "mpijob admin overview",
            "mpijob admin limits team-cv",
            "mpijob admin set team-cv --max-gpus 16 --max-duration 24h",
        ),
    ),
    "runtimes": CommandEntry(
        "runtimes",
        ADMIN,
        "List, lint, install and test TrainJob runtimes.",
        examples=(
            "mpijob runtimes list",
            "mpijob runtimes show mpijob-openmpi",
            "mpijob runtimes install mpijob-openmpi --dry-run",
            "mpijob runtimes lint runtime.yaml",
            "mpijob runtimes test mpijob-openmpi",
        ),
    ),
    "record": CommandEntry(
        "archive",
        ADMIN,
        "Back up, restore or erase the job history.",
        examples=(
            "mpijob record backup history.tar",
            "mpijob record restore history.tar",
            "mpijob record erase --user jane",
        ),
    ),
    "audit": CommandEntry(
        "audit",
        ADMIN,
        "Show the audit log, and verify its hash chain.",
        examples=(
            "mpijob audit --user jane --since 7d",
            "mpijob audit list --refused",
            "mpijob audit verify",
        ),
    ),
    "mpi": CommandEntry(
        "about",
        ADMIN,
        "List and install MPI libraries.",
        examples=("mpijob mpi list", "mpijob mpi install openmpi"),
    ),
    "completion": CommandEntry(
        "about",
        ADMIN,
        "Print the completion script of a shell.",
        examples=('eval "$(mpijob completion bash)"',),
    ),
    "version": CommandEntry("about", ADMIN, "Print the version.", examples=("mpijob version",)),
    "recorder": CommandEntry(
        "services",
        SERVICES,
        "Run the recorder: keep the history of cluster jobs.",
        examples=("mpijob recorder -A --metrics-port 9465",),
    ),
    "controller": CommandEntry(
        "services",
        SERVICES,
        "Run the controller: retries, timeouts, limits, cleanup.",
        examples=("mpijob controller -A --health-port 8081",),
    ),
    "webhook": CommandEntry(
        "services",
        SERVICES,
        "Run the admission webhook: limits, quota, ownership, secrets.",
        examples=("mpijob webhook --port 8443",),
    ),
    "operator": CommandEntry(
        "services",
        SERVICES,
        "Run the operator that reconciles MPIJobPlatform.",
        examples=("mpijob operator --health-port 8081",),
    ),
    "broker": CommandEntry(
        "services",
        SERVICES,
        "Run the fit broker: would a user's job start now?",
        examples=("mpijob broker --port 8444",),
    ),
    "notifier": CommandEntry(
        "services",
        SERVICES,
        "Run the notifier: signed callbacks when jobs change, with retries.",
        examples=("mpijob notifier -A",),
    ),
    "exporter": CommandEntry(
        "services",
        SERVICES,
        "Run the Prometheus exporter: jobs, failures, queues, usage.",
        examples=("mpijob exporter -A --port 9464",),
    ),
}
