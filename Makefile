# make demo   train the embedded default, print its results and the path of its report
# make test   lint, formatting, types, directions of imports, all tests
# make torture  count what holds when processes, disks, files and numbers fail (docs/running.md); ONLY=T1,F1: some of it
# make test-browser  the pages of ut explore and of ut export --format web in a browser without a window (Chromium, npm)
# make wheel  build a source archive and a wheel, check both, install the wheel in a clean environment, and add two numbers
# make site   build the documentation site into build/site, and stop at a broken link
# make lowest test the model, its execution and decoding with the lowest versions that pyproject.toml allows
# make test-transformers  the tests of transformers itself, and ours of its models and of ut lm-eval, in an environment
#             of their own
# make bench  measure this machine, compared with other libraries; make bench-gpu does it on a GPU
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOWEST ?= .venv-lowest
LOWEST_TESTS ?= tests/nn tests/execution tests/models tests/decoding tests/baselines
CLEAN  ?= .venv-wheel
PEER   ?= .venv-transformers
PEER_VERSION ?= 5.24.0
RELEASE := $(VENV)-release
SITE   := $(VENV)-site
BROWSER := tests/browser
PAGES  := build/web/demo build/web/sudoku build/web/babi-halting
CHROMIUM ?= $(firstword $(wildcard /usr/bin/chromium /usr/bin/chromium-browser /usr/bin/google-chrome))
CORES  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
QUIETLY := -q --disable-pip-version-check
VERIFIED = $(QUIETLY) --no-index --find-links
SHAPES := --jaxtyping-packages=universal_transformer,beartype.beartype
export MPLBACKEND := Agg
# which some machines set: each of some fifty processes would compile torch and the library again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-browser test-transformers laws compiled nightly torture lint format wheel site lowest clean \
  bench bench-docs bench-gpu $(PAGES)

# Packages come from files whose hashes stand in $(2), built where they must be; pip then installs from these alone.
define verified
	rm -rf $(1)/wheels && mkdir $(1)/wheels
	sed -n -E '/^(setuptools|pip)==/,/[^\\]$$/p' $(2) > $(1)/wheels/build.txt
	$(1)/bin/pip install $(QUIETLY) --require-hashes --no-deps -r $(1)/wheels/build.txt
	$(1)/bin/$(COLLECT) $(1)/wheels --no-build-isolation -r $(2)
endef
COLLECT := pip wheel $(QUIETLY) --require-hashes --no-deps -w

demo: $(VENV)/.installed
	$(BIN)/ut demo

# side by side, as mypy and the compiler use one core
test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory -j 3 lint compiled laws

laws: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(CORES) --dist worksteal $(SHAPES) -m "not slow and not compiled"

# in a process of its own, without the checks of shapes, which cannot be compiled
compiled: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m "compiled and not slow" $$(grep -rl mark.compiled tests --include=*.py)

test-browser: $(VENV)/.installed-dev
	@command -v npm > /dev/null || { echo 'test-browser: npm is missing (Node 20 or newer)' >&2; exit 1; }
	@test -x '$(CHROMIUM)' || { echo 'test-browser: Chromium is missing: apt-get install chromium, or CHROMIUM=FILE' >&2; exit 1; }
	$(MAKE) --no-print-directory -j 2 $(PAGES)
	CHROMIUM=$(CHROMIUM) UT_PYTHON=$(BIN)/python node --test --test-concurrency=2 --test-reporter=spec $(BROWSER)/*.test.mjs

$(PAGES): build/web/%: $(VENV)/.installed-dev $(BROWSER)/node_modules/.package-lock.json
	rm -rf $@
	$(BIN)/ut export $* --format web --runtime $(BROWSER)/node_modules/onnxruntime-web/dist --out $@

$(BROWSER)/node_modules/.package-lock.json: $(BROWSER)/package-lock.json
	npm ci --prefix $(BROWSER) --ignore-scripts --no-audit --no-fund --silent
	touch $@

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

nightly: $(VENV)/.installed-dev
	$(BIN)/pytest -q --products -m slow
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(CORES) --dist worksteal $(SHAPES) --checked-calls 1000000000 --products \
	  -m "not slow and not compiled"

# without the checks of shapes: the plugin of the lowest jaxtyping refuses packages that conftest.py has imported
lowest: $(LOWEST)/.installed
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -n $(CORES) --dist worksteal -m "not slow and not compiled" \
	  $(LOWEST_TESTS)

# their tests are in the source distribution alone; they have marks of their own, and test warnings
test-transformers: $(PEER)/.installed
	TRANSFORMERS_TESTS=$(PEER)/tests HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(PEER)/bin/python -m pytest -q -n $(CORES) \
	  --dist worksteal -o addopts=--import-mode=importlib -o filterwarnings=default tests/interop/test_transformers*.py \
	  tests/cli/test_lm_eval.py

# build/ goes first: files that an earlier build left there would be part of the wheel
wheel: $(VENV)/.wheels $(RELEASE)/.installed
	rm -rf build dist
	$(PYTHON) -m venv --clear $(CLEAN)
	$(RELEASE)/bin/python -c 'from setuptools.build_meta import build_sdist; build_sdist("dist")' > /dev/null
	$(CLEAN)/bin/pip wheel $(VERIFIED) $(VENV)/wheels --no-deps -w dist dist/*.tar.gz
	$(RELEASE)/bin/twine check --strict dist/*
	env -u PYTHONPATH $(CLEAN)/bin/pip install $(VERIFIED) $(VENV)/wheels dist/*.whl
	sum=$$(cd $(CLEAN) && echo 95+17 | env -u PYTHONPATH bin/ut predict addition) && echo "95+17=$$sum" && test "$$sum" = 112

# with the pages of two models where there is npm
site: $(SITE)/.installed
	! command -v npm > /dev/null || $(MAKE) --no-print-directory -j 2 $(PAGES)
	$(SITE)/bin/python tools/gather_site.py build/pages $(PAGES)
	$(SITE)/bin/zensical build --strict

torture: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m torture $(if $(ONLY),--only $(ONLY)) --write results/bench/reliability.md

bench: $(VENV)/.installed-peers
	$(BIN)/ut bench --json results/bench/machine.json

# every figure of docs/performance.md that a CPU gives: data, tables, plots (about half an hour, on a quiet machine)
bench-docs: $(VENV)/.installed-peers
	$(BIN)/ut bench halting continuous sweep train decode startup --threads 1 --seconds 3 \
	  --json results/bench/cpu.json --markdown --plots docs/images > results/bench/cpu.md

bench-gpu: $(VENV)/.installed
	$(BIN)/ut bench gpu --json results/bench/gpu.json

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format -q .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.wheels: $(VENV)/bin/python constraints.txt constraints-cpu.txt constraints-cuda.txt
	$(call verified,$(VENV),constraints.txt)
	$(BIN)/$(COLLECT) $(VENV)/wheels -r constraints-cpu.txt 2> /dev/null || \
	  $(BIN)/$(COLLECT) $(VENV)/wheels -r constraints-cuda.txt
	touch $@

$(VENV)/.installed: $(VENV)/.wheels pyproject.toml
	$(BIN)/pip install $(VERIFIED) $(VENV)/wheels --no-compile -e '.[all]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.wheels pyproject.toml
	$(BIN)/pip install $(VERIFIED) $(VENV)/wheels --no-compile -e '.[all,onnx,judge]' --group dev
	touch $@ $(VENV)/.installed

$(VENV)/.installed-peers: $(VENV)/.installed
	$(BIN)/pip install $(QUIETLY) -e '.[peers]'
	touch $@

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(call verified,$(LOWEST),constraints-lowest.txt)
	$(LOWEST)/bin/pip install $(VERIFIED) $(LOWEST)/wheels -e . \
	  beartype hypothesis pytest pytest-timeout pytest-xdist
	touch $@

$(PEER)/.installed: pyproject.toml
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/pip install $(QUIETLY) 'transformers==$(PEER_VERSION)' -e '.[transformers,onnx,lm-eval]' \
	  beartype hypothesis parameterized pytest pytest-timeout pytest-xdist
	rm -rf $(PEER)/sdist $(PEER)/tests && mkdir $(PEER)/sdist
	$(PEER)/bin/pip download $(QUIETLY) --no-binary :all: --no-deps -d $(PEER)/sdist 'transformers==$(PEER_VERSION)'
	tar -xzf $(PEER)/sdist/*.tar.gz -C $(PEER) --strip-components=1 --wildcards '*/tests'
	touch $(PEER)/tests/__init__.py $@

$(RELEASE)/.installed $(SITE)/.installed: $(VENV)-%/.installed: constraints-%.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(call verified,$(@D),$<)
	$(@D)/bin/pip install $(VERIFIED) $(@D)/wheels $$(sed -n 's/^\(twine\|zensical\|mkdocstrings-python\)==.*/\1/p' $<)
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) $(CLEAN) $(PEER) $(RELEASE) $(SITE) $(BROWSER)/node_modules .cache build dist *.egg-info src/*.egg-info \
	  .mypy_cache .pytest_cache .ruff_cache
