# What to run: `make help`.  Needs make, Python 3.10 or newer and the package index; the MPI,
# and on a machine with an NVIDIA driver CuPy and the CUDA libraries, come as wheels.

MPI ?= mpich
PYTHON ?= python3
# Ranks of bench and test-gpu; examples run on 4 unless this is given.
N ?= 8
# More arguments for the benchmark or for pytest.
ARGS ?=
# Limits in seconds for one mpirun: a job that hangs ends, here and in CI.
BENCH_LIMIT ?= 3600
TEST_LIMIT ?= 600
CONFORMANCE_LIMIT ?= 1800
EXAMPLE_LIMIT ?= 60
# How long `make fuzz` goes on, and how many calls `make soak` makes.
MINUTES ?= 10
CALLS ?= 10000

ifeq ($(filter mpich openmpi,$(MPI)),)
$(error MPI is '$(MPI)'; it must be mpich or openmpi)
endif

# Off the powers of two is where most bugs are.  On more than 3 ranks only what depends on their number runs:
# the tests marked many_ranks, and those on GPUs.
RANKS := 1 2 3 4 5 8
CONFORMANCE_RANKS := 1 2 3 5
ENV := .venv/$(MPI)
BIN := $(ENV)/bin
READY := $(ENV)/.installed
READY_DEV := $(ENV)/.installed-dev

# $(call ranks,number,limit): Python on that many ranks, for so long.  --foreground lets Ctrl-C through.
ranks = timeout --foreground --kill-after=10 $(2) $(BIN)/mpirun -n $(1) $(BIN)/python

# Open MPI refuses root, and more ranks than cores, unless told otherwise.  MPICH needs neither.
# Both yield on their own when ranks outnumber cores: MPIR_CVAR_POLLS_BEFORE_YIELD and
# OMPI_MCA_mpi_yield_when_idle made no difference to 8 ranks on 2 cores (ring of 128 B messages
# 23 and 14 µs a round, barrier 79 and 25 µs, with and without), so neither is set.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe
# One thread a rank: the ranks fill the cores.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# What a rank printed is seen even when the job is aborted.
export PYTHONUNBUFFERED := 1
# Each rank of each job would compile all tests anew, for half a minute of work on 8 ranks.
export PYTHONDONTWRITEBYTECODE :=
# Where mpi4py's tests are kept.
export MPICOLL_TEST_CONFORMANCE := .conformance
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_ROOT_USER_ACTION := ignore

# The CUDA extra that the NVIDIA driver can run, if there is one; `make CUDA_EXTRA= ...` does without.
# Lazy: asked only when an environment is made.
driver = $(shell { nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null \
	|| { test -e /dev/nvidiactl && cat /proc/driver/nvidia/version; } 2>/dev/null; } \
	| grep -oE '\b[0-9]{3,}\.' | head -n 1 | tr -d .)
cuda_extra = $(shell if [ "$(1)" -ge 580 ]; then echo cuda13; elif [ "$(1)" -ge 525 ]; then echo cuda12; fi)
CUDA_EXTRA = $(if $(driver),$(call cuda_extra,$(driver)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help install bench bench-gpu test test-unit test-jobs test-mpi test-gpu fuzz soak examples clients verify lint type docs tables ci clean FORCE

help:  ## this list
	@sed -nE 's/^([a-z%-]+):[^#]*## (.*)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'
	@echo
	@echo '  MPI=mpich|openmpi (now $(MPI))   N=ranks (now $(N))   ARGS="for the benchmark or pytest"   PYTHON=python3'

install: $(READY)  ## create the environment: .venv/mpich, or .venv/openmpi with MPI=openmpi

bench: $(READY)  ## measure and validate every collective on N ranks
	$(call ranks,$(N),$(BENCH_LIMIT)) -m mpicoll.bench $(ARGS)

# One GPU a rank for NCCL to be among the baselines; those that cannot serve are left out, with the reason.
bench-gpu: $(READY)  ## the same on CuPy arrays from 8 B to 1 GiB, beside NCCL, the MPI's own and bare messages
	$(call ranks,$(N),$(BENCH_LIMIT)) -m mpicoll.bench --buffers cupy --baseline nccl,native,limit --max 1G $(ARGS)

test: test-unit test-jobs test-mpi  ## all tests: in one process, in jobs, then on 1, 2, 3, 4, 5 and 8 ranks

test-unit: $(READY)  ## the tests that need no MPI
	$(BIN)/python -m pytest tests/unit -n auto --maxprocesses 8 $(ARGS) </dev/null

test-jobs: $(READY)  ## the tests that start jobs of their own, whose ranks die, hang or raise
	$(BIN)/python -m pytest tests/jobs $(ARGS) </dev/null

test-mpi: $(RANKS:%=test-%)  ## the MPI tests on each number of ranks

test-%: $(READY) FORCE  ## the MPI tests on so many ranks: test-4
	@case '$*' in *[!0-9]*) echo "no target test-$*; test-4 runs on 4 ranks" >&2; exit 2;; esac
	$(call ranks,$*,$(TEST_LIMIT)) -m mpi4py -m pytest --with-mpi -p no:cacheprovider tests/mpi $(ARGS) </dev/null

test-gpu: $(READY)  ## the tests marked gpu, in one process, in jobs and on N ranks
	$(BIN)/python -m pytest tests/unit tests/jobs -m gpu $(ARGS) </dev/null || [ $$? -eq 5 ]  # 5: there is none
	$(call ranks,$(N),$(TEST_LIMIT)) -m mpi4py -m pytest --with-mpi -p no:cacheprovider tests/mpi -m gpu $(ARGS) </dev/null

fuzz: $(READY)  ## random calls with new seeds for MINUTES minutes, on 1 to 8 ranks in turn
	@end=$$(($$(date +%s) + 60 * $(MINUTES))); jobs=0; \
	while :; do for n in 3 8 2 5 4 7 1; do \
	  [ $$(date +%s) -lt $$end ] || { echo "fuzz: $$jobs jobs of 300 examples passed"; exit 0; }; \
	  seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
	  echo "fuzz: MPICOLL_TEST_SEED=$$seed MPICOLL_TEST_EXAMPLES=300 make test-$$n MPI=$(MPI) ARGS='-k fuzz'"; \
	  MPICOLL_TEST_SEED=$$seed MPICOLL_TEST_EXAMPLES=300 $(call ranks,$$n,$(TEST_LIMIT)) -m mpi4py -m pytest -q \
	    --with-mpi -p no:cacheprovider tests/mpi/test_fuzz.py $(ARGS) </dev/null || exit 1; \
	  jobs=$$((jobs + 1)); \
	done; done

soak: $(READY)  ## many mixed calls on N ranks: memory and communicators must not grow
	$(call ranks,$(N),$(BENCH_LIMIT)) bench/soak.py --calls $(CALLS) $(ARGS)

examples: N = 4
examples: $(READY)  ## run every example on N ranks (4 unless N is given): each asserts its result
	@for example in examples/[a-z]*.py; do \
	  echo "==> $$example"; \
	  $(call ranks,$(N),$(EXAMPLE_LIMIT)) -m mpi4py $$example $(ARGS) </dev/null || exit 1; \
	done

conformance: $(CONFORMANCE_RANKS:%=conformance-%)  ## mpi4py's own tests of collectives, on our communicator

conformance-%: $(READY) FORCE
	@$(BIN)/python tests/conformance/fetch.py $(MPICOLL_TEST_CONFORMANCE)
	$(call ranks,$*,$(CONFORMANCE_LIMIT)) -m mpi4py -m pytest --with-mpi -p no:cacheprovider tests/conformance $(ARGS) </dev/null

clients: $(READY)  ## published programs' own tests, on mpicoll; CLIENTS=NAME for one (docs/clients.md)
	$(BIN)/python tests/clients/run.py .clients $(MPI) $(CLIENTS)

verify: $(READY)  ## prove every registered algorithm right, for every size and root
	$(BIN)/python -m mpicoll verify

lint: $(READY_DEV)  ## ruff
	$(BIN)/ruff check

type: $(READY_DEV)  ## mypy
	$(BIN)/mypy

docs: $(READY)  ## write the generated pages, and the pictures, of docs
	$(BIN)/python docs/generate.py

# Of docs these two alone; `make docs` writes them, too.
tables: $(READY)  ## write docs/performance.md and README's claims from bench/results
	$(BIN)/python docs/generate.py performance.md ../README.md

ci: lint type test verify  ## what must pass before a change lands, with one MPI

clean:  ## remove all that make made, the environments too
	rm -rf .venv .conformance .clients build dist *.egg-info .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find mpicoll tests bench examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# venv needs ensurepip, which some distributions pack apart; virtualenv, where there is a pip, does not.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	|| { echo "$(PYTHON) is not Python 3.10 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(ENV) >/dev/null 2>&1 \
	|| { rm -rf $(ENV) && $(PYTHON) -m pip install --quiet --upgrade --target .venv/tools virtualenv \
	     && PYTHONPATH=.venv/tools $(PYTHON) -m virtualenv --quiet $(ENV); } \
	|| { rm -rf $(ENV); echo "$(PYTHON) has neither venv nor pip (Debian, Ubuntu: python3-venv)" >&2; exit 1; }

# Editable installs need pip 21.3; a newer one is left alone.
$(READY): setup.cfg | $(BIN)/python
	$(eval extras := $(MPI),test$(CUDA_EXTRA:%=,%))
	@echo "installing mpicoll[$(extras)] into $(ENV)"
	@$(BIN)/python -m pip install --quiet 'pip>=21.3'
	@$(BIN)/python -m pip install --quiet --editable '.[$(extras)]'
	@touch $@

$(READY_DEV): $(READY)
	@echo "installing mpicoll[dev] into $(ENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

FORCE:
