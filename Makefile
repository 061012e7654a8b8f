# Needs git, make and Python 3.11 or newer. Everything else comes from the lock files into .venv.

PYTHON ?= python3
# Two more than cores: a test waits much of its time for processes that it started.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
ARGS ?=
# Some containers set it. Every process of the tests would compile what it imports again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin
READY := $(VENV)/.stamp
INPUTS := requirements-uv.lock pyproject.toml tools/setup.py

.PHONY: demo test long proofs noloss bounds kills stopped powercut outage agents lint format spec mutants bench setup lock clean

demo: $(READY)  ## a run on a sample repository; only the model's words are not real
	@$(BIN)/python -m compileall -q src
	@$(BIN)/windlass demo $(ARGS)

test: $(READY)
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not long" $(ARGS)

long: $(READY)  ## what `make test` leaves out: whole sweeps of kills, further whole runs, proofs, guides, more examples
	@HYPOTHESIS_PROFILE=ci $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "long or hypothesis" $(ARGS)

proofs: $(READY)  ## the whole table of cheats and honest changes for the TDD proof; `make long` takes every third
	@WINDLASS_PROOFS=all $(BIN)/python -m pytest -q -n $(JOBS) tests/proof/test_proof_table.py $(ARGS)

noloss: $(READY)  ## 200 runs with random graphs, conflicts and kills; RUNS=N for another number
	@WINDLASS_NOLOSS_RUNS=$(or $(RUNS),200) $(BIN)/python -m pytest -q -n $(JOBS) tests/storms/test_no_loss.py $(ARGS)

stopped: $(READY)  ## 50 drivers that are stopped, lose their lock and are replaced; RUNS=N for another number
	@WINDLASS_STOPPED_RUNS=$(or $(RUNS),50) $(BIN)/python -m pytest -q -n $(JOBS) tests/storms/test_stopped_drivers.py $(ARGS)

bounds: $(READY)  ## 500 random runs of the staged flow against the bounds of `flow simulate`; RUNS=N for another number
	@WINDLASS_BOUNDS_RUNS=$(or $(RUNS),500) $(BIN)/python -m pytest -q -n $(JOBS) tests/storms/test_staged_bounds.py $(ARGS)

kills: $(READY)  ## a kill at every point of every restart of the staged flow; `make long` takes every third
	@WINDLASS_KILLS=all $(BIN)/python -m pytest -q -n $(JOBS) tests/flows/test_staged_crash.py $(ARGS)

powercut: $(READY)  ## 50 runs whose disk loses its power; needs root and loop devices; CUTS=N for another number
	@WINDLASS_POWER_CUTS=$(or $(CUTS),50) $(BIN)/python -m pytest -q -n $(JOBS) tests/storms/test_power_cut.py $(ARGS)

outage: $(READY)  ## an outage storm: CLI=codex MINUTES=10 SEED=1; the CLIs come from make agents
	@$(BIN)/python tests/outages.py $(or $(CLI),claude) --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(ARGS)

agents: $(READY)  ## installs the agent CLIs (pinned, 1.8 GB, into .venv-agents), drives them all, tells it in docs/agents-table.md
	@$(BIN)/python tools/agents.py $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

spec: $(READY)  ## which test proves which requirement
	@$(BIN)/python tools/spec.py $(ARGS)

mutants: $(READY)  ## breaks the code on purpose and runs the tests that must notice; ARGS="--record ID..." for some
	@$(BIN)/python tools/mutate.py $(ARGS)

bench: $(BENCH)/.stamp
	@$(BENCH)/bin/python -m benchmarks $(ARGS)

setup: $(READY)

$(READY): requirements.lock $(INPUTS)
	@$(PYTHON) tools/setup.py $(VENV) requirements.lock

$(BENCH)/.stamp: requirements-bench.lock $(INPUTS)
	@$(PYTHON) tools/setup.py $(BENCH) requirements-bench.lock

COMPILE := $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url

lock: $(READY)  ## newest versions into the lock files; see docs/decisions/0002-lock-files.md
	$(COMPILE) --upgrade pyproject.toml --group dev -o requirements.lock
	$(COMPILE) --upgrade pyproject.toml --group dev --group bench -c requirements.lock -o requirements-bench.lock

clean:
	rm -rf $(VENV) $(BENCH) dist build .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
