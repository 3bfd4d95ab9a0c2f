# Needs Python >= 3.11, pip and make; every target sets up what it uses.
#   make test PYTHON=python3.12    another interpreter (after `make clean`)
#   make test JOBS=8               more test workers
PYTHON ?= python3
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.installed

.PHONY: help test lint demo docs wheel bench fuzz chaos soak clean
.DELETE_ON_ERROR:

help:
	@echo "make test    ruff, basedpyright and pytest"
	@echo "make lint    ruff and basedpyright alone"
	@echo "make demo    measure figure 1 of the paper on a small network, and write the report page"
	@echo "make docs    build the site into site/, without a network"
	@echo "make wheel   build the wheel into dist/, and try it in an empty environment (minutes)"
	@echo "make bench   run the benchmarks, append rows to benchmarks/results.csv"
	@echo "make fuzz    read 10,000 mutated files (minutes)"
	@echo "make chaos   kill 100 processes, and disturb a fleet for 200 generations (minutes)"
	@echo "make soak    train, evolve, run and report for an hour, with flat memory"
	@echo "make clean   remove the environment, caches and build outputs"

# --no-deps: bayesian-torch declares torchvision and tensorboard, but its layers import only torch, and a torchvision
# that matches the torch build in use may not exist; EvoTorch declares ray, gym and more. The libraries whose models
# tests/zoo runs could bring another torch.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev,docs,experiments,triton,ray,rl]'
	$(PIP) --no-deps bayesian-torch evotorch
	$(PIP) httpx2 psutil regex safetensors xxhash
	$(PIP) --no-deps accelerate huggingface_hub peft stable-baselines3 tokenizers torch_geometric transformers
	@touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright

# One thread per worker: the tests' tensors are small, so processes share the cores better than threads do. A worker runs
# whole files, whose tests share what takes seconds to make: processes, models, a browser.
# The type checker runs beside them, in the time in which they wait for processes, and has the last word.
test: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(BIN)/basedpyright > $(VENV)/types.log 2>&1 & checker=$$!; \
	echo "basedpyright and pytest -n $(JOBS) --dist loadfile"; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$checker; types=$$?; \
	cat $(VENV)/types.log; \
	exit $$((tests || types))

demo: $(INSTALLED)
	rm -rf runs/demo
	$(BIN)/flipout demo

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html in a browser; it has a search box if served: python3 -m http.server -d site"

wheel: $(INSTALLED)
	$(BIN)/python -m build
	$(BIN)/python -m pytest tests/test_release.py -m 'slow or not slow'

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

# Hypothesis draws other cases each time; CI draws the same few hundred.
fuzz: $(INSTALLED)
	rm -f docs/reliability/fuzz.jsonl
	FLIPOUT_FUZZ=10000 FLIPOUT_FUZZ_OUT=docs/reliability/fuzz.jsonl OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest tests/faults/test_fuzz.py -n $(JOBS)

chaos: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.chaos --out docs/reliability/chaos.json
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/faults/test_chaos.py -m 'slow or not slow'

soak: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.soak --seconds 3600 --out docs/reliability/soak.json

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
