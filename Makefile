# What a person types. Everything runs in .venv, which `make setup` keeps in step with pyproject.toml and
# constraints.txt.

PYTHON ?= python3
# An extra package index for torch, for those who want a certain build (CPU only, another CUDA).
TORCH_INDEX_URL ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MINI := $(shell find kime_mini -type f -not -path '*/build/*' -not -path '*/training/*' -not -path '*.egg-info/*' -not -path '*/__pycache__/*')

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test soak lint protos protos-check protos-matrix bench bench-load mini-data mini mini-results clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## Make .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt kime_grpc/__init__.py $(MINI)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kime-grpc needs Python 3.11 or newer. Name one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL)) \
		-c constraints.txt ./kime_mini -e '.[server,dev]'
	@touch $@

demo: setup ## Start a server, ask it real questions, show the answers, stop it
	$(BIN)/kime-grpc demo

serve: setup ## Serve the embedded model on port 50051
	$(BIN)/kime-grpc serve

test: setup ## Run every test
	$(BIN)/python -m pytest

soak: setup ## Send a million items over one stream, and watch the memory: a quarter of an hour
	KIME_SOAK_ITEMS=1000000 $(BIN)/python -m pytest tests/chaos/test_soak.py

lint: setup ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

protos: setup ## Generate kime_grpc/v1 from protos/
	$(BIN)/python protos/generate.py

protos-check: setup ## Fail when kime_grpc/v1 is stale, the protos do not lint, or they break a caller
	$(BIN)/python protos/generate.py --check

protos-matrix: setup ## Load kime_grpc/v1 on the oldest and the newest protobuf that we declare
	$(BIN)/python protos/matrix.py

bench: setup ## Measure speed on this machine, beside other packages
	$(BIN)/kime-grpc bench

bench-load: setup ## Measure a server under load: latencies, saturation, health
	$(BIN)/python benchmarks/load.py

mini-data: setup ## Fetch the packages that the embedded model learns from, and make questions of them
	$(BIN)/python kime_mini/training/fetch.py

mini: mini-data ## Train the embedded model again: hours
	$(BIN)/kime-grpc train --config kime_mini/training/words.toml
	$(BIN)/kime-grpc train --config kime_mini/training/mini.toml
	cd kime_mini/training && $(abspath $(BIN))/python blend.py build/blend build/mini/checkpoint \
		build/sources/kime_mini/src/kime_mini/checkpoint 0.6 authored/k.jsonl

MINI_CHECKPOINT ?= kime_mini/src/kime_mini/checkpoint

mini-results: mini-data ## Ask the embedded model every held-out question, and write kime_mini/RESULTS.md
	$(BIN)/python kime_mini/training/results.py $(MINI_CHECKPOINT) kime_mini \
		validation=kime_mini/training/authored/v.jsonl calibration=kime_mini/training/authored/k.jsonl \
		sys1bench=kime_mini/training/build/sys1bench.jsonl test=kime_mini/training/authored/t.jsonl

clean: ## Remove .venv, builds and caches
	rm -rf $(VENV) build dist kime_mini/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
