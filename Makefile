# Developer commands. `make demo` and `make test` create the virtual environment first; Python 3.11 or newer is enough.
#
# The distribution's Python is preferred: it is built with profile-guided optimisation (docs/decisions/tuning.md).
PYTHON ?= $(shell /usr/bin/python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := $(sort $(dir $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)))
STAMP := $(VENV)/.ready
EXPORT = $(BIN)/uv export --quiet --no-header --no-emit-workspace

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-cluster test-chaos test-elastic test-containers cluster-tools container-tools images wheelhouse lint fuzz faults soak nightly bench bench-cluster proto client docs lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create the virtual environment from the hash-pinned lock

$(STAMP): requirements.lock $(MEMBERS:%=%pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Muster needs Python 3.11 or newer: set PYTHON=")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --offline --no-deps --no-build-isolation $(MEMBERS:%/=-e %)
	@touch $@

demo: $(STAMP) ## Run a real training job from submission to its trace (about a minute)
	@$(BIN)/python examples/demo.py

up: $(STAMP) ## Run Muster on this machine until Ctrl-C (ARGS="--node n1:cpu=4,gpu=2 ...")
	@$(BIN)/muster up $(ARGS)

test: $(STAMP) lint ## Lint, types, import contracts, generated files, and every test
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

cluster-tools: $(STAMP) ## Build the Kubernetes control plane for the tests (once, about ten minutes)
	@$(BIN)/python -m muster_testing.cluster.build

test-cluster: cluster-tools ## Run the tests with a real control plane and a real node; see docs/testing.md
	@MUSTER_TEST_CLUSTER=required $(BIN)/python -m pytest tests/cluster tests/e2e/test_elastic_scenarios_in_pods.py $(ARGS)

test-chaos: cluster-tools ## Run the fault tests of the Kubernetes runtime at full size: 500 nodes, 300 gangs, 54 kills
	@MUSTER_TEST_CLUSTER=required MUSTER_CHAOS_NODES=500 MUSTER_CHAOS_GANGS=300 MUSTER_CHAOS_ROUNDS=3 \
		$(BIN)/python -m pytest tests/cluster/chaos $(ARGS)

test-elastic: $(STAMP) ## Run thirty elastic jobs for three minutes while services are killed
	@MUSTER_CHAOS_SECONDS=180 $(BIN)/python -m pytest tests/e2e/test_elastic_chaos.py $(ARGS)

container-tools: $(STAMP) ## Build docker-compose and Jaeger for the tests of containers (once, about five minutes)
	@$(BIN)/python -m muster_testing.containers.build

test-containers: container-tools ## Build the images and run compose.yaml in an engine of the tests (root and docker.io)
	@MUSTER_TEST_CONTAINERS=required $(BIN)/python -m pytest tests/containers $(ARGS)

images: ## Build the images with docker build (ARGS="--base IMAGE --wheelhouse FOLDER"); see docs/deploy.md
	@$(PYTHON) deploy/images/build.py images $(ARGS)

wheelhouse: ## Download the wheels of the images, to build them without a network
	@$(PYTHON) deploy/images/build.py wheelhouse $(ARGS)

lint: $(STAMP) ## Check style, types, import contracts, the API and generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports
	@$(BIN)/buf format --diff --exit-code proto
	@$(BIN)/python libs/rpc/generate.py --check
	@$(BIN)/python libs/events/generate.py --check
	@$(BIN)/python libs/client/generate.py --check

fuzz: $(STAMP) ## Read 20,000 mutated documents (ARGS="--seed 7 --count 100000")
	@$(BIN)/python tests/fuzz/fuzz.py $(ARGS)

faults: $(STAMP) ## Run the whole matrix of faults as root, and write its table (docs/faults.md)
	@$(BIN)/python tests/faults/run_faults.py $(ARGS)

soak: $(STAMP) ## Run one system under load for half an hour, and judge its growth (ARGS="--minutes 60")
	@$(BIN)/python tests/faults/soak.py $(ARGS)

nightly: $(STAMP) ## Run what takes hours: properties, 20,000 simulated seeds, defects, faults, restarts, the soak, alerts
	@$(BIN)/python -m pytest tests/property/scheduling/state tests/property/scheduling/reservations --hypothesis-profile=nightly $(ARGS)
	@MUSTER_TEST_SIMULATION=nightly $(BIN)/python -m pytest tests/simulation/test_memory_broker.py $(ARGS)
	@$(BIN)/python tests/simulation/simulated_run.py 1 --count 20000 --jobs $$(nproc)
	@$(BIN)/python tests/simulation/find_defects.py
	@$(BIN)/python tests/faults/run_faults.py
	@MUSTER_CLUSTER_KILLS=20 MUSTER_LOAD_RATE=50 MUSTER_TEST_UPGRADE=required \
		$(BIN)/python -m pytest -s tests/e2e/test_broker_cluster.py tests/e2e/test_upgrade.py $(ARGS)
	@$(BIN)/python tests/faults/soak.py
	@MUSTER_TEST_ALERTS=required $(BIN)/python -m pytest tests/e2e/test_alerts.py $(ARGS)

bench: $(STAMP) ## Measure the budgets, one JSON object a line
	@$(BIN)/python tests/bench/run.py $(ARGS)

bench-cluster: cluster-tools ## Measure gangs on a real API server, beside kube-scheduler and the ceiling
	@$(BIN)/python tests/bench/cluster_bench.py $(ARGS)

proto: $(STAMP) ## Generate the gRPC stubs from proto/
	@$(BIN)/buf format -w proto
	@$(BIN)/python libs/rpc/generate.py

client: $(STAMP) ## Generate the synchronous client from the asyncio client
	@$(BIN)/python libs/client/generate.py

docs: $(STAMP) ## Generate the references of events and schemas
	@$(BIN)/python libs/events/generate.py
	@$(BIN)/python docs/schema/generate.py

lock: $(STAMP) ## Pin the newest versions that the members allow
	@$(BIN)/uv lock --quiet --upgrade
	@$(EXPORT) --all-groups > requirements.lock
	@for folder in services/*; do $(EXPORT) --package muster-$${folder#services/} > $$folder/requirements.lock; done
	@$(EXPORT) --package muster-events > deploy/images/provision.lock
	@$(EXPORT) --only-group build > deploy/images/build.lock
	@$(EXPORT) --only-group digits > examples/digits/requirements.lock

clean: ## Remove the virtual environment and caches
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
