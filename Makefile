# make setup | demo | test | check      all that one needs to know
# make test-long                        the tests that take long, which `make test` leaves out
# make articles | bench | zoo | chaos   the longer proofs
# make docs                             docs/checks/, from the checks themselves
# make bench-page                       docs/benchmarks.md, from the figures in docs/benchmarks/
# make bench-faults | bench-faults-page what a fault does to antifreeze and its peers; docs/faults-of-peers.md
# make contract SUITE=…                 PyTorch's own test_dataloader.py, with our class in place of torch's
# make contract-stateful SUITE=…        torchdata's own tests of its StatefulDataLoader, with ours in its place
# make differential                     random loaders and scripts on torch and on antifreeze: the same, or declared
# make matrix | matrix TORCH=2.15.0     our suites on every release of torch since 2.6, or on one; docs/versions.md
# make clients                          Lightning, accelerate, fastai … on torch and on antifreeze: the same losses
#
# Needs Python 3.11+ and make. Everything is installed into .venv (clients: .venv-clients); PYTHON=… is the Python to build it with.

PYTHON ?= python3
ZOO ?= ../shared/zoo
# What `make zoo` is to do: SCORE="--only 07"; SCORE="--json docs/zoo.json", then SCORE=--page, writes docs/zoo.md.
SCORE ?=
# An index with builds of torch without CUDA, which is all that these targets need, where pip does not find one by itself.
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSTRAINTS := $(VENV)/constraints.txt
BENCH_READY := $(VENV)/.ready-bench
# Where `make bench` writes every reading, anew each time, and what else it is to do: BENCH="--workers 4 --only ints,jpeg"
BENCH_JSON ?= build/bench.json
BENCH ?=
# The same for `make bench-faults`: FAULTS="--engines antifreeze,torch --only stuck"; its page is made from docs/faults-of-peers.json.
FAULTS_JSON ?= build/bench-faults.json
FAULTS ?=
# What `make clients` is to do: CLIENTS="--only lightning"; CLIENTS=--write writes the table in docs/clients.md, too.
CLIENTS ?=
CLIENTS_VENV := .venv-clients
SUITE ?= test_dataloader.py
CONTRACT ?=
CONTRACT_READY := $(VENV)/.ready-contract
CLIENTS_READY := $(CLIENTS_VENV)/.ready
# What `make chaos` is to do: CHAOS="--seed 7 --trial 12"; CHAOS="--json docs/reliability.json --quiet 100", then
# CHAOS=--page, writes docs/reliability.md.
CHAOS ?=
# What `make differential` is to do: DIFFERENTIAL="--seed 17 --method spawn", DIFFERENTIAL="--script 'exits/*'".
DIFFERENTIAL ?=
# What `make matrix` is to do: all releases, or those named, as TORCH="2.15.0 2.6.0"; MATRIX="--quick", MATRIX=--page.
TORCH ?=
MATRIX ?=

IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
HAS_TORCH := import sys, torch; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11))
WHERE_TORCH := import torch; from pathlib import Path; print(Path(torch.__file__).parents[1])
WHERE_PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))

.PHONY: setup demo test check format articles bench bench-page zoo chaos clean

setup: $(READY)

demo: $(READY)
	$(BIN)/antifreeze demo

# Hundreds of processes import us, and all of pytest's import every test: compiled anew each time, that is minutes.
unexport PYTHONDONTWRITEBYTECODE

# In parallel by file, and in twice as many processes as there are processors: tests of processes wait as much as they compute.
PYTEST = $(BIN)/python -m pytest -n $$(($$($(BIN)/python -c 'import os; print(min(2, os.cpu_count()))') * 2)) --dist loadfile

test: $(READY)
	$(PYTEST) -m "not long"

# The rest: cases of the same kind as others, searches through many examples, programs that take long.
.PHONY: test-long
test-long: $(READY)
	ANTIFREEZE_EXAMPLES=1 $(PYTEST) -m "long or scan"

check: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python -m mypy
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m pytest -q tests/test_architecture.py

.PHONY: docs
docs: $(READY)
	$(BIN)/python docs/generate.py

format: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

articles: $(READY)
	$(BIN)/python examples/articles/drive.py

bench: $(BENCH_READY)
	@rm -f $(BENCH_JSON)
	$(BIN)/python benchmarks/run.py --json $(BENCH_JSON) $(BENCH)

bench-page: $(BENCH_READY)
	$(BIN)/python benchmarks/benchmark_page.py

# The fault table of PEERS: antifreeze beside torch, torchdata, SPDL and Grain; about ten minutes, for what is blocked is waited for.
.PHONY: bench-faults bench-faults-page
bench-faults: $(BENCH_READY)
	$(BIN)/python benchmarks/faults.py --json $(FAULTS_JSON) $(FAULTS)

bench-faults-page: $(BENCH_READY)
	$(BIN)/python benchmarks/faults.py --page

# Every case on torch, under `antifreeze run` and before the doctor; about half an hour, for what hangs is waited for.
zoo: $(READY)
	@if [ -f "$(ZOO)/drive.py" ]; then \
	    $(BIN)/python -m zoo.score --zoo "$(ZOO)" $(SCORE); \
	else \
	    echo "zoo: skipped, there is no $(ZOO)/drive.py; say where it is: make zoo ZOO=path/to/zoo"; \
	fi

chaos: $(READY)
	$(BIN)/python -m chaos $(CHAOS)

# 500 random loaders and all scripts, by all start methods; about twenty minutes on two cores.
.PHONY: differential
differential: $(READY)
	$(BIN)/python -m differential $(DIFFERENTIAL)

# The suites are PyTorch's: SUITE=path/to/pytorch/test/test_dataloader.py, and SUITE=path/to/data/test/stateful_dataloader of
# github.com/meta-pytorch/data; about a quarter of an hour each.
.PHONY: contract contract-stateful
contract: $(CONTRACT_READY)
	$(BIN)/python -m contract "$(SUITE)" $(CONTRACT)

contract-stateful: $(CONTRACT_READY)
	$(BIN)/python -m contract --of torchdata "$(SUITE)" $(CONTRACT)

# One environment of several GB in /tmp for each release, built, tested and deleted one after the other; about half an hour each.
.PHONY: matrix
matrix:
	$(PYTHON) -m matrix $(MATRIX) $(TORCH)

# Real libraries around the loader, each in a small training; about ten minutes.
.PHONY: clients
clients: $(CLIENTS_READY)
	$(CLIENTS_VENV)/bin/python clients/drive_clients.py $(CLIENTS)

clean:
	rm -rf $(VENV) $(CLIENTS_VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Our pin of torch is for machines without one: an installed torch that we support is used as it is. (ruff is a program, and
# one that PYTHON has beside its torch would not be found.)
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@if $(BIN)/python -c '$(HAS_TORCH)' 2>/dev/null; then \
	    grep -v '^torch==' constraints.txt > $(CONSTRAINTS); \
	    echo "setup: torch is here already; downloading the development tools that are missing into $(VENV)"; \
	else \
	    cp constraints.txt $(CONSTRAINTS); \
	    echo "setup: downloading $$(grep '^torch==' constraints.txt) into $(VENV) (a CPU build has about 200 MB, one with" \
	         "CUDA several GB; TORCH_INDEX=… names an index of CPU builds, PYTHON=… a Python that has torch already)"; \
	    $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) \
	        $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch; \
	    echo "setup: downloading the development tools (ruff, mypy, pytest, numpy, opencv …; about 150 MB)"; \
	fi
	@$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) setuptools
	@$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --no-build-isolation --editable '.[dev]'
	@[ -x $(BIN)/ruff ] || $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --ignore-installed ruff
	@touch $@
	@echo "setup: done"

# Peers are optional: those that cannot be had are left out of the benchmarks, which say so, and are tried again next time.
$(BENCH_READY): $(READY)
	@echo "bench: downloading torchdata, SPDL, Grain and matplotlib into $(VENV) (about 40 MB)"
	@if $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --no-build-isolation --editable '.[bench]'; then \
	    touch $@; \
	else \
	    echo "bench: not all of them could be installed"; \
	fi

$(CONTRACT_READY): $(READY)
	@$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --no-build-isolation --editable '.[contract]'
	@touch $@

# Libraries of all kinds, so they get an environment of their own, to which ours lends torch. fastai asks for torchvision,
# whose build on PyPI belongs to a torch with CUDA: beside a CPU build nothing that looks for torchvision can be imported.
$(CLIENTS_READY): $(READY)
	@echo "clients: downloading Lightning, accelerate, transformers, fastai … into $(CLIENTS_VENV) (about 250 MB)"
	@$(BIN)/python -m venv $(CLIENTS_VENV)
	@$(BIN)/python -c '$(WHERE_TORCH)' > "$$($(CLIENTS_VENV)/bin/python -c '$(WHERE_PACKAGES)')/torch-of-setup.pth"
	@$(CLIENTS_VENV)/bin/python -m pip install --quiet --constraint $(CONSTRAINTS) setuptools
	@$(CLIENTS_VENV)/bin/python -m pip install --quiet --constraint $(CONSTRAINTS) --no-build-isolation \
	    --editable '.[clients]'
	@$(CLIENTS_VENV)/bin/python -m pip install --quiet --constraint $(CONSTRAINTS) --no-deps fastai
	@touch $@

# The torch of PYTHON is lent to .venv by a .pth file: --system-site-packages would not see it if PYTHON is in a venv itself.
$(BIN)/python:
	@$(PYTHON) -c '$(IS_NEW_ENOUGH)' || { echo "setup: $(PYTHON) is older than Python 3.11; say which one to use:" \
	    "make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "setup: making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@if $(PYTHON) -c '$(HAS_TORCH)' 2>/dev/null; then \
	    $(PYTHON) -c '$(WHERE_TORCH)' > "$$($(BIN)/python -c '$(WHERE_PACKAGES)')/torch-of-PYTHON.pth"; \
	fi
