# One entry per job; the work is in hack/ and in Go. "make help" lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The version is written in with -X; stamping by the go tool would fail in a checkout that another user owns.
export GOFLAGS := $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)'

TOOLS := $(CURDIR)/bin/tools
TOOLS_STAMP := $(TOOLS)/.stamp

# Packages with tests that need a Docker engine. Their results depend on the engine, so they are never taken from the cache.
DOCKER_PACKAGES = $(shell grep -rl --include='*_test.go' '^//go:build .*docker' . | xargs -r -n1 dirname | sort -u)

# Packages with tests that -short makes a sample of: by themselves, or as rapid does.
LONG_PACKAGES = $(shell grep -rl --include='*_test.go' -e 'testing.Short()' -e '"pgregory.net/rapid"' . | xargs -r -n1 dirname | sort -u)

# In "make test" each package is tested by one target: on Docker, else in full, else as a sample. IN_FULL and ON_DOCKER are set there alone.
ALL_PACKAGES = $(patsubst $(CURDIR)%,.%,$(shell go list -f '{{.Dir}}' ./...))
test: IN_FULL = $(LONG_PACKAGES)
test: ON_DOCKER = $(DOCKER_PACKAGES)

##@ Everyday

.PHONY: help
help: ## List all targets.
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/agboxd, bin/agbox and bin/agbox-shim (static).
	$(GO_BUILD) -o bin/ ./cmd/agboxd ./cmd/agbox ./cmd/agbox-shim

.PHONY: demo
demo: ## See it work: a sandbox whose exec survives kill -9 of the daemon.
	hack/demo.sh

.PHONY: bench
bench: engine image build ## Compare agbox with the bare Docker API, or with the programs in AGAINST, a directory, side by side.
	CGO_ENABLED=0 go run ./hack/bench $(if $(AGAINST),-against $(AGAINST))

PROGRAMS := agboxd agbox agbox-shim
BIN ?= bin
PREFIX ?= /usr/local
UNIT := $(DESTDIR)/etc/systemd/system/agboxd.service
COMPLETION := $(DESTDIR)$(PREFIX)/share/bash-completion/completions/agbox

.PHONY: install
install: ## Install what "make build" built, and the systemd unit, below PREFIX (/usr/local) and DESTDIR (root).
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(addprefix $(BIN)/,$(PROGRAMS))
	install -d -m 755 $(dir $(UNIT)) $(dir $(COMPLETION)) $(DESTDIR)/etc/agents-sandbox
	install -d -m 700 $(DESTDIR)/var/lib/agents-sandbox
	sed 's#/usr/local/bin/#$(PREFIX)/bin/#' config/systemd/agboxd.service > $(UNIT)
	chmod 644 $(UNIT)
	$(BIN)/agbox completion bash > $(COMPLETION)
	$(if $(DESTDIR),,if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi)
	@echo 'installed; start it with: systemctl enable --now agboxd (docs/install.md)'

.PHONY: uninstall
uninstall: ## Stop the service and remove what install installed. Sandboxes and their data stay (root).
	$(if $(DESTDIR),,if [ -d /run/systemd/system ]; then systemctl disable --now agboxd || true; fi)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(PROGRAMS)) $(UNIT) $(COMPLETION)
	$(if $(DESTDIR),,if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi)
	@echo 'These stay: /var/lib/agents-sandbox (records, logs), /etc/agents-sandbox (configuration), and in Docker the sandboxes, their networks,'
	@echo 'images, and the volume agbox-marker-<instance>. docs/install.md says how to remove them.'

.PHONY: clean
clean: ## Remove what was built; the tools stay (rm -r bin for those too).
	rm -f bin/agboxd bin/agbox bin/agbox-shim

##@ Tests

.PHONY: test
test: engine image build test-unit test-long test-docker test-hack ## Run every test, unit and real Docker, with the race detector.

.PHONY: test-unit
test-unit: test-tools ## Run the tests that need neither Docker nor a network, long ones as a sample, with the race detector.
	go test -race -short -p 4 -timeout 10m $(filter-out $(IN_FULL) $(ON_DOCKER),$(ALL_PACKAGES)) # many of them wait more than they work
	go test -tags faults ./internal/fault/...

.PHONY: test-long
test-long: test-tools ## Run the tests of which test-unit runs a sample: properties, kills, every byte of a file.
	go test -race -timeout 20m $(filter-out $(ON_DOCKER),$(LONG_PACKAGES))

.PHONY: test-docker
test-docker: test-tools engine image build ## Run the tests of the packages that use a real Docker engine.
	$(if $(DOCKER_PACKAGES),go test -race -count=1 -timeout 40m -tags docker $(DOCKER_PACKAGES),@echo 'no package has Docker tests')

.PHONY: test-packages
test-packages: test-tools engine image build ## Install packages with apt, dnf, pip and sudo in sandboxes of both profiles (root).
	hack/debian-image.sh packages
	go test -race -count=1 -timeout 20m -tags docker -run TestPackageManagers ./internal/testing/e2e -packages agbox-packages:dev

.PHONY: test-agents
test-agents: test-tools engine image build dev-image ## Run Claude Code, Gemini CLI and opencode from npm in sandboxes, with a scripted model (root).
	agents=$$(hack/agents.sh) && go test -race -count=1 -timeout 20m -tags docker -run 'TestReal(Agents|Clients)' ./internal/testing/e2e -agents $$agents

.PHONY: test-e2b
test-e2b: test-tools engine image build dev-image interpreter-image ## Run releases of E2B's SDK from npm, and the examples, against a daemon that is killed in the middle of its calls (root).
	sdks=$$(hack/e2b.sh) && go test -race -count=1 -timeout 20m -tags docker -run 'TestE2B' ./internal/testing/e2e -e2b $$sdks

.PHONY: test-prometheus
test-prometheus: test-tools engine image ## Run the alerts and the dashboard of config/prometheus in Debian's Prometheus, against a daemon.
	prometheus=$$(hack/prometheus.sh) && go test -race -count=1 -timeout 20m -tags docker -run 'TestPrometheus$$' ./internal/testing/e2e -prometheus $$prometheus

.PHONY: test-engine-latest
test-engine-latest: test-tools build ## Run the Docker tests on the engine of engine-latest, in its network namespace (root).
	hack/engine-latest.sh run hack/base-image.sh
	hack/engine-latest.sh run go test -race -count=1 -timeout 40m -tags docker $(DOCKER_PACKAGES)

.PHONY: test-runsc
test-runsc: test-tools engine image ## Build gVisor's runsc and run conformance and kills of agboxd with it, on private engines (root).
	runsc=$$(hack/runsc.sh) && AGBOX_RUNSC=$$runsc go test -race -count=1 -timeout 40m -p 1 -tags docker -v -run 'TestGVisor|TestARuntimeThatIsNamed|TestOnGVisor' ./internal/testing/e2e ./internal/testing/conformance

.PHONY: test-userns
test-userns: test-tools engine image ## Run the conformance suite on a private engine that remaps users (root).
	AGBOX_REMAP=1 go test -race -count=1 -timeout 20m -tags docker -v -run TestOnARemappingEngine ./internal/testing/conformance

.PHONY: test-rootless
test-rootless: engine image ## Run the conformance suite on a private rootless engine, as its user (root).
	hack/test-tools.sh rootless
	AGBOX_ROOTLESS=1 go test -race -count=1 -timeout 20m -tags docker -v -run TestOnARootlessEngine ./internal/testing/conformance

PATTERN ?=

.PHONY: test-vm
test-vm: engine image ## Run end-to-end tests, those that match PATTERN, in a virtual machine with cgroup v2 and Debian 13's Docker (root).
	hack/vm-test.sh $(if $(PATTERN),'$(PATTERN)')

.PHONY: test-hack
test-hack: engine ## Test hack/engine.sh: kill an engine of its own in many ways, start it again (root).
	hack/engine-test.sh

DURATION ?= 2m
SEED ?= 1
FAULTS ?= kill,proxy,enospc,oom,clock

.PHONY: storm
storm: engine image ## Storm agboxd for DURATION (2m) by SEED (1) with FAULTS, then audit: nothing may be lost (root).
	go run ./hack/storm -duration $(DURATION) -seed $(SEED) -faults $(FAULTS)

.PHONY: storm-engine-latest
storm-engine-latest: ## Storm agboxd like storm, on the engine of engine-latest (root).
	hack/engine-latest.sh run hack/base-image.sh
	hack/engine-latest.sh run go run ./hack/storm -duration $(DURATION) -seed $(SEED) -faults $(FAULTS)

.PHONY: storm-bugs
storm-bugs: engine image ## Plant bugs, or only BUGS, in a copy of the tree: the storm must report each (root).
	hack/storm-bugs.sh $(BUGS)

STEPS ?= 1000000

.PHONY: sim
sim: ## Simulate the controller under faults for STEPS (1000000) steps, from SEED (1); a failing seed replays exactly.
	go test -count=1 -timeout 30m -run 'TestSim$$' -v ./controller -sim.steps $(STEPS) -sim.seed $(SEED)

.PHONY: sim-bugs
sim-bugs: ## Plant each bug of controller/testdata/bugs in a copy of the tree: the simulation must find it.
	hack/sim-bugs.sh

FUZZTIME ?= 10s

.PHONY: fuzz
fuzz: ## Fuzz everything that reads foreign input, FUZZTIME (10s, or a number like 2000x) for each target.
	hack/fuzz.sh $(FUZZTIME)

.PHONY: check
check: lint check-proto check-generated check-modules test-unit ## Run all that CI demands before the Docker tests.

.PHONY: lint
lint: $(TOOLS_STAMP) ## Check format, vet and lint, import arrows included.
	$(TOOLS)/golangci-lint fmt --diff
	go vet -tags docker ./...
	$(TOOLS)/golangci-lint run --timeout 15m

.PHONY: check-proto
check-proto: $(TOOLS_STAMP) ## Lint the protos and compare them with main: nothing may break a client or a stored record.
	$(TOOLS)/buf lint
	hack/proto-breaking.sh $(TOOLS)/buf

.PHONY: check-generated
check-generated: $(TOOLS_STAMP) ## Check that the generated code is up to date.
	hack/proto-generated.sh $(TOOLS)/buf

.PHONY: check-modules
check-modules: ## Check that go.mod and go.sum are tidy.
	go mod tidy -diff

##@ Making things

.PHONY: fmt
fmt: $(TOOLS_STAMP) ## Format the Go code.
	$(TOOLS)/golangci-lint fmt

.PHONY: generate
generate: $(TOOLS_STAMP) ## Generate Go code from the protos, and docs/reference.md and the configuration's documentation from the code.
	$(TOOLS)/buf generate
	go test ./config -update
	go run ./hack/reference > docs/reference.md.new && mv docs/reference.md.new docs/reference.md

.PHONY: engine
engine: ## Make sure that a Docker engine answers; install and start one when none does (root).
	hack/engine.sh

.PHONY: engine-latest
engine-latest: ## Build a Docker engine of today from Go modules and start it beside the other one (root).
	hack/engine-latest.sh start

.PHONY: image
image: engine ## Make the image agbox-base:dev, without a registry.
	hack/base-image.sh

.PHONY: interpreter-image
interpreter-image: engine ## Make the image agbox-interpreter:dev from Debian's packages, which runs cells for @e2b/code-interpreter (root).
	hack/debian-image.sh interpreter

.PHONY: dev-image
dev-image: engine ## Make the image agbox-dev:dev from Debian's packages: bash, git, Python, Node, a C compiler (root).
	hack/debian-image.sh dev

.PHONY: tools
tools: $(TOOLS_STAMP) ## Build the pinned tools into bin/tools.

.PHONY: test-tools
test-tools: ## Make sure that what the tests call is there; install it when it is not (root).
	hack/test-tools.sh

$(TOOLS_STAMP): hack/tools/go.mod hack/tools/go.sum
	@echo 'building the pinned tools (buf, golangci-lint, protoc plugins) into bin/tools; the first time takes minutes'
	cd hack/tools && GOBIN=$(TOOLS) go install tool
	@touch $@
