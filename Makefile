# Everything that a developer types. `make demo` and `make test` set up what they need: a Python of 3.11 or newer is enough.
#
# The distribution's Python where it will do: those are built with profiles, what version managers compile mostly is not, and the same
# work then costs more (docs/performance.md, "Which Python").
PYTHON ?= $(shell /usr/bin/python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := $(sort $(dir $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)))
STAMP := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-cluster test-chaos test-elastic cluster-tools lint fuzz nightly bench bench-cluster proto docs lock clean

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make the virtual environment from the hash-pinned lock

$(STAMP): requirements.lock $(MEMBERS:%=%pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Muster needs Python 3.11 or newer: set PYTHON=")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --offline --no-deps --no-build-isolation $(MEMBERS:%/=-e %)
	@touch $@

demo: $(STAMP) ## Watch a real training job from submission to its trace (about a minute)
	@$(BIN)/python examples/demo.py

up: $(STAMP) ## Run Muster on this machine until Ctrl-C (ARGS="--node n1:cpu=4,gpu=2 ...")
	@$(BIN)/muster up $(ARGS)

test: $(STAMP) lint ## Lint, types, import contracts, generated files, and every test
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

cluster-tools: $(STAMP) ## Build the Kubernetes control plane of the tests (minutes once, then nothing)
	@$(BIN)/python -m muster_testing.cluster.build

test-cluster: cluster-tools ## The tests with a real control plane and a real node; see docs/testing.md
	@MUSTER_TEST_CLUSTER=required $(BIN)/python -m pytest tests/cluster tests/e2e/test_answers_elastic_in_pods.py $(ARGS)

test-chaos: cluster-tools ## The Kubernetes runtime under attack at its full size: 500 nodes, 300 gangs, 54 deaths (minutes)
	@MUSTER_TEST_CLUSTER=required MUSTER_CHAOS_NODES=500 MUSTER_CHAOS_GANGS=300 MUSTER_CHAOS_ROUNDS=3 \
		$(BIN)/python -m pytest tests/cluster/chaos $(ARGS)

test-elastic: $(STAMP) ## Thirty elastic jobs on a pool too small for them for three minutes, while services die
	@MUSTER_CHAOS_SECONDS=180 $(BIN)/python -m pytest tests/e2e/test_elastic_chaos.py $(ARGS)

lint: $(STAMP) ## Style, types, import contracts, contracts of the API, generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports
	@$(BIN)/buf lint proto
	@$(BIN)/python libs/rpc/generate.py --check
	@$(BIN)/python libs/events/generate.py --check

fuzz: $(STAMP) ## Ask for an answer to 20,000 documents that nobody wrote (ARGS="--seed 7 --count 100000")
	@$(BIN)/python tests/fuzz/fuzz.py $(ARGS)

nightly: $(STAMP) ## Walk through the life of a pool and its queues 2,000 times instead of 200
	@$(BIN)/python -m pytest tests/property/scheduling/queues --hypothesis-profile=nightly $(ARGS)

bench: $(STAMP) ## Measure what the design promises, one JSON object a line
	@$(BIN)/python tests/bench/run.py $(ARGS)

bench-cluster: cluster-tools ## Measure gangs on a real API server, beside kube-scheduler and the ceiling
	@$(BIN)/python tests/bench/cluster_bench.py $(ARGS)

proto: $(STAMP) ## Generate the gRPC stubs from proto/
	@$(BIN)/buf format -w proto
	@$(BIN)/python libs/rpc/generate.py

docs: $(STAMP) ## Generate the references: events, schemas, fields of documents
	@$(BIN)/python libs/events/generate.py
	@$(BIN)/python docs/schema/generate.py
	@$(BIN)/python docs/fields_generate.py

lock: $(STAMP) ## Pin the newest versions that the members allow
	@$(BIN)/uv lock --quiet --upgrade
	@$(BIN)/uv export --quiet --no-header --no-emit-workspace --all-groups > requirements.lock

clean: ## Remove the virtual environment and what tools left
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
