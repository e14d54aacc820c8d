# Every task of the project. `make help` lists them; CI runs only these.
#
# Needed: Go 1.26 or newer (it fetches the pinned toolchain by itself), a C
# compiler for the race detector, and, for the proto tools only, Node 20 with npm.

# The one pinned Go version, whatever the machine has or its environment says.
export GOTOOLCHAIN := go1.27.3

# The linker is told the version below; stamping it again only adds a way to
# fail, in a checkout that git does not trust.
export GOFLAGS += -buildvcs=false

# Where versions are pinned:
#   Go libraries and protoc-gen-go, protoc-gen-connect-go                   go.mod
#   buf, protoc-gen-es                                                     proto/package-lock.json
#   what the dashboard is made of and built with                           web/package-lock.json
#   validate.proto, golangci-lint                                          here
GOLANGCI_LINT_VERSION := v2.15.0
PROTOVALIDATE_VERSION := v1.2.2

TOOLS    := $(CURDIR)/.tools
BUF      := $(TOOLS)/node_modules/.bin/buf
GOLANGCI := $(TOOLS)/bin/golangci-lint
BASELINE := proto/baseline.binpb

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# What the program is built for.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

# How long each fuzz target runs, and what narrows tests and benchmarks down:
# make test PKG=./edge/broker/ ; make bench BENCH=Encode
FUZZTIME ?= 30s
PKG      ?= ./...
BENCH    ?= .

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- tools -------------------------------------------------------------------
# A stamp names the state of its pin, so a repeated run does nothing.

STAMP_GO       := $(TOOLS)/stamp/go
STAMP_NPM      := $(TOOLS)/stamp/npm
STAMP_VALIDATE := $(TOOLS)/stamp/validate-$(PROTOVALIDATE_VERSION)
STAMP_GOLANGCI := $(TOOLS)/stamp/golangci-lint-$(GOLANGCI_LINT_VERSION)

.PHONY: tools
tools: $(STAMP_GO) $(STAMP_NPM) $(STAMP_VALIDATE) ## install the pinned proto tools into .tools (golangci-lint comes with `make lint`)

$(STAMP_GO): go.mod
	@mkdir -p $(@D)
	GOBIN=$(TOOLS)/bin go install google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
	@touch $@

# Without install scripts: the packages' own binaries work as they are.
$(STAMP_NPM): proto/package.json proto/package-lock.json
	@mkdir -p $(@D)
	cp proto/package.json proto/package-lock.json $(TOOLS)/
	npm ci --prefix $(TOOLS) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# buf/validate/validate.proto, out of the Go module that ships it. That module has
# no Go package, so go.mod cannot hold it; its checksum is the sum database's.
$(STAMP_VALIDATE):
	@mkdir -p $(@D) $(TOOLS)/proto/buf/validate
	@set -e; outside=$$(mktemp -d); trap 'rm -rf "$$outside"' EXIT; \
	dir=$$(cd "$$outside" && go mod download -json github.com/bufbuild/protovalidate@$(PROTOVALIDATE_VERSION) | awk -F'"' '$$2 == "Dir" {print $$4}'); \
	cp -f "$$dir/proto/protovalidate/buf/validate/validate.proto" $(TOOLS)/proto/buf/validate/
	@chmod -R u+w $(TOOLS)/proto
	@rm -f $(TOOLS)/stamp/validate*
	@touch $@

$(STAMP_GOLANGCI):
	@mkdir -p $(@D)
	@echo "building golangci-lint $(GOLANGCI_LINT_VERSION): some minutes, once"
	GOBIN=$(TOOLS)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@rm -f $(TOOLS)/stamp/golangci-lint-*
	@touch $@

# --- generated code ----------------------------------------------------------

.PHONY: generate
generate: tools ## generate gen/go, gen/ts and the schemas of configs/schema from proto
	$(BUF) generate
	$(BUF) build proto -o -#format=binpb | go run ./configs/schema/write

# npm writes this file itself when it has installed all. Install scripts are not needed.
STAMP_WEB := web/node_modules/.package-lock.json

$(STAMP_WEB): web/package.json web/package-lock.json
	npm ci --prefix web --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: web
web: $(STAMP_WEB) ## build the dashboard from web and gen/ts into gen/web; fails if it has grown too heavy
	cd web && node_modules/.bin/vite build --logLevel warn

.PHONY: web-test
web-test: $(STAMP_WEB) ## types, lint and unit tests of the dashboard (Node 20.19 or newer)
	cd web && node_modules/.bin/tsc --noEmit
	cd web && node_modules/.bin/oxlint --deny-warnings
	cd web && node_modules/.bin/vitest run

# The tree keeps what was generated: a failure is mended by committing it. The
# dashboard goes through the generated client, so it is built after that.
.PHONY: checkgenerate
checkgenerate: tools $(STAMP_WEB) ## regenerate and fail if gen or configs/schema was not what proto and web make
	@set -e; before=$$(mktemp -d); trap 'rm -rf "$$before"' EXIT; \
	cp -R gen configs/schema "$$before"; \
	$(MAKE) --no-print-directory generate; \
	$(MAKE) --no-print-directory web; \
	if ! { diff -ru "$$before/gen" gen && diff -ru "$$before/schema" configs/schema; }; then \
		echo "gen or configs/schema was not what proto and web make; it is now: look at the difference above and commit it" >&2; exit 1; \
	fi; \
	echo "gen and configs/schema are what proto and web make"

.PHONY: baseline
baseline: tools ## make the protos as they are the baseline of the breaking check (a reviewed change)
	$(BUF) build proto --exclude-source-info -o $(BASELINE)

# --- clients of others -------------------------------------------------------

# The package's shell is gen/npm, outside the folder that buf cleans.
.PHONY: client-ts
client-ts: ## build the npm package of the typed APIs: bin/iop-dev-client.tgz
	./gen/npm/build.sh

.PHONY: client-python
client-python: tools ## generate the typed APIs for Python and gRPC into bin/python (needs Debian's protobuf-compiler-grpc)
	@mkdir -p bin
	$(BUF) build proto --as-file-descriptor-set -o bin/iop.binpb
	rm -rf bin/python && mkdir bin/python
	protoc --descriptor_set_in=bin/iop.binpb --python_out=bin/python --grpc_python_out=bin/python \
		--plugin=protoc-gen-grpc_python="$$(command -v grpc_python_plugin)" \
		$$(cd proto && find iop -name '*.proto') buf/validate/validate.proto

# --- checks ------------------------------------------------------------------

.PHONY: lint
lint: lint-proto lint-go ## gofmt, golangci-lint, buf lint, buf breaking against the baseline

.PHONY: lint-proto
lint-proto: tools ## the proto half of lint
	$(BUF) lint
	$(BUF) breaking proto --against $(BASELINE)

.PHONY: lint-go
lint-go: $(STAMP_GOLANGCI) ## the Go half of lint
	@unformatted=$$(gofmt -s -l $$(find . -name '*.go' -not -path './.tools/*' -not -path './gen/*' -not -path '*/node_modules/*')); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -s -w on:" >&2; echo "$$unformatted" >&2; exit 1; fi
	$(GOLANGCI) run ./...

# Test files included: vet compiles them.
.PHONY: cross
cross: ## compile and vet everything for linux, darwin and windows on amd64 and arm64
	@set -e; for platform in $(PLATFORMS); do \
		echo "== $$platform"; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build ./...; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go vet ./...; \
	done

# --- build and run -----------------------------------------------------------

.PHONY: build
build: ## build bin/iop
	go build -ldflags '$(LDFLAGS)' -o bin/iop ./cmd/iop

.PHONY: run
run: build ## build and start Edge and Node on this machine: bin/iop up (ARGS="--simulator" adds flags)
	./bin/iop up $(ARGS)

# --- tests -------------------------------------------------------------------

# What concerns a node's connection is run once more with an event bus that is
# saturated for good (edge/events/eventstest).
LINK_IDS := S02|S05|S09|S12|S13|S14|S15|S16|S17|G04|Reload

# The build comes first so that tests which start the real binary find its
# packages compiled, and do not spend their own time limit on it.
.PHONY: test
test: build ## every test under the race detector, real processes included
	CGO_ENABLED=1 go test -race -timeout 15m $(PKG)
	$(if $(filter ./...,$(PKG)),go test -timeout 15m ./edge/estimate)
	$(if $(filter ./...,$(PKG)),IOP_TEST_EVENTS=blocked CGO_ENABLED=1 go test -race -timeout 15m -run '$(LINK_IDS)' ./services/nodelink ./cmd/edged ./e2e)

.PHONY: e2e
e2e: build ## only the tests that put real parts together
	CGO_ENABLED=1 go test -race -count=1 -timeout 15m ./e2e/...
	$(MAKE) --no-print-directory e2e-dashboard

.PHONY: e2e-dashboard
e2e-dashboard: build ## the dashboard in Chromium against real processes (Node 20; as root it installs a missing chromium; CI_ARTEFACTS=folder)
	./e2e/dashboard/run.sh -v

.PHONY: storm
storm: build ## an Edge restarts under many nodes (NODES=n, 500); tells how they come back and what it costs
	IOP_STORM_NODES='$(or $(NODES),500)' go test -count=1 -v -timeout 8m -run '^TestCase_G10_ManyNodesReconnect' ./e2e

.PHONY: e2e-engines
e2e-engines: ## a real Ollama with a tiny model, driven by official clients (first run: some minutes)
	./e2e/engines/run.sh

.PHONY: e2e-clients
e2e-clients: ## clients in TypeScript, Python and Go and the tools of docs/api.md against a running Edge (installs what they need)
	./e2e/clients/run.sh

.PHONY: traceability
traceability: ## bring the tables of docs/traceability.md and the field lists of the contracts up to date
	go test -count=1 -run '^(TestTraceability_|TestS10_Contracts)' ./e2e/docs -args -rewrite

.PHONY: sim
sim: ## simulate the admission core under faults (SEED=n replays a run; STEPS=n, 2000000)
	@mkdir -p bin
	go build -o bin/admission-sim ./edge/admission/sim/cmd/admission-sim
	./bin/admission-sim -seed '$(or $(SEED),0)' -steps '$(or $(STEPS),2000000)'

.PHONY: mutants
mutants: ## plant known faults into the admission core; the suite must find each (ONLY=name: one; ALL=-all: by every suite)
	go run ./edge/admission/mutants -only '$(ONLY)' $(ALL)

.PHONY: chaos
chaos: build ## real processes under kills, freezes, black holes, hangs and refreshes (Linux; DURATION=60s, SEED=n)
	go build -o bin/chaos ./e2e/chaos
	./bin/chaos -duration '$(or $(DURATION),60s)' -seed '$(or $(SEED),0)'

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (30s)
	@set -e; \
	grep -rHo --include='*_test.go' --exclude-dir=.tools --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]*' . | sort -u | \
	while IFS=: read -r file decl; do \
		echo "== $${decl#func } in $$(dirname $$file)"; \
		go test -run '^$$' -fuzz "^$${decl#func }\$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file) </dev/null; \
	done

.PHONY: bench
bench: ## benchmarks of the hot packages, with allocations
	@set -e; \
	pkgs=$$(grep -rl --include='*_test.go' '^func Benchmark' cmd configs edge node proto services 2>/dev/null | xargs -r -n1 dirname | sort -u | sed 's|^|./|'); \
	if [ -z "$$pkgs" ]; then echo "no benchmarks" >&2; exit 1; fi; \
	set -x; go test -run '^$$' -bench '$(BENCH)' -benchmem $$pkgs

.PHONY: link-figures
link-figures: build ## measure deaths, returns, stalls and memory of the Edge-Node link (ARGS="-only kill -repeats 50"; 10 minutes)
	@mkdir -p bin
	go build -o bin/link-figures ./e2e/link/figures
	./bin/link-figures $(ARGS)

.PHONY: load-figures
load-figures: build ## 1,000 streams with 5,000 requests waiting, 10,000 clients that leave, 100 that watch (ARGS="-only streams -rounds 1"; 7 minutes)
	@mkdir -p bin
	go build -o bin/load-figures ./e2e/load/figures
	./bin/load-figures $(ARGS)

.PHONY: fleet-figures
fleet-figures: build ## a Control Plane over 50 Edges of 20 nodes, 5 of them hung and 5 flapping (ARGS="-edges 200"; 1 minute)
	@mkdir -p bin
	go build -o bin/fleet-figures ./e2e/fleet/figures
	./bin/fleet-figures $(ARGS)

.PHONY: clean
clean: ## remove what make made: bin, .tools, installed npm packages
	rm -rf bin .tools e2e/engines/clients/node_modules e2e/dashboard/node_modules e2e/dashboard/artefacts web/node_modules
