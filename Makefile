# Everything a contributor runs. `make help` lists the targets.
GO     ?= go
TOOLS  := -modfile=internal/tools/go.mod
UPDATE := go test . -run TestPublicAPI -update

# Without the path of the folder in it, what was compiled in one clone serves all others.
export GOFLAGS := $(GOFLAGS) -trimpath

# The race detector looks at everything but SQLite, which is C that was translated and would take
# most of the time. Its programs end at once: by default they sleep for a second first.
RACE := -race -gcflags=github.com/ncruces/go-sqlite3-wasm/...=-race=false
export GORACE := atexit_sleep_ms=0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Not by go tool itself, which ends with 0 if what it runs is killed. Without tables of symbols, which
# nothing needs here, linking a hundred binaries takes half the time.
SUM    := $$($(GO) tool $(TOOLS) -n gotestsum) --format pkgname --format-hide-empty-pkg -- -ldflags=-s

# Sweeps over crashes, cuts, damage and sizes do one thing at a time, and the race detector makes them
# nine times slower; tests of whole programs, of stores that are libraries or wrappers, and of what has
# no goroutines get three times slower. make test runs these without it, make races with it. CI does both.
SWEPT    := Crash|Cut(Off|Here|AtAny)|Surviv|Damage|Flip|Truncation|Year|Snapshot|Folds|Summar|^TestLists|TooHeavy|^TestTexts?|Every(where|Kind|Sequence|Call)|Fork(AsksAnew|Storm|Of)|RewindOf|Forged|OfAnErased|RestoredIs|RestoredThread|ManyAtOnce|PlaceFails|RuleThatFits|ThatBeginsWins|WhatGoes|HasItsRule|Stampede|ClockMayJump|TakeTurns|IsBounded|SuspendedThreads|NoSpelling|HostileTool|NoEncoding|^TestMigrate$$|KilledAnywhere|^TestZones|ClonesGoOn|^TestFamilies|RebuildThatDies|Explored|ThreadsThatLeave|TooLarge|WithoutADecision|LittleMemory|HeldInMemory|InNoLog|EveryRoute|^TestSeed|Matrix|^TestKeys$$|WithoutReadNothing|SeeEachOthers|MediaAreKept|InterruptedImport|MovedLines|MovedEntry|DeadImports|HostileModel|OfRandomFlows|UpToTheLimit|FailureInRecovery|BackupIsOneMoment|LimitsAreBy|^FuzzRequest|StalledReader|OfBodies|ReadersChangeBetween|RotatedFiles|TestUsage|QuotaOfStreams
SWEPT_IN := ./internal/lifecycle ./server ./agent ./internal/archive ./internal/backup ./internal/blob ./internal/bulk ./internal/due ./internal/engine ./internal/erasure ./internal/journal ./internal/migrate ./internal/retain ./internal/schedule ./internal/scrub ./internal/threads ./internal/upkeep ./internal/vault ./internal/worker ./perduretest ./store/kvstore

PROGRAMS := ./cmd/perdure ./cli ./cmd/perdure-cluster ./api ./cron ./docs/guide ./examples/approval ./examples/procurement ./examples/research ./examples/research/run ./examples/story ./internal/cluster ./internal/explain ./internal/safe ./internal/schema ./llm/llmtest ./store/filestore ./store/natsstore ./store/s3store ./store/seal ./store/sqlitestore ./store/storetest ./store/upstashstore

# Whoever starts several of them at once builds it first: Go may write it while the other runs it.
.PHONY: gotestsum
gotestsum:
	@$(GO) tool $(TOOLS) -n gotestsum >/dev/null

# What takes longest begins first: each waits much of its time.
.PHONY: test test-programs test-swept test-others
test: lint gotestsum ## all checks and all tests in a short form, with the race detector but for sweeps and programs
	@$(MAKE) --no-print-directory -j 3 --output-sync=target test-programs test-swept test-others

test-programs:
	$(SUM) -p 4 -short -vet=off -timeout 30m $(PROGRAMS)

test-swept:
	$(SUM) -p 3 -short -vet=off -timeout 30m -run '$(SWEPT)' $(SWEPT_IN)
	$(SUM) $(RACE) -p 3 -short -vet=off -timeout 30m -skip '$(SWEPT)' $(SWEPT_IN)

# In CI, tests that cannot run fail, so what they need is built first.
test-others: $(if $(CI),ts)
	$(SUM) $(RACE) -p 3 -short -vet=off -timeout 30m ./internal/proof ./store/pgstore ./agent/mcptool $$($(GO) list ./... | grep -vxF "$$($(GO) list $(SWEPT_IN) $(PROGRAMS))")

.PHONY: races
races: ## what make test runs without the race detector, with it
	$(SUM) $(RACE) -p 4 -short -vet=off -timeout 30m -run '$(SWEPT)' $(SWEPT_IN)
	$(SUM) $(RACE) -p 4 -short -vet=off -timeout 30m $(PROGRAMS)

.PHONY: check
check: ## for the daily loop: vet, and the tests that start no programs and sweep over nothing, without the race detector
	$(GO) vet ./...
	$(GO) test -p 8 -ldflags=-s -short -vet=off -skip '$(SWEPT)|Kill|PowerCut|Browser|RealClients|WebInterface|EveryBitFlip' $$($(GO) list ./... | grep -v -e /cmd/ -e /internal/proof -e /internal/cluster -e /examples/ | sort -r) # the stores wait most: they begin first

# Tests that have a short form and take a few seconds or more in the usual one.
WHOLE  := GroupOfChildren|ChildrenCancelled|CrashEverywhere(EveryVerb|Cancel|SmallFlows|InAFamily)|ThreeCallsSurvive|HoldingSurvives|ForkStorm|EraseThatWasCutOff|CrashEverywherePairs|DoNotStampede|OwnersTakeTurns|SuspendedThreads|AmongMany|DamagedFiles|FlippedBit|TextsTravel|TextsAtEverySequence|NoEncodingOfASecret|Snapshots(SayWhat|ThatAreBad|GoOnLike)|CutAtAnyByte|HostileToolOutput|NoSpellingOfAPath|LargeStateFile|ListsAfterACrash|WritersOfOneSummary|PostMortemIsBounded|RebuildThatDies

# The other sweeps over crashes. They run on stores in memory only, and the short form loses fewer results.
SWEEPS := CrashEverywhere|Survives?($$|ACrash)|TheSameAfterACrash|OfOneMessageSeeEachOthersFiles|MadeOnceByItsStep|AStepPutsOnce|AreThoseOfTheFrame|NothingTakenEverywhere

# The contract on all stores, and what else of stores and servers has a short form.
STORES := LostAnswers|Start(OneThread|Crash)|CrashAtEachWrite|PowerCut|EachTwoCallsFail|WebInterface|ReconnectAtRandom|StalledPages|^Test(Store|Conformance(NoSync)?|Bouncer|Cluster|Server|EveryDriver)$$

.PHONY: long long-proof long-rest
long: gotestsum ## the longer forms of kills, chaos, damage, sweeps and explorations, for an hour or two
	@$(MAKE) --no-print-directory -j 2 --output-sync=target long-proof long-rest

# Its kills and takeovers mostly wait.
long-proof:
	$(SUM) $(RACE) -timeout 60m ./internal/proof

long-rest:
	$(SUM) $(RACE) -timeout 30m -run 'Kill|RealPowerCuts|Flip|FailureInRecovery|MigrateDies|EraseForgets|ManyEntries|RealClientsLoseNothing|ServerOnAFullDisk|$(STORES)' ./store/... ./server ./server/mcpface ./cmd/perdure
	$(SUM) $(RACE) -timeout 30m -run '$(WHOLE)' ./agent ./internal/archive ./internal/engine ./internal/journal ./internal/lifecycle ./internal/scrub ./internal/threads ./internal/upkeep ./internal/worker ./llm/llmtest ./perduretest
	$(SUM) $(RACE) -timeout 30m -run 'Killed|PowerCut|UnderLoad|OneMoment' ./internal/backup ./store/filestore
	$(SUM) $(RACE) -timeout 30m -run 'CutOff|Damaged|ManyAtOnce|CrashAtEveryWrite|Year|Zones|Next|NothingOfAnErased|CutHere' -skip '^TestYear$$/^10400$$' ./internal/erasure ./internal/vault ./internal/bulk ./internal/retain ./internal/schedule ./cron
	$(SUM) -timeout 30m -run '^TestYear$$' ./internal/retain # with the race detector it takes most of an hour
	$(SUM) -timeout 30m -run InBrowser ./console ./clients/typescript
	PERDURE_SWEEPS=memory $(SUM) $(RACE) -timeout 30m -run '$(SWEEPS)' -skip '$(WHOLE)' ./agent ./agent/memory ./examples/... ./internal/engine ./internal/lifecycle ./perduretest

.PHONY: cluster
cluster: ## eight processes on one PostgreSQL server, and three nodes without one, killed and cut off, with 2000 threads
	$(SUM) -timeout 30m ./internal/cluster ./cluster/internal/node ./cmd/perdure-cluster

# make test has the short forms of these.
.PHONY: kills
kills: ## longer kills, freezes and mixed versions of processes on every store
	$(SUM) $(RACE) -timeout 30m -run '^Test(Kill|Chaos|Poison|MixedVersions|OlderPrograms)$$' ./internal/proof

.PHONY: browser
browser: ts console/web/node_modules/.package-lock.json ## the console and the example of the TypeScript client in a real browser, against real servers that are killed
	$(SUM) -timeout 30m -run InBrowser ./console ./clients/typescript

.PHONY: ci
ci: console-check ts-check test ## what CI runs, for about an hour on two cores; long and cluster are for a release
	@$(MAKE) --no-print-directory -j 2 --output-sync=target races kills # kills mostly waits
	@$(MAKE) --no-print-directory cross browser deploy-lint compat-check release-check

.PHONY: lint
lint: ## format, vet, staticcheck, and actionlint for the workflows
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt these files:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) tool $(TOOLS) staticcheck ./...
	$(GO) tool $(TOOLS) actionlint

.PHONY: cross
cross: ## vet what knows about systems for macOS and Windows, build it for another Linux
	@pkgs=$$($(GO) list ./... | grep -v -e /llm/ -e /bench -e /examples/); \
	echo "build for linux/arm64"; CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build $$($(GO) list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' $$pkgs) || exit 1; \
	for p in darwin/arm64 windows/amd64; do \
		echo "vet for $$p"; CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet $$pkgs || exit 1; \
	done

# What npm ci installed is up to date if it is newer than the lock file.
%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --ignore-scripts --no-audit --no-fund --silent

.PHONY: types
types: console/web/types/node_modules/.package-lock.json # of the console and the TypeScript client, from the OpenAPI document
	$(GO) run ./internal/openapi > console/web/types/openapi.json
	cd console/web/types && npx openapi-typescript openapi.json --output ../../../clients/typescript/src/types.ts --silent

.PHONY: console
console: types console/web/node_modules/.package-lock.json ## build the console into console/dist, with types from the OpenAPI document
	cd console/web && npm run --silent build

.PHONY: console-check
console-check: console ## test the console, and check that its committed build is what its source gives
	cd console/web && npm test --silent
	@out=$$(git status --porcelain console); test -z "$$out" || { echo "run make console and commit these files:"; echo "$$out"; exit 1; }

.PHONY: ts
ts: types clients/typescript/node_modules/.package-lock.json ## build the TypeScript client into clients/typescript/dist
	cd clients/typescript && npm run --silent build

.PHONY: ts-check
ts-check: ts ## check the types, size and package of the TypeScript client, and run its unit tests
	cd clients/typescript && npm run --silent typecheck && npm test --silent

.PHONY: services
services: ## start PostgreSQL, PgBouncer, Redis, NATS and S3 on free ports, print their URLs, and stop them with Ctrl-C
	@$(GO) run ./internal/services

.PHONY: bench
bench: ## the table of speeds, as ratios within one run
	$(GO) run ./cmd/bench

.PHONY: bench-peers
bench-peers: ## the same work with Perdure and with other programs; PEERS="-rounds 1 -only dbos" is shorter
	cd bench/peers && CGO_ENABLED=0 $(GO) run . $(PEERS)

.PHONY: vet-peers
vet-peers: ## vet the module of bench-peers, which no other target builds
	cd bench/peers && CGO_ENABLED=0 $(GO) vet ./...

# The race detector has the same code in make test, races and long; without it a day becomes hours. What
# takes longest begins first.
.PHONY: torture
torture: gotestsum ## everything in its longest form, for hours
	PERDURE_TORTURE=1 $(SUM) -p 4 -vet=off -timeout 4h -count=1 ./internal/proof ./store/... ./internal/... ./...

N ?= 50
.PHONY: repeat
repeat: gotestsum ## all tests but sweeps N times beside a busy neighbour, for hours: none may fail by chance
	@timeout 12h sh -c 'while :; do :; done' & trap "kill $$!" EXIT; for i in $$(seq $(N)); do \
		$(SUM) -count=1 -p 4 -short -vet=off -timeout 30m -skip '$(SWEPT)' ./... || exit 1; \
	done

.PHONY: fuzz
fuzz: ## each fuzz target for a minute
	@for pkg in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 1m -fuzzminimizetime 100x $$pkg || exit 1; \
		done; \
	done

.PHONY: api
api: ## accept a change of the public API into testdata/api, and of the HTTP API into docs
	$(UPDATE)
	go test ./api -run Docs -update

.PHONY: weight
weight: ## accept a change of what the kernel, SQLite and the stock binary import into testdata/weight.txt
	$(GO) test . -run TestWeight -update

RELEASE := internal/tools/release

.PHONY: deploy-check
deploy-check: deploy-lint ## check the files of deploy with linters, and against the program
	$(GO) test -run 'TestDeploy|TestUnits|TestDockerfile' ./cmd/perdure

.PHONY: deploy-lint
deploy-lint: ## the linters of deploy-check that no test runs
	$(GO) tool -C $(RELEASE) github.com/compose-spec/compose-go/v2/cmd -no-interpolation ../../../deploy/compose.yaml >/dev/null
	$(GO) tool -C $(RELEASE) kube-score score ../../../deploy/kubernetes/perdure.yaml --output-format ci

# The newest release whose HTTP API and journals are kept.
LAST = $(lastword $(sort $(wildcard testdata/releases/v*)))

.PHONY: compat-check
compat-check: ## check that the HTTP API breaks no client of the last release
	@out=$$(mktemp) && trap 'rm -f "$$out"' EXIT && $(GO) run ./internal/openapi > "$$out" && \
	$(GO) tool -C $(RELEASE) oasdiff breaking --fail-on ERR --err-ignore ../../../$(LAST)/accepted.txt ../../../$(LAST)/openapi.json "$$out"

.PHONY: baseline
baseline: ## keep the HTTP API and journals of VERSION, which is about to be tagged: make baseline VERSION=v0.1.0
	@test -n "$(VERSION)" || { echo "name the VERSION"; exit 1; }
	@! git rev-parse -q --verify "refs/tags/$(VERSION)" >/dev/null || { echo "$(VERSION) is released: what it wrote does not change"; exit 1; }
	$(GO) test -run TestJournalsOfEveryRelease -baseline $(VERSION) .
	$(GO) run ./internal/openapi > testdata/releases/$(VERSION)/openapi.json
	@test -e testdata/releases/$(VERSION)/accepted.txt || : > testdata/releases/$(VERSION)/accepted.txt

.PHONY: release
release: ## build everything that is released into dist, for the version of the tag
	$(GO) run ./internal/release

.PHONY: release-check
release-check: ## build the release for one system twice, in two folders, and compare and try it
	GO=$(GO) internal/release/check
