# Every target has a line in `make help`, and every variable that changes what it does.
GO            ?= go
VERSION       ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION      ?= $(shell git rev-parse HEAD 2>/dev/null)
CLI           := github.com/topodisk/topodisk/cmd/internal/cli
GOLANGCI_LINT ?= v2.15.0
GOVULNCHECK   ?= v1.9.0
TOOLS         := $(CURDIR)/.build/tools
LINTER        := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT)
FUZZTIME      ?= 20s
PACKAGES      ?= ./...
SEED          ?= 1
SEEDS         ?= 100
HOURS         ?= 2
NODES         ?= 3
KUBE          ?= 1.33,1.34,1.35,1.36,1.37
ARCHITECTURES ?= amd64,arm64
BIN           ?= bin
SUITES        ?= demo,e2e,storage
comma         := ,
PLATFORMS      = $(foreach os,linux darwin,$(addprefix $(os)/,$(subst $(comma), ,$(ARCHITECTURES))))

.DEFAULT_GOAL := help
.PHONY: help build check test test-foreign test-long lint docs-check docs-update site demo lab e2e e2e-nodes e2e-explain e2e-storage e2e-install e2e-versions soak crash image release test-release chart chart-update cloud-check fuzz bench vulncheck clean

help: ## list the targets and their variables
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2} sub(/^## ?/, "") {variables = variables $$0 "\n"} \
	  END {printf "\n%s", variables}' $(MAKEFILE_LIST)

## Variables, in brackets what they are unless set:
##   PKG=./DIRECTORY       check: the package
##   PACKAGES              test: the packages (./...)
##   FRESH=1               test: on a machine that has only Go, git and make
##   SEED                  test-long: the random walks (1)
##   FUZZTIME              fuzz: how long each test runs (20s)
##   PLUGIN=1              build: kubectl-topodisk alone, for Linux and macOS
##   SIMULATOR=1           build: ecs-simulator alone, for Linux and macOS
##   ARCHITECTURES         build of these two, image, release (amd64,arm64)
##   VERSION (0.2.0)       release: the version; Chart.yaml has it, too
##   KEY                   release: a file with minisign's secret key
##   KEY_PASSWORD_FILE     release: its password (asked for on the terminal)
##   KEEP=1, STOP=1        demo: leave it running; end it
##   NODES, DOWN=1         lab: how many nodes (3); remove every lab
##   QUICK=1               e2e-nodes: a smaller crowd; e2e-storage: some tests;
##                         bench: a few of everything, and no page
##   KUBE                  e2e-versions (1.33,1.34,1.35,1.36,1.37); ci: the oldest,
##                         and docs/compatibility.md stays as it is
##   SUITES                e2e-versions (demo,e2e,storage)
##   HOURS                 soak: how long (2; 0.2 for a trial)
##   SEEDS                 crash: how many random schedules (100)
##   YES=1, CLEAN=1        cloud-check: do it; remove what a killed run left
##   SERVE=1               site: show it on loopback
##   WHAT                  bench: lifecycle, accounts, provisioner, pods, why,
##                         attach-queue or topology
##   ROWS                  bench: some rows of a table, such as fast-1,crowd
##   DRIVER, NODE_DRIVER   bench: another driver beside ours, as "program args"

LDFLAGS := -s -w -X main.version=$(VERSION) -X $(CLI).Revision=$(REVISION)

# The programs that people run on their own machines.
PORTABLE := $(if $(PLUGIN),kubectl-topodisk) $(if $(SIMULATOR),ecs-simulator)

build: ## build the programs into bin/
ifneq ($(strip $(PORTABLE)),)
	@for program in $(foreach name,$(PORTABLE),$(addprefix $(name)/,$(PLATFORMS))); do \
	  name=$${program%%/*} platform=$${program#*/} out=$(BIN)/$$(echo $$program | tr / -); \
	  echo "$$out"; \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" \
	    -o $$out ./cmd/$$name || exit 1; \
	done
else
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...
endif

# Imports, linter, spelling, vet, its tests, and for as long as three minutes allow those of packages that import it. CONTRIBUTING.md has more.
check: ## say whether a change to package PKG is right (5 minutes)
	@test -n '$(PKG)' || { echo 'check: no package; name one, such as make check PKG=./diskdriver/volume' >&2; exit 2; }
	$(GO) run ./test/arrows
	$(if $(wildcard $(LINTER)),$(LINTER) run --allow-parallel-runners $(PKG),@echo 'no linter yet: make lint builds it')
	$(if $(wildcard $(SITE)),$(SPELL),@echo 'no spelling yet: make site installs what checks it')
	@GO=$(GO) $(GO) run ./test/run -importers 3m $(PKG)

# What the machine can't run is skipped, and the last line says why.
test: ## run the tests of PACKAGES: no cluster, a few minutes
	@GO=$(GO) $(GO) run ./test/run $(if $(FRESH),-fresh,$(PACKAGES))

# csi-sanity, both generations of the SDKs for Node.js and Go, and a load of 64 clients; root for the node.
test-foreign: build ## run clients by others against the programs (4 minutes)
	$(GO) test -tags foreign -count 1 -timeout 20m -v ./test/foreign

# 50 000 random steps and 2 000 000 walks of a name, 100 000 of a claim, csi-sanity and stories under every misbehaviour, cloud-check against
# simulators that differ, as root csi-sanity with nodes, 400 losses of power and 500 kills of the node plugin, and the simulator's memory.
test-long: ## run what is too long for make test (a quarter of an hour)
	$(GO) test -count=1 -timeout 30m -run 'TestModel|TestCreationModel|TestSanity|TestStories|TestNoAnswer' ./diskdriver -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run TestRecordModel ./diskdriver/creation -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run TestModel ./provisioner/claim -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run 'TestSanity|TestPowerLoss|TestKilledTest|TestHangingDisk' ./diskdriver/node -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -v -run TestKilledPlugin ./diskdriver/node -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run TestPlanted ./test/cloudcheck -args -seeds 5
	$(GO) test -count=1 -timeout 10m -run TestMemoryComesBack ./cmd/ecs-simulator -args -long
	$(GO) test -count=1 -timeout 10m -run '^$$' -bench LifecycleMemory -benchtime 1x ./ecssim

# It says first what that makes and costs at most, and goes on with YES=1.
cloud-check: ## ask the real ECS whether it does what the simulator does
	@mkdir -p .build/run && $(GO) build -o .build/run/cloudcheck ./test/cloudcheck
	@.build/run/cloudcheck $(if $(CLEAN),-clean,$(if $(YES),-yes))

lint: $(LINTER) ## run the linters, and check what packages import
	$(GO) run ./test/arrows
	$< run --allow-parallel-runners ./...
	cd test/chart && $< run --allow-parallel-runners ./...
	cd test/release && $< run --allow-parallel-runners ./...
	cd test/foreign/gosdk2 && $< run --allow-parallel-runners ./...

$(LINTER):
	@echo "building golangci-lint $(GOLANGCI_LINT): about two minutes, once"
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	mv $(TOOLS)/golangci-lint $@

# The pages that are made from the code, and the tests that make them.
# One package at a time, for all programs write docs/flags.md.
PAGES := $(GO) test -count=1 -p 1 -run 'PageIsCurrent$$' ./test/arrows ./diskdriver ./diskdriver/params ./diskdriver/ecs/transport ./ecssim/actions ./ecssim/facts ./cmd/disk-driver ./cmd/disk-provisioner ./cmd/kubectl-topodisk ./cmd/ecs-simulator ./test/versions

# Parameters, errors, codes and facts of ECS, flags, troubleshooting, compatibility; and words, links and commands of all pages. make test does
# so, too.
docs-check: ## check that the pages say what the code does
	$(PAGES)
	$(GO) test -count=1 ./test/docs

# docs/parameters.md and docs/errors.md, both in Chinese, too, docs/ecs-codes.md, docs/ecs-facts.md, docs/flags.md, docs/compatibility.md,
# the actions in docs/ecs-on-a-laptop.md, and what why prints in docs/troubleshooting.md.
docs-update: ## write the pages again that are made from the code
	$(PAGES) -update

# node_modules of test/site, with what its lock file says.
SITE := test/site/node_modules/.package-lock.json
$(SITE): test/site/package-lock.json
	npm --prefix test/site ci --ignore-scripts --no-audit --no-fund
	@touch $@

# Words that are right go into test/site/words.txt.
SPELL := test/site/node_modules/.bin/cspell lint --config test/site/cspell.json --no-progress --no-summary '*.md' 'docs/*.md' 'charts/**/*.md' '.github/**/*.md'

site: $(SITE) ## check the spelling, build the site of docs/ (Node.js 20)
	$(SPELL)
	npm --prefix test/site run build
	$(if $(SERVE),npm --prefix test/site run preview)

demo: ## tell the story on a real control plane
	@$(GO) run ./test/build
	@.build/run/demo $(if $(KEEP),-keep) $(if $(STOP),-stop)

lab: ## start a cluster of NODES real nodes on this machine (root)
	@mkdir -p .build/run && $(GO) build -o .build/run/nodes ./test/nodes
	@.build/run/nodes $(if $(DOWN),down,up -nodes $(NODES))

E2E := ./test/e2e ./test/crash ./test/handover
e2e: ## run the end-to-end tests on a real control plane
	$(GO) run ./test/build
	$(GO) test -tags e2e -count 1 -timeout 60m -short $(E2E)
	$(GO) test -tags e2e -count 1 -timeout 20m -short ./test/crash -provisioner csi-provisioner

# Data, growth, snapshots, an upgrade, dead nodes and crowds.
e2e-nodes: ## run Pods with disks on real nodes (root, 10 minutes)
	$(GO) run ./test/build nodes
	$(GO) test -tags e2enodes -count 1 -timeout 30m $(if $(QUICK),-short) -parallel 8 -v ./test/nodes

# Real nodes, sidecars, scheduler and Karpenter.
e2e-explain: ## test kubectl topodisk in real situations (root, 10 minutes)
	$(GO) run ./test/build karpenter
	$(GO) test -tags e2eexplain -count 1 -timeout 40m -v ./test/explain

# Installs image and chart with helm on real nodes; upgrade, rollback, takeover and uninstallation. Debian 12.
e2e-install: ## test the installation of a release (root, half an hour)
	rm -f .build/scrapes.jsonl
	$(GO) run ./test/build nodes helm csi-provisioner
	$(GO) test -tags e2einstall -count 1 -timeout 80m -v ./test/install
	cd test/chart && $(GO) test -tags e2einstall -count 1 -run TestQueriesFindWhatALabHas .

# It writes docs/conformance.md, unless QUICK is set.
e2e-storage: ## run Kubernetes' own tests of storage (root, 25 minutes)
	@mkdir -p .build/run && $(GO) build -o .build/run/storage ./test/storage
	@.build/run/storage $(if $(QUICK),-quick,-write docs/conformance.md)

# Real nodes, with faults and rollouts; it writes docs/soak.md and docs/soak.svg. Debian 12.
soak: ## run the installed chart under load for HOURS (root)
	@mkdir -p .build/run && $(GO) build -o .build/run/soak ./test/soak
	@.build/run/soak run -hours '$(HOURS)' -write

# Demo, end-to-end tests and the quick tests of storage, 25 minutes for each version and 10 to build it; it writes docs/compatibility.md.
e2e-versions: ## run SUITES on each Kubernetes of KUBE (root)
	@mkdir -p .build/run && $(GO) build -o .build/run/versions ./test/versions
	@.build/run/versions -kube '$(KUBE)' -suites '$(SUITES)'

# csi-provisioner too; under random schedules, at a handover, and under half an hour of random calls, after which the heap must be flat.
crash: ## kill provisioner and driver between any two calls (90 min)
	$(GO) run ./test/build
	$(GO) test -tags e2e -count 1 -timeout 120m ./test/crash -seeds $(SEEDS)
	$(GO) test -tags e2e -count 1 -timeout 60m ./test/crash -seeds $(SEEDS) -provisioner csi-provisioner
	$(GO) test -tags e2e -count 1 -timeout 60m ./test/handover ./test/soak

# An OCI archive and its SBOM, built twice without Docker. Debian 12.
image: ## build the container image, .build/topodisk.tar
	$(GO) -C test/release build -o $(CURDIR)/.build/run/release .
	.build/run/release image -check -version $(VERSION) -architectures $(ARCHITECTURES) -out .build/topodisk.tar

# Debian 12.
release: ## make all of VERSION's release in dist/, signed by KEY
	@echo "release: what makes it"
	@$(GO) -C test/release build -o $(CURDIR)/.build/run/release .
	@.build/run/release make -version '$(if $(filter file,$(origin VERSION)),,$(VERSION))' -architectures '$(ARCHITECTURES)' \
	  -key '$(KEY)' -password-file '$(KEY_PASSWORD_FILE)' -out dist

test-release: ARCHITECTURES := $(shell $(GO) env GOARCH)
# Of the current tree, for this machine's architecture unless ARCHITECTURES is set. Debian 12.
test-release: ## make two releases, and check all of both
	cd test/release && $(GO) vet ./... && $(GO) test -count=1 -timeout 30m -v ./... -args -architectures '$(ARCHITECTURES)'

chart: ## check the Helm chart, also by dry-run on a real API server
	cd test/chart/oldest && $(GO) vet ./...
	cd test/chart && $(GO) vet ./... && $(GO) test -race -timeout 30m ./...
	$(GO) run ./test/build helm
	.build/run/demo -- sh -c 'cd test/chart && $(GO) run ./dryrun --kubeconfig=$$KUBECONFIG && $(GO) run ./csidriver --helm=$(CURDIR)/.build/helm/helm'

chart-update: ## write deploy/, values.yaml and the chart's README again
	cd test/chart && $(GO) test -count=1 -run 'Generated|Preset' -update .

fuzz: ## run every fuzz test for FUZZTIME
	@for package in $$($(GO) list ./...); do \
	  for name in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
	  done; \
	done

# lifecycle: disk-driver through its socket, half an hour; accounts: 20 disk-drivers that share an account, 8 minutes; provisioner: beside
# csi-provisioner, 45 minutes; pods: until they start on real nodes (root, 3 hours); why: in a cluster of 5000 nodes, 10 minutes;
# attach-queue: attaches behind 5000 detaches that hang, 50 minutes; topology: a decision at 100 to 20 000 nodes, without a page.
bench: build ## measure WHAT, and write docs/benchmarks.md
ifeq ($(WHAT),topology)
	$(GO) test -run '^$$' -bench . -benchmem -count 3 ./topology
else
	@mkdir -p .build/run && $(GO) build -o .build/run/bench ./test/bench
	.build/run/bench -what '$(WHAT)' -programs bin -rows '$(ROWS)' -driver '$(DRIVER)' -node-driver '$(NODE_DRIVER)' \
	  $(if $(QUICK),-small) -write docs/benchmarks.md
endif

vulncheck: ## look for known vulnerabilities in what the programs call
	GOBIN=$(TOOLS) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	$(TOOLS)/govulncheck ./cmd/...

clean: ## remove what was built
	rm -rf bin .build dist dist.next dist.former
