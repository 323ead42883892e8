# The entry points. Each is one script, so that it can be run and read without make. CI runs every one of them in a small
# form: see tools/entries.sh.

.DEFAULT_GOAL := help
.PHONY: help build run test sim fuzz e2e soak bench lint generate frozen clean

help: ## show this
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## build the programs into bin/
	@tools/build.sh

run: ## build, start a cluster on this machine and show it (DEMO=0: only the cluster; RUN="flags of ankole standalone")
	@exec tools/run.sh $(RUN)

test: ## check everything: format, linters, unit, property and integration tests, end to end (PHASES=… only some)
	@exec tools/test.sh $(or $(PHASES),test)

sim: ## simulate the data path: SEEDS=1000 FROM=1, or one SEED=…
	@exec tools/sim.sh

e2e: ## the slower tests: many seeds of the simulator, many crashes, clusters of real processes (PHASES=… only some)
	@exec tools/test.sh $(or $(PHASES),build slow e2e)

soak: ## everything, for a night: 100,000 seeds, every deliberate bug, the race detector everywhere (PHASES=… only some)
	@SIZE=$(or $(SIZE),soak) exec tools/test.sh $(or $(PHASES),soak)

fuzz: ## fuzz every decoder for a while (FUZZTIME=10s each, FUZZ=pattern of folder:target)
	@exec tools/fuzz.sh

bench: ## measure volumes against the raw disk, side by side (BENCH="-size 4096 -time 10s -dir /srv")
	@exec tools/bench.sh $(BENCH)

lint: ## format, vet, staticcheck, known vulnerabilities, rules about the repository
	@exec tools/test.sh format vet staticcheck vulnerabilities tidy

generate: ## regenerate protobuf code, deep copies and CRDs
	@exec tools/generate.sh

frozen: ## build programs as they were at an earlier commit, into bin/frozen: COMMIT=…
	@tools/frozen.sh $(COMMIT)

clean: ## remove what was built and measured (the cluster's state in .ankole stays)
	rm -rf bin bench/results
