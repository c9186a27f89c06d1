# Two environments, both built from pyproject.toml and constraints.txt: .venv runs the server and holds only what that
# needs; .venv-dev has every extra and the development tools.
PYTHON ?= python3
VENV   ?= .venv
DEV    ?= .venv-dev
BIN    := $(DEV)/bin
STAMP  := $(DEV)/.installed
INSTALL = $(PYTHON) -m venv $(1) && $(1)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt $(2) && touch $(1)/.installed
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo)

# Tests start hundreds of processes; without its bytecode each would compile all of Parley again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit run test test-fast check format docs browser environments tools screenshots sdk firstuse install-cost bench image image-check conformance contract chaos simulate soak release clean help

help:                ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml edge/pyproject.toml constraints.txt
	$(call INSTALL,$(DEV),--editable '.[dev]' --editable edge)

$(VENV)/.installed: pyproject.toml edge/pyproject.toml constraints.txt
	@echo "Installing Parley into $(VENV) (once; about a minute)"
	@$(call INSTALL,$(VENV),--editable . --editable edge)

run: $(VENV)/.installed ## start with the demo agents on 127.0.0.1:8200
	$(VENV)/bin/parley up

test: $(STAMP) check ## checks, then all tests
	$(BIN)/pytest --numprocesses 2 --dist loadfile

test-fast: $(STAMP) check ## checks, then the tests that take no more than two seconds each, on memory and SQLite
	# In memory where there is such a place: half of the time would be waiting for the disk, which the whole suite does.
	place=$$(mktemp -d -p $(firstword $(wildcard /dev/shm /tmp))) && trap 'rm -rf "$$place"' EXIT && \
	TMPDIR=$$place $(BIN)/pytest --numprocesses 3 --dist loadfile -m "not slow and not postgres"

check: $(STAMP)      ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo

format: $(STAMP)     ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)       ## build the pages in docs/ into build/site, strictly
	$(BIN)/python -m dev.docsite

browser:             ## install the Chromium in which the console is tested (Debian, Ubuntu)
	command -v chromium >/dev/null || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq --yes chromium; }

ENVIRONMENTS := build/environments/google-adk/.installed build/environments/crewai/.installed

environments: $(ENVIRONMENTS) ## environments for examples of frameworks that conflict with ours (once; some minutes, 1 GB)

build/environments/%/.installed: pyproject.toml examples/frameworks/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --constraint examples/frameworks/requirements.txt --editable . $*
	touch $@

TOOLS := nginx-light prometheus bubblewrap poppler-utils fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji buildah mmdebstrap

tools:               ## install nginx, promtool, bubblewrap, buildah, poppler and fonts, which some tests need (Debian, Ubuntu)
	dpkg --status $(TOOLS) >/dev/null 2>&1 || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -qq --yes --no-install-recommends $(TOOLS); }

screenshots: $(STAMP) ## pictures of every page of the console, in build/screenshots and docs/pictures
	$(BIN)/python -m tests.console.pictures

sdk: $(STAMP)        ## build the TypeScript SDK, its types from the contract's document
	$(BIN)/python -m sdk

firstuse: $(STAMP)   ## follow the README to the letter in a fresh clone with a fresh environment
	$(BIN)/python -m dev.firstuse

install-cost: $(STAMP) ## measure the seconds and megabytes that `make run` installs into a fresh clone
	$(BIN)/python -m dev.firstuse.install_cost

bench: $(STAMP)      ## measure; ONLY=name runs some of it
	$(BIN)/python -m dev.bench $(ONLY)

release: $(STAMP)    ## build wheels and sdists twice, compare them, and write them with SBOM, licences and checksums into dist
	$(BIN)/python -m dev.release dist

image: $(STAMP)      ## build the container image with buildah; BASE=, EXTRAS=, FONTS=, IMAGE=
	$(BIN)/python -m dev.image build

image-check: $(STAMP) ## build the image, start it, send a task, stop it; needs root; UNAVAILABLE=skip
	$(BIN)/python -m dev.image check

conformance: $(STAMP) ## run the A2A conformance kit that lies at KIT
	$(BIN)/python -m dev.conformance $(KIT)

contract: $(STAMP)   ## take additions to the runtime contract over into its snapshot
	$(BIN)/python -m tests.faces.control.snapshot

chaos: $(STAMP)      ## break everything for 10 minutes and look whether it holds; SECONDS=, SEED=, WORKERS=
	$(BIN)/python -m dev.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(WORKERS),--workers $(WORKERS))

simulate: $(STAMP)   ## simulate a cluster that breaks; SEED= repeats one world, SECONDS= plays fresh ones for so long
	$(BIN)/python -m dev.simulation $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) $(if $(FRESH),--fresh $(FRESH))

AUDITOR := build/audit

$(AUDITOR)/.installed: constraints.txt
	$(PYTHON) -m venv $(AUDITOR)
	$(AUDITOR)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt pip-audit
	touch $@

audit: $(STAMP) $(AUDITOR)/.installed ## known vulnerabilities and licences of all that is installed; needs the network
	$(BIN)/python -m dev.audit $(AUDITOR)/bin/pip-audit

soak: $(STAMP)       ## kill -9 again and again, on SQLite and with two replicas; memory over 100,000 requests
	$(BIN)/pytest -s tests/test_crash.py --soak 100
	$(BIN)/pytest tests/test_replicas.py -k kill_9 --soak 50
	$(BIN)/pytest -s tests/test_generations.py --soak 100
	$(BIN)/python -m dev.bench.memory

clean:               ## forget what was built
	rm -rf $(VENV) $(DEV) build dist .ruff_cache .import_linter_cache $(addprefix sdk/typescript/,node_modules build dist) $(addprefix examples/agui/,node_modules dist)
