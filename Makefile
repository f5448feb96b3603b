# Begin with `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST = $(BIN)/python -m pytest
# Two parts of the tests run at the same time.  Experiments run together with tests that
# start servers: one experiment per core, and two server tests per core, because these
# wait more than they compute.  Experiments that must run alone wait most of the time, and
# run together with unit tests, one per core.  Of two parts, the tests that are not
# experiments have a lower priority, but still get time on a busy machine.
# SIDE=1 runs one part after the other.
CORES := $(shell nproc)
EXPERIMENTS ?= $(CORES)
WORKERS ?= $(shell expr 2 \* $(CORES))
SIDE ?= 2
GIVE_WAY = $(if $(filter 1,$(SIDE)),,nice -n 5)
# Each file runs in one process.  Status 5 means that a part has no test.  Each part has its
# own cache, because parts that end at the same time would overwrite each other's failures.
part = $(PYTEST) $(3) -n $(1) --dist loadfile --no-loadscope-reorder -m "$(2)" \
	-o cache_dir=.pytest_cache/$@ $(4) $(PYTEST_ARGS) || test $$? = 5
beside = $(MAKE) --no-print-directory -k -j$(SIDE)
# Without bytecode files, each process would compile its imports again, which takes five of
# ten seconds of test collection.
unexport PYTHONDONTWRITEBYTECODE
# The image has no kubeconfig, and the extra for it would add 75 MB.
EXTRAS = --extra server --extra agent --extra tracing --extra sentry
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --constraint requirements.txt --no-emit-find-links --no-header
# In the locale C, Python 3.11 does not start from a .venv whose path is not ASCII.
ifneq ($(filter C POSIX,$(LC_ALL)),)
export LC_ALL := C.UTF-8
endif
# All checkouts share the cache, because building Kubernetes takes nine minutes.
KUBE_CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/txkas-kube

.PHONY: help demo test unit related integration lint types layers docs protos page wheel wheels bench \
	faults alone experiments servers compiled pure fresh peers lock lockimage kube clean

help:  ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 14

# --no-deps, because the file lists all dependencies: for a requirement with an extra, such
# as coverage[toml], pip would resolve the newest version, and refuse it without a hash.
$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)  ## run the main job on this machine; ONCE=1 ends by itself, GITLAB=1, GITOPS=1, LIVE=1, PAGE=1 and GOVERNANCE=1 show more
	@$(BIN)/python -m demo $(if $(ONCE),--once) $(if $(GITLAB),--gitlab) $(if $(GITOPS),--gitops) $(if $(LIVE),--live) $(if $(PAGE),--page) $(if $(GOVERNANCE),--governance) $(if $(CLUSTER),--cluster $(CLUSTER))

# Compiled modules must not be older than their sources.
demo bench: | fresh
fresh: $(STAMP)
	@$(BIN)/python -m tools.compiled --check

test: $(STAMP)  ## run all tests that can run here, and list the others
	failed=0; $(beside) alone unit || failed=1; \
	$(beside) experiments servers || failed=1; exit $$failed

unit: $(STAMP)  ## run the tests that start no server
	$(GIVE_WAY) $(call part,$(CORES),not integration,,$(UNIT_ARGS))

related: $(STAMP)  ## run the tests that a change needs: FILE="kas/a.py kas/b.py", or the changed files; DEPTH=1
	tests=$$($(BIN)/python -m tools.related $(if $(DEPTH),--depth $(DEPTH)) $(FILE)) || exit; \
	$(PYTEST) -n $(CORES) --dist loadfile $$tests $(PYTEST_ARGS)

integration: $(STAMP)  ## run the tests with real processes and servers
	failed=0; $(MAKE) --no-print-directory alone || failed=1; \
	$(beside) experiments servers || failed=1; exit $$failed

faults: $(STAMP)  ## run the long experiments with faults; results in build/faults.json
	export TXKAS_FAULTS=long; $(MAKE) --no-print-directory -k alone experiments

alone: $(STAMP)
	$(call part,0,alone,tests/faults)

experiments: $(STAMP)
	$(call part,$(EXPERIMENTS),not alone,tests/faults)

servers: $(STAMP)
	$(GIVE_WAY) $(call part,$(WORKERS),integration and not faults)

lint: $(STAMP)  ## check the style of the code, and the language of code, messages and documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.prose
	@test ! -e twisted/__init__.py -a ! -e twisted/plugins/__init__.py || \
		{ echo "twisted/ must not have an __init__.py: it would replace Twisted's" >&2; exit 1; }

types: $(STAMP)  ## check the types with mypy
	$(BIN)/mypy

layers: $(STAMP)  ## check which packages import which
	$(BIN)/lint-imports

docs: $(STAMP)  ## build HTML in build/docs; a warning is an error
	$(BIN)/sphinx-build -q -W -E -b html docs build/docs

protos: $(STAMP)  ## generate the code of the .proto files
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
		$$(git ls-files '*.proto' ':!examples')

# The files are in the repository, so that only authors of the page need Node.
page:  ## check and build the files that browsers load (Node 20); CHECK=1 compares them with those in the repository
	cd modules/web_page/browser && npm ci --ignore-scripts --no-audit --no-fund --silent \
		&& npm run --silent types && npm run --silent lint && npm test --silent \
		&& npm run --silent build -- $(if $(CHECK),--check)

wheel: $(STAMP)  ## build the wheel, from sources and compiled, and try both and the example
	$(BIN)/python -m tools.check_wheel

wheels: $(STAMP)  ## build a compiled wheel in dist/ for each Python found, or PYTHONS="3.11 3.12"
	$(BIN)/python -m tools.wheels $(PYTHONS)

compiled: $(STAMP)  ## compile the code that handles each request, in this checkout (needs a C compiler)
	$(BIN)/python -m tools.compiled

pure:  ## remove the results of `make compiled`, so that the sources run again
	$(PYTHON) -m tools.compiled --clean

bench: $(STAMP)  ## measure speed as ratios to floors; build/bench.json (QUICK=1: a minute; NICE=10: floods give way)
	$(BIN)/python -m bench

kube:  ## build a Kubernetes control plane, helm, kustomize and sops for the tests (16 minutes, Go)
	tests/kube/build-go-tool helm
	tests/kube/build-go-tool kustomize
	tests/kube/build-go-tool sops
	tests/kube/build

peers:  ## build/peers with other tunnels, for BENCH_PEERS=build/peers make bench (Go)
	mkdir -p build/peers
	set -e; for peer in chisel konnectivity; do \
		programs=$$(tests/kube/build-go-tool $$peer); ln -sf $$programs build/peers; done

lock: $(STAMP)  ## update requirements.txt from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade \
		--generate-hashes --all-extras --group dev --no-emit-find-links \
		--no-header -o requirements.txt pyproject.toml
	$(MAKE) --no-print-directory lockimage

lockimage: $(STAMP)  ## update the requirements of deploy/Containerfile from requirements.txt
	$(COMPILE) $(EXTRAS) -o requirements-runtime.txt pyproject.toml
	$(COMPILE) $(EXTRAS) --group build --group compile -o requirements-build.txt pyproject.toml

clean:  ## remove everything that was built here
	-$(PYTHON) -m tools.compiled --clean
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
