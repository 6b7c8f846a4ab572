# The two commands of the README; each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test quick lint check clean

demo: $(VENV)/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" sh ./demo.sh

test: $(VENV)/developing
	$(BIN)/python -m pytest -n auto

# Pure modules, and one walk down the whole line: under a minute on two cores.
quick: $(VENV)/developing
	$(BIN)/python -m pytest -n auto --quiet -m quick

lint: $(VENV)/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: $(VENV)/installed
	$(BIN)/kbindex check --strict --audit 8
	$(BIN)/kbindex eval tests/questions.jsonl --gate 'ndcg@10>=0.61' --gate 'span-hit@5>=0.58' \
		--gate 'lexical/recall@5>=0.95' --gate 'tail/recall@5>=0.85' --gate 'coverage>=0.999' \
		--gate 'round_trip>=1'

clean:
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/developing: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@
