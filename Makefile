# Every target that a person may want has a line in `make help`.
GO            ?= go
VERSION       ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION      ?= $(shell git rev-parse HEAD 2>/dev/null)
CLI           := github.com/topodisk/topodisk/cmd/internal/cli
GOLANGCI_LINT ?= v2.15.0
GOVULNCHECK   ?= v1.9.0
TOOLS         := $(CURDIR)/.build/tools
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
.PHONY: help build build-plugin test test-fresh test-foreign test-long lint arrows docs-check docs-update spell site demo demo-stop lab lab-down e2e e2e-nodes e2e-explain e2e-storage e2e-install soak e2e-versions crash image release test-release chart chart-update cloud-check fuzz bench-lifecycle bench-accounts bench-provisioner bench-pods bench-topology bench-why bench-attach-queue vulncheck clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

LDFLAGS := -s -w -X main.version=$(VERSION) -X $(CLI).Revision=$(REVISION)

build: ## build disk-driver, disk-provisioner, ecs-simulator and kubectl-topodisk into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

build-plugin: ## build kubectl-topodisk for Linux and macOS and ARCHITECTURES into bin/kubectl-topodisk-OS-ARCHITECTURE
	@for platform in $(PLATFORMS); do \
	  echo "$(BIN)/kubectl-topodisk-$$(echo $$platform | tr / -)"; \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" \
	    -o $(BIN)/kubectl-topodisk-$$(echo $$platform | tr / -) ./cmd/kubectl-topodisk || exit 1; \
	done

test: ## run the tests (of PACKAGES, ./...): no cluster, a few minutes; what the machine can't run is skipped, and the last line says why
	@GO=$(GO) $(GO) run ./test/run $(PACKAGES)

test-fresh: ## run make test of packages that ask what the machine has as on a fresh Debian with nothing but Go, git and make: no gcc, xfsprogs, fdisk, containerd, ...
	@$(GO) run ./test/fresh

test-foreign: build ## have clients that are not ours judge the programs in bin/: csi-sanity, both generations of the SDKs for Node.js and Go, a load of 64 clients (four minutes; root for the node)
	$(GO) test -tags foreign -count 1 -timeout 20m -v ./test/foreign

test-long: ## run what is too long for `make test`: 50 000 random steps and 2 000 000 walks of a name, 100 000 of a claim (SEED=n for others), csi-sanity and stories under every misbehaviour, cloud-check against simulators that differ, as root csi-sanity with nodes, 400 losses of power and 500 kills of the node plugin, the simulator's memory (a quarter of an hour)
	$(GO) test -count=1 -timeout 30m -run 'TestModel|TestCreationModel|TestSanity|TestStories|TestNoAnswer' ./diskdriver -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run TestRecordModel ./diskdriver/creation -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run TestModel ./provisioner/claim -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run 'TestSanity|TestPowerLoss|TestKilledTest|TestHangingDisk' ./diskdriver/node -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -v -run TestKilledPlugin ./diskdriver/node -args -long -seed $(SEED)
	$(GO) test -count=1 -timeout 30m -run TestPlanted ./test/cloudcheck -args -seeds 5
	$(GO) test -count=1 -timeout 10m -run TestMemoryComesBack ./cmd/ecs-simulator -args -long
	$(GO) test -count=1 -timeout 10m -run '^$$' -bench LifecycleMemory -benchtime 1x ./ecssim

cloud-check: ## ask the real ECS whether it does what the simulator does; says first what that makes and costs at most, and goes on with YES=1; CLEAN=1 removes what a killed run left
	@mkdir -p .build/run && $(GO) build -o .build/run/cloudcheck ./test/cloudcheck
	@.build/run/cloudcheck $(if $(CLEAN),-clean,$(if $(YES),-yes))

lint: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT) ## run the linters (they are built at the first run)
	$< run --allow-parallel-runners ./...
	cd test/chart && $< run --allow-parallel-runners ./...
	cd test/release && $< run --allow-parallel-runners ./...
	cd test/foreign/gosdk2 && $< run --allow-parallel-runners ./...

$(TOOLS)/golangci-lint-$(GOLANGCI_LINT):
	@echo "building golangci-lint $(GOLANGCI_LINT): about two minutes, once"
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	mv $(TOOLS)/golangci-lint $@

arrows: ## check that every package imports only what it may
	$(GO) run ./test/arrows

# The pages that are made from the code, and the tests that make them.
# One package at a time, for both programs write docs/flags.md.
PAGES := $(GO) test -count=1 -p 1 -run 'PageIsCurrent$$' ./test/arrows ./diskdriver ./diskdriver/params ./diskdriver/ecs/transport ./ecssim/facts ./cmd/disk-driver ./cmd/disk-provisioner ./cmd/kubectl-topodisk ./test/versions

docs-check: ## check that the pages made from the code are current: parameters, errors, codes, facts of ECS, flags, troubleshooting, compatibility; and words, links and commands of all pages (make test does too)
	$(PAGES)
	$(GO) test -count=1 ./test/docs

docs-update: ## make docs/parameters.md, docs/errors.md (both in Chinese, too), docs/ecs-codes.md, docs/ecs-facts.md, docs/flags.md, docs/compatibility.md and what why prints in docs/troubleshooting.md again
	$(PAGES) -update

# node_modules of test/site, with what its lock file says.
SITE := test/site/node_modules/.package-lock.json
$(SITE): test/site/package-lock.json
	npm --prefix test/site ci --ignore-scripts --no-audit --no-fund
	@touch $@

spell: $(SITE) ## check the spelling of the English pages; words that are right go into test/site/words.txt (Node.js 20 or later)
	test/site/node_modules/.bin/cspell lint --config test/site/cspell.json --no-progress --no-summary '*.md' 'docs/*.md' 'charts/**/*.md' '.github/**/*.md'

site: $(SITE) ## build the site of docs/ with its search into .build/site; SERVE=1 shows it on loopback (Node.js 20 or later)
	npm --prefix test/site run build
	$(if $(SERVE),npm --prefix test/site run preview)

demo: ## tell the story on a real control plane (KEEP=1 leaves it running)
	@$(GO) run ./test/build
	@.build/run/demo $(if $(KEEP),-keep)

demo-stop: ## end what `make demo KEEP=1` left running
	@$(GO) run ./test/build
	@.build/run/demo -stop

lab: ## bring up NODES (3) real nodes with kubelet and containerd on this machine (root)
	@mkdir -p .build/run && $(GO) build -o .build/run/nodes ./test/nodes
	@.build/run/nodes up -nodes $(NODES)

lab-down: ## take every lab with real nodes away again, whatever has become of it (root)
	@mkdir -p .build/run && $(GO) build -o .build/run/nodes ./test/nodes
	@.build/run/nodes down

E2E := ./test/e2e ./test/crash ./test/handover
e2e: ## run the end-to-end tests on a real control plane, with interleavings and a few crashes
	$(GO) run ./test/build
	$(GO) test -tags e2e -count 1 -timeout 60m -short $(E2E)
	$(GO) test -tags e2e -count 1 -timeout 20m -short ./test/crash -provisioner csi-provisioner

e2e-nodes: ## run Pods with disks on real nodes: data, growth, snapshots, an upgrade, dead nodes, crowds; QUICK=1 with a smaller crowd (root, ten minutes)
	$(GO) run ./test/build nodes
	$(GO) test -tags e2enodes -count 1 -timeout 30m $(if $(QUICK),-short) -parallel 8 -v ./test/nodes

e2e-explain: ## hold what kubectl-topodisk says against real situations: real nodes, sidecars, scheduler and Karpenter (root, ten minutes)
	$(GO) run ./test/build karpenter
	$(GO) test -tags e2eexplain -count 1 -timeout 40m -v ./test/explain

e2e-install: ## install the image and chart of a release with helm on real nodes, and try the life of an installation (root, Debian 12, half an hour)
	rm -f .build/scrapes.jsonl
	$(GO) run ./test/build nodes helm csi-provisioner
	$(GO) test -tags e2einstall -count 1 -timeout 80m -v ./test/install
	cd test/chart && $(GO) test -tags e2einstall -count 1 -run TestQueriesFindWhatALabHas .

e2e-storage: ## run Kubernetes' own tests of storage on real nodes, and write docs/conformance.md; QUICK=1 for a part that takes minutes (root)
	@mkdir -p .build/run && $(GO) build -o .build/run/storage ./test/storage
	@.build/run/storage $(if $(QUICK),-quick,-write docs/conformance.md)

soak: ## run the installed chart for HOURS (2; 0.2 for a trial) on real nodes under load, with faults and rollouts, and write docs/soak.md and docs/soak.svg (root, Debian 12)
	@mkdir -p .build/run && $(GO) build -o .build/run/soak ./test/soak
	@.build/run/soak run -hours '$(HOURS)' -write

e2e-versions: ## run SUITES (demo, end-to-end tests and the quick tests of storage) on each Kubernetes of KUBE (1.33,1.34,1.35,1.36,1.37; ci: 1.33 alone, and the page stays), and write docs/compatibility.md (root; 25 minutes each, and 10 to build it)
	@mkdir -p .build/run && $(GO) build -o .build/run/versions ./test/versions
	@.build/run/versions -kube '$(KUBE)' -suites '$(SUITES)'

crash: ## kill provisioner (csi-provisioner, too) and driver between any two calls, under SEEDS (100) random schedules, at a handover, and under half an hour of random calls, and hold the heap to be flat (an hour and a half)
	$(GO) run ./test/build
	$(GO) test -tags e2e -count 1 -timeout 120m ./test/crash -seeds $(SEEDS)
	$(GO) test -tags e2e -count 1 -timeout 60m ./test/crash -seeds $(SEEDS) -provisioner csi-provisioner
	$(GO) test -tags e2e -count 1 -timeout 60m ./test/handover ./test/soak

image: ## build the container image for ARCHITECTURES as an OCI archive, twice, without Docker: .build/topodisk.tar and its SBOM (Debian 12)
	$(GO) -C test/release build -o $(CURDIR)/.build/run/release .
	.build/run/release image -check -version $(VERSION) -architectures $(ARCHITECTURES) -out .build/topodisk.tar

release: ## make everything that VERSION (0.2.0) is published as in dist/, signed by KEY, a file of minisign's secret key (its password: KEY_PASSWORD_FILE, or the terminal) (Debian 12)
	@echo "release: what makes it"
	@$(GO) -C test/release build -o $(CURDIR)/.build/run/release .
	@.build/run/release make -version '$(if $(filter file,$(origin VERSION)),,$(VERSION))' -architectures '$(ARCHITECTURES)' \
	  -key '$(KEY)' -password-file '$(KEY_PASSWORD_FILE)' -out dist

test-release: ARCHITECTURES := $(shell $(GO) env GOARCH)
test-release: ## make two releases of the current tree for this machine's architecture and check all of them; ARCHITECTURES=amd64,arm64 for both (Debian 12)
	cd test/release && $(GO) vet ./... && $(GO) test -count=1 -timeout 30m -v ./... -args -architectures '$(ARCHITECTURES)'

chart: ## check the Helm chart, and apply it by dry-run to a real API server
	cd test/chart/oldest && $(GO) vet ./...
	cd test/chart && $(GO) vet ./... && $(GO) test -race -timeout 30m ./...
	$(GO) run ./test/build helm
	$(GO) run ./test/with sh -c 'cd test/chart && $(GO) run ./dryrun --kubeconfig=$$KUBECONFIG && $(GO) run ./csidriver --helm=$(CURDIR)/.build/helm/helm'

chart-update: ## make deploy/topodisk.yaml, values.yaml and the chart's README again
	cd test/chart && $(GO) test -count=1 -run 'Generated|Preset' -update .

fuzz: ## run every fuzz test for FUZZTIME (20s)
	@for package in $$($(GO) list ./...); do \
	  for name in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
	  done; \
	done

bench-lifecycle: build ## measure disk-driver through its socket, and write docs/benchmarks.md (half an hour; ROWS=fast-1,... for some; DRIVER="program args" for another beside it)
	$(GO) run ./test/bench -what lifecycle -programs bin -rows "$(ROWS)" -driver "$(DRIVER)" -write docs/benchmarks.md

bench-accounts: build ## measure 20 disk-drivers that share an account, and write docs/benchmarks.md (eight minutes)
	$(GO) run ./test/bench -what accounts -programs bin -write docs/benchmarks.md

bench-provisioner: ## measure disk-provisioner beside csi-provisioner, and write docs/benchmarks.md (three quarters of an hour; ROWS=bursts,defaults,steady,namespaces,takeover,large,huge for some)
	$(GO) run ./test/bench -what provisioner -rows "$(ROWS)" -write docs/benchmarks.md

bench-pods: ## measure how long Pods with disks take to start on real nodes, and write docs/benchmarks.md (root, three hours; ROWS=alone,crowd,drain,update,usual,kwok for some; DRIVER="program args" and NODE_DRIVER="program args" for another beside it)
	@mkdir -p .build/run && $(GO) build -o .build/run/bench ./test/bench
	.build/run/bench -what pods -rows "$(ROWS)" -driver "$(DRIVER)" -node-driver "$(NODE_DRIVER)" -write docs/benchmarks.md

bench-why: ## measure kubectl topodisk why at 5000 nodes, 20 000 PVs and 30 000 Pods on a real API server, and write docs/benchmarks.md (ten minutes)
	$(GO) run ./test/bench -what why -write docs/benchmarks.md

bench-attach-queue: ## measure attaches behind 5000 detaches that hang, through csi-attacher on a real control plane, and write docs/benchmarks.md (fifty minutes; ROWS=chart for ten)
	$(GO) run ./test/bench -what attach-queue -rows "$(ROWS)" -write docs/benchmarks.md

bench-topology: ## measure a decision at 100 to 20 000 nodes
	$(GO) test -run '^$$' -bench . -benchmem -count 3 ./topology

vulncheck: ## look for known vulnerabilities in what the programs call
	GOBIN=$(TOOLS) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	$(TOOLS)/govulncheck ./cmd/...

clean: ## remove what was built
	rm -rf bin .build dist dist.next dist.former
