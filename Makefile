# The entry points. Each is one script, so that it can be run and read without make. tools/entries.sh runs every one of them in
# a small form.

.DEFAULT_GOAL := help
.PHONY: help build run test hunt sim fuzz attack e2e e2e-k8s e2e-upstream soak bench scale lighthouse lint generate images cluster-up cluster-down frozen clean

help: ## show this
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## build the programs into bin/
	@tools/build.sh

run: ## build, start a cluster on this machine and show it (DEMO=0: only the cluster; RUN="flags of ankole standalone")
	@exec tools/run.sh $(RUN)

test: ## the gate: format, linters, unit tests, simulators, scenarios on clusters of real processes (PHASES=… only some)
	@exec tools/test.sh $(PHASES)

hunt: ## look for unknown defects, for about two hours: MINUTES=20, ONLY="crash sim", KEY=…
	@exec tools/hunt.sh $(ONLY)

soak: ## the hunt for a night (ONLY=… only some)
	@SIZE=night exec tools/hunt.sh $(ONLY)

sim: ## simulate the data path: SEEDS=1000 FROM=1, or one SEED=…
	@exec tools/sim.sh

e2e: ## every test on clusters of real processes (RUN=pattern of tests)
	@exec tools/hunt.sh e2e

e2e-k8s: ## a cluster of real nodes on this machine, the system installed on it, and scenarios (RUN=pattern of tests)
	@exec tools/hunt.sh k8s

e2e-upstream: ## Kubernetes' own tests of storage drivers on such a cluster (FOCUS=pattern of cases, SIZE=night: the slow ones too)
	@exec tools/hunt.sh upstream

fuzz: ## fuzz every decoder for a while (FUZZTIME=10s each, FUZZ=pattern of folder:target)
	@exec tools/fuzz.sh

attack: ## attack a cluster of real processes as somebody without credentials, as root (ANKOLE_BIN=programs of another commit)
	@exec tools/attack.sh

bench: ## measure volumes against the raw disk, side by side, or beside those of an earlier commit: COMMIT=… (BENCH="-size 4096 -time 10s -dir /srv")
	@exec tools/bench.sh $(BENCH)

scale: ## measure what hundreds of volumes cost the control plane: VOLUMES=200,300 (SCALE="-idle=60s -requests=30")
	@exec tools/scale.sh $(SCALE)

lighthouse: ## have Lighthouse judge every page of the web UI
	@exec tools/lighthouse.sh

lint: ## format, vet, staticcheck, rules about the repository
	@exec tools/test.sh format vet staticcheck tidy

generate: ## regenerate protobuf code, deep copies, CRDs, the plain manifest and the chart
	@exec tools/generate.sh

images: ## pack the container images into bin/images, without a container engine (IMAGES=… only some)
	@exec tools/images.sh $(IMAGES)

cluster-up: ## start a Kubernetes cluster of real nodes on this machine, as root (NODES=3 DIR=.ankole-bed)
	@exec tools/cluster.sh up

cluster-down: ## end that cluster, and remove all that it has on the machine (DIR=.ankole-bed)
	@exec tools/cluster.sh down

frozen: ## build programs as they were at an earlier commit, into bin/frozen: COMMIT=…
	@tools/frozen.sh $(COMMIT)

clean: ## remove what was built and measured (the cluster's state in .ankole stays)
	rm -rf bin test/bench/results
