# darkroom: every target installs what it needs and says one line a step. JOBS=N: N compilers at a time.
PREFIX ?= /usr/local
CUDA ?=

.PHONY: help setup build python notebooks demo serve-demo test acceptance cluster cluster-faults mutants fuzz parity bench lint format install wheel clean
.DEFAULT_GOAL := help
.NOTPARALLEL: # One environment, one compiler for all cores: `make -j` gains nothing and would set up .venv twice at once.

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## install Debian packages and the Python environment (hash-pinned)
	@tools/build/setup.sh build

build: setup ## compile; the program is build/darkroom
	@tools/build/build.sh release darkroom

demo: build ## the whole chain on this machine: URL list -> pictures, in demo-run/
	@build/darkroom demo demo-run

serve-demo: build ## the playground's page with the shipped model, and with what `make demo` trained; PORT=8080
	@tools/build/serve_demo.sh

test: ## unit, golden, integration, acceptance (short), structure and sanitizer tests
	@tools/build/setup.sh test
	@.venv/bin/python tools/check/run_tests.py

acceptance: build ## the data plane against a hostile web, bad disks and stores, kills; the endpoint under load (12 minutes; docs/testing.md)
	@tools/build/setup.sh acceptance
	@.venv/bin/python tests/acceptance/acceptance.py

cluster: build ## the whole chain as Ray jobs on three nodes of this machine, and its endpoint (15 minutes; docs/cluster.md)
	@tools/build/setup.sh ray
	@.venv/bin/python tests/acceptance/cluster.py
	@.venv/bin/python tests/acceptance/ray_serve.py

cluster-faults: build ## kills of every kind on such a cluster, nodes that leave and come, an autoscaler (25 minutes; docs/testing.md)
	@tools/build/setup.sh ray
	@.venv/bin/python tests/acceptance/ray_kills.py
	@.venv/bin/python tests/acceptance/ray_elastic.py
	@.venv/bin/python tests/acceptance/ray_autoscale.py

# Before the long compile. A machine without Python has no `setup` behind it yet; the copying asks again.
.PHONY: writable
writable:
	@! command -v python3 >/dev/null || tools/build/installed_tree.py writable "$(PREFIX)"

# CUDA=1: the plugin for NVIDIA's GPUs, too.
.PHONY: plugin
plugin:
ifeq ($(CUDA),1)
	@tools/build/setup.sh cuda
	@tools/build/build.sh cuda libdarkroom_cuda.so
endif
WITH_PLUGIN = $(if $(filter 1,$(CUDA)),--plugin build/cuda/libdarkroom_cuda.so)

install: writable plugin build ## the program and all that it opens into PREFIX (/usr/local); CUDA=1: also for GPUs; docs/installing.md
	@.venv/bin/python tools/build/installed_tree.py install "$(PREFIX)" $(WITH_PLUGIN)

python: build ## `import darkroom` over the C++ code, in build/release/python; docs/python.md
	@tools/build/build.sh release python

notebooks: python ## run notebooks/*.ipynb; with their pictures they are in build/notebooks
	@tools/build/setup.sh notebooks
	@.venv-notebooks/bin/python tools/notebooks/run_notebooks.py build/notebooks

wheel: plugin python ## dist/darkroom-VERSION-*.whl for pip; CUDA=1: also for GPUs; docs/installing.md
	@.venv/bin/python tools/build/installed_tree.py wheel dist $(WITH_PLUGIN)

mutants: setup ## plant small faults and count how many the tests notice (an hour; goes on where it was cut)
	@.venv/bin/python tools/check/mutants.py

fuzz: setup ## libFuzzer on the readers of foreign bytes, a minute each (wants clang)
	@tools/check/fuzz.sh

parity: build ## live comparison with diffusers, transformers, Pillow at pinned versions
	@tools/build/setup.sh parity
	@tools/parity/run.sh

bench: build ## ours and the peers side by side
	@benchmarks/bench.sh

lint: setup ## formatting and structure checks
	@.venv/bin/python tools/check/check_structure.py
	@tools/check/check_format.sh

format: setup ## format all C++ sources
	@tools/check/check_format.sh --fix

clean: ## remove build folders and the demo's output (keeps .venv)
	@rm -rf build dist demo-run
