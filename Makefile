# Every target sets up .venv when pyproject.toml or constraints.txt is newer than the last set-up.

.PHONY: demo test slow tpu torture lint types check clean

demo: .venv/.ready
	.venv/bin/transduce train experiments/phrasebook.py --workdir runs/phrasebook

# Property tests draw the same examples each time, so that what passes here passes elsewhere; pytest
# without this profile draws new ones.
PYTEST := .venv/bin/python -m pytest --hypothesis-profile=ci

# A file's tests stay in one process, where they share what is dear to make.
test: .venv/.ready
	$(PYTEST) -m "not slow and not tpu" -n auto --maxprocesses=8 --dist loadfile

# One after the other: they start programs of several processes, and some are about time.
slow: .venv/.ready
	$(PYTEST) -m slow

# What compiles for TPUs that are not here. The compiler lies beside the environment's packages: with it
# among them JAX would look for TPUs at each start.
LIBTPU := .venv/libtpu/libtpu/libtpu.so

tpu: $(LIBTPU)
	TPU_LIBRARY_PATH='$(CURDIR)/$(LIBTPU)' $(PYTEST) -m tpu

$(LIBTPU): .venv/.ready
	@echo "Installing libtpu into .venv (0.5 GB)"
	@rm -rf .venv/libtpu
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    --no-deps --target .venv/libtpu libtpu
	@touch $@

# Cuts a run a hundred times at random moments and compares its end with that of a whole one.
torture: .venv/.ready
	.venv/bin/python tests/torture.py --cuts 100

lint: .venv/.ready
	.venv/bin/ruff format --check
	.venv/bin/ruff check

types: .venv/.ready
	.venv/bin/pyright

# Everything that continuous integration runs.
check: lint types test slow tpu

# What a run made (runs/) stays.
clean:
	rm -rf .venv dist .hypothesis .pytest_cache .ruff_cache
	find src experiments tests -name __pycache__ -prune -exec rm -rf {} +

# A candidate counts only if it runs: a pyenv shim may lie on the PATH and fail, and Debian's python3
# comes without ensurepip.
PYTHONS := python3.12 python3.13 python3 python "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin/python
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))
NO_PYTHON := No Python >= 3.12 with its venv module was found: install one (Debian and Ubuntu: \
	python3.12 and python3.12-venv; macOS: brew install python@3.12; or pyenv install 3.12).

.venv/.ready: pyproject.toml constraints.txt
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || { \
	    for python in $(PYTHONS) none; do \
	        "$$python" -c '$(SUITABLE)' >/dev/null 2>&1 && break; \
	    done; \
	    [ "$$python" != none ] || { echo "$(NO_PYTHON)" >&2; exit 1; }; \
	    echo "Making .venv with $$("$$python" --version)"; \
	    "$$python" -m venv --clear .venv; \
	}
	@echo "Installing into .venv (1.3 GB)"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
