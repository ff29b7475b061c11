# Each target makes the environment that it needs; nothing has to be installed or running before,
# but Python 3.10 or newer with its venv module (Debian: apt install python3-venv).

PYTHON ?= python3
JOBS ?= 2
SECONDS ?= 600
FUZZ_S ?= 300
export FUZZ_S
TORCH ?= torch==2.13.0
FRAMEWORKS ?= transformers==5.24.0 accelerate==1.15.0 lightning==2.6.6 megatron-core==0.16.1 \
  'torchtitan==0.3.0; python_version >= "3.11"'
ON_CITUS = tests/test_http_scenarios.py tests/http tests/metrics $(addprefix tests/postgres/test_,$(addsuffix .py,counters \
  held_up_parts jobs_due resumed retention rollups scenarios_stored segment_retention store worker))
PEER ?= ml-goodput-measurement==0.2.3
TRACER ?= opentelemetry-sdk==1.45.2
LOCK = .venv-lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.10 --generate-hashes \
  --custom-compile-command 'make lock' $(UPGRADE)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/service.stamp ## a small training run that is killed and hangs, and its ledger in under a minute; Ctrl-C ends it
	.venv/bin/python -m fleet_ett demo

.PHONY: test
test: lint prometheus ## all checks and tests, but those that need PyTorch
	.venv/bin/python -m tests.security.installed deploy/locks/dev.lock
	.venv/bin/python -m pytest -n $(JOBS) --dist loadfile -m "not torch and not integrations"

.PHONY: test-torch
test-torch: .venv-torch/torch.stamp ## a real PyTorch job under torchrun, one worker killed
	.venv-torch/bin/python -m pytest -m torch tests/torch

.PHONY: test-integrations
test-integrations: .venv-torch/frameworks.stamp ## the real Trainers of FRAMEWORKS, killed and resumed
	.venv-torch/bin/python -m pytest -m integrations tests/integrations

.PHONY: soak
soak: SECONDS = 1800
soak: .venv/dev.stamp ## kills, cuts, full disks and wrong clocks from trainer to database for SECONDS (default 1800), books compared
	ETT_TEST_CHAOS_SECONDS=$(SECONDS) .venv/bin/python -m pytest tests/chaos

.PHONY: test-images
test-images: .venv/dev.stamp ## the Dockerfiles' commands in a folder, with all packages by their hashes (a minute)
	ETT_TEST_IMAGES=1 .venv/bin/python -m pytest tests/deploy/test_images.py

.PHONY: test-citus
test-citus: .venv/dev.stamp ## the service on three servers with Citus, of the PostgreSQL whose programs ETT_PG_BIN names
	ETT_TEST_CITUS=1 .venv/bin/python -m pytest -n $(JOBS) --dist loadfile $(ON_CITUS)

.PHONY: soak-faults
soak-faults: .venv/dev.stamp ## faults that take their time: kills for SECONDS (default 600), a file system that runs full
	ETT_SOAK=1 ETT_TEST_FAULT_SECONDS=$(SECONDS) .venv/bin/python -m pytest tests/faults

.PHONY: lint
lint: .venv/dev.stamp ## style, types, and who may import whom
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

.PHONY: rules
rules: .venv/service.stamp ## deploy/prometheus/rules.yaml and its PrometheusRule from objectives.yaml beside it
	.venv/bin/python -m fleet_ett rules render deploy/prometheus/objectives.yaml --output deploy/prometheus/rules.yaml
	.venv/bin/python -m fleet_ett rules render deploy/prometheus/objectives.yaml --kubernetes \
	  --output deploy/kubernetes/prometheus-rule.yaml

.PHONY: dashboards
dashboards: .venv/dev.stamp ## deploy/grafana/dashboards from their source and the objectives (Python 3.11 or newer)
	PYTHONPATH=deploy/grafana/src .venv/bin/python -m ett_dashboards

.PHONY: prometheus
prometheus: ## the real Prometheus and Alertmanager, which the tests run (root: installs Debian's, starts no service)
	.ci/prometheus

.PHONY: format
format: .venv/dev.stamp ## put the code into the house's shape
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

.PHONY: bench
bench: .venv-bench/bench.stamp ## speed against the closest peer, as ratios of one run
	.venv-bench/bin/python tests/bench/core.py

.PHONY: bench-recorder
bench-recorder: .venv-bench/bench.stamp ## what recording costs a trainer, beside its peers
	.venv-bench/bin/python tests/bench/recorder.py

.PHONY: bench-slowdown
bench-slowdown: .venv-torch/torch.stamp ## a real PyTorch loop under ett-run beside the same without it
	.venv-torch/bin/python tests/bench/slowdown.py

.PHONY: bench-agent
bench-agent: .venv-bench/bench.stamp ## what an agent with 8 ranks costs its node
	.venv-bench/bin/python -m tests.bench.agent

.PHONY: bench-ingest
bench-ingest: .venv-bench/bench.stamp ## events a second over HTTP, against COPY of the same rows
	.venv-bench/bin/python -m tests.bench.ingest

.PHONY: bench-overload
bench-overload: .venv-bench/bench.stamp ## the service's memory while clients post far too much, and who is answered (1 minute)
	.venv-bench/bin/python -m tests.bench.overload

.PHONY: bench-outage
bench-outage: .venv-bench/bench.stamp ## 5,000 agents come back with an hour of spool each (2.7M events, minutes)
	.venv-bench/bin/python -m tests.bench.outage

.PHONY: bench-shards
bench-shards: .venv-bench/bench.stamp ## several database servers against one, on this machine
	.venv-bench/bin/python -m tests.bench.shards

.PHONY: bench-attribution
bench-attribution: .venv-bench/bench.stamp ## what a booking costs: a job of 500 attempts beside one of 1, a fleet of live jobs
	.venv-bench/bin/python -m tests.bench.attribution

.PHONY: bench-freshness
bench-freshness: .venv-bench/bench.stamp ## from an acknowledged batch to its job's books over REST, of 500 live jobs
	.venv-bench/bin/python -m tests.bench.freshness

.PHONY: bench-readers
bench-readers: .venv-bench/bench.stamp ## how long readers of 10,000 jobs of 30 days wait, over HTTP (minutes to fill)
	.venv-bench/bin/python -m tests.bench.readers

.PHONY: bench-scrape
bench-scrape: .venv-bench/bench.stamp ## what a scrape of /metrics costs with 10, 1,000 and 10,000 live jobs (3 minutes)
	.venv-bench/bin/python -m tests.bench.scrape

.PHONY: bench-alerting
bench-alerting: .venv-bench/bench.stamp prometheus ## what 30 days of history cost the rules, and how soon an alert comes (15 minutes)
	.venv-bench/bin/python -m tests.bench.alerting

.PHONY: bench-fleet
bench-fleet: .venv-bench/bench.stamp ## all that a large fleet asks for, as one table with goals (an hour, and the machine alone)
	.venv-bench/bin/python -m tests.bench.fleet

.PHONY: clean
clean: ## remove the environments and caches
	rm -rf .venv .venv-audit .venv-bench .venv-lock .venv-torch build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: audit
audit: .venv/dev.stamp .venv-audit/audit.stamp ## what is installed is what the lock says; bandit; known vulnerabilities
	.venv/bin/python -m tests.security.installed deploy/locks/dev.lock
	# what these three would say stands, with its reason, on the lines that ruff's S rules excuse
	.venv-audit/bin/bandit --quiet -ll --skip B108,B310,B608 -r service collectors
	# asks the Python Package Index: "could not be audited" where only a mirror of its files is reached
	.venv-audit/bin/pip-audit --disable-pip --require-hashes -r deploy/locks/service.lock

.PHONY: fuzz
fuzz: .venv/fuzz.stamp ## hostile input: atheris (where it is to be had) for FUZZ_S seconds, the rest in proportion
	ETT_TEST_EXAMPLES=$$((FUZZ_S * 20)) SCHEMATHESIS_EXAMPLES=$$((FUZZ_S / 3)) \
	  .venv/bin/python -m pytest -n $(JOBS) tests/security tests/wire tests/postgres/test_blocks.py
	mkdir -p .hypothesis/atheris
	if .venv/bin/python -c 'import atheris'; then \
	  .venv/bin/python -m tests.security.fuzz -max_total_time=$(FUZZ_S) -max_len=8192 .hypothesis/atheris; \
	fi

.PHONY: lock
lock: .venv-lock/lock.stamp ## pin what pyproject.toml allows, for all Pythons; UPGRADE=--upgrade takes the newest
	$(LOCK) --extra service --group dev -o deploy/locks/dev.lock
	$(LOCK) --extra service -c deploy/locks/dev.lock -o deploy/locks/service.lock
	$(LOCK) --group build -c deploy/locks/dev.lock -o deploy/locks/build.lock
	$(LOCK) --group audit -o deploy/locks/audit.lock
	$(LOCK) --group fuzz -o deploy/locks/fuzz.lock

# An environment is made anew when pyproject.toml changes what may be in it.
# Packages come by hash from deploy/locks/; the project itself is built by what is locked, too.
.venv/made.stamp .venv-audit/made.stamp .venv-bench/made.stamp .venv-lock/made.stamp .venv-torch/made.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "$(PYTHON) is older than 3.10: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(@D) || { echo "no venv: apt install python3-venv" >&2; exit 1; }
	@touch $@

.venv/service.stamp .venv-bench/service.stamp: %/service.stamp: %/made.stamp deploy/locks/build.lock deploy/locks/service.lock
	$*/bin/python -m pip install --quiet --require-hashes -r deploy/locks/build.lock -r deploy/locks/service.lock
	$*/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev.stamp: .venv/service.stamp deploy/locks/dev.lock
	.venv/bin/python -m pip install --quiet --require-hashes -r deploy/locks/dev.lock
	@touch $@

.venv/fuzz.stamp: .venv/dev.stamp deploy/locks/fuzz.lock
	.venv/bin/python -m pip install --quiet --require-hashes -r deploy/locks/fuzz.lock
	@touch $@

.venv-audit/audit.stamp: .venv-audit/made.stamp deploy/locks/audit.lock
	.venv-audit/bin/python -m pip install --quiet --require-hashes -r deploy/locks/audit.lock
	@touch $@

.venv-lock/lock.stamp: .venv-lock/made.stamp
	.venv-lock/bin/python -m pip install --quiet uv
	@touch $@

.venv-torch/torch.stamp: .venv-torch/made.stamp
	.venv-torch/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	.venv-torch/bin/python -m pip install --quiet '$(TORCH)' numpy
	.venv-torch/bin/python -m pip install --quiet --editable '.[service]' --group test
	@touch $@

.venv-torch/frameworks.stamp: .venv-torch/torch.stamp
	.venv-torch/bin/python -m pip install --quiet '$(TORCH)' $(FRAMEWORKS)
	@touch $@

.venv-bench/bench.stamp: .venv-bench/service.stamp
	.venv-bench/bin/python -m pip install --quiet '$(PEER)' '$(TRACER)'
	@touch $@
