# Short names for what CONTRIBUTING.md tells; each is one command.

.PHONY: build test check fuzz vuln bench bench-everyday bench-plot bench-storage chaos outlive semantics storage storage-nfs install packages packages-test

# Without paths of this machine, and without what only a debugger reads.
build = go build -trimpath -ldflags='-s -w'

build: ## the program and the simulator, into ./dmxfs and ./dmxfs-sim
	$(build) -o dmxfs ./cmd/dmxfs
	$(build) -o dmxfs-sim ./cmd/dmxfs-sim

test: ## all tests, some with fewer repetitions than in check
	go test -vet=off ./...

check: ## what must pass before a change counts
	.ci/run

fuzz: ## each fuzzer for 10 seconds (FUZZ=10m for longer)
	.ci/fuzz $(or $(FUZZ),10s)

vuln: ## known vulnerabilities of what the program is made of; asks vuln.go.dev
	go tool -modfile=tools/go.mod govulncheck ./...

bench: ## ratios to a bare go-fuse loopback, in one run
	go test -run '^$$' -bench . -benchtime 10x -timeout 30m ./cmd/dmxfs

bench-everyday: ## tar, find, git status, grep, cp, fio and so on beside the storage below and a loopback, in turns, RUNS times (7); WORK=find for one
	go test -run '^$$' -bench 'Everyday/$(WORK)' -benchtime $(or $(RUNS),7)x -timeout 2h ./cmd/dmxfs -everyday

bench-plot: ## docs/images/everyday.svg, from what bench-everyday has printed into everyday.txt
	go run ./internal/benchplot -o docs/images/everyday.svg everyday.txt

bench-storage: ## bench-everyday over clients of real storage, beside such a client alone; KIND=sshfs for one
	go test -run '^$$' -bench 'OverStorage/$(KIND)/$(WORK)' -benchtime $(or $(RUNS),7)x -timeout 5h ./cmd/dmxfs -everyday

chaos: ## kill, stop, cut and unmount at random for 20 minutes (CHAOS=1h for longer), under programs on five hosts; TAKEOVER=1: mounted with --takeover
	go test -run 'TestChaos$$' -timeout 3h -v ./cmd/dmxfs -chaos.time $(or $(CHAOS),20m) -chaos.keep chaos-failed $(if $(TAKEOVER),-chaos.takeover)

outlive: ## kill daemons that are mounted with --takeover, each every 2 s on average, for 10 minutes (OUTLIVE=1h for longer), under programs on three hosts: none may notice
	go test -run 'TestProgramsOutliveTheDaemon$$' -timeout 3h -v ./cmd/dmxfs -outlive.time $(or $(OUTLIVE),10m) -outlive.keep outlive-failed

semantics: ## what programs see of locks on a local file system, one mount and two, line by line
	DMXFS_TEST_LONG=1 go test -count 1 -v -run 'TestSemantics$$' ./cmd/dmxfs

storage: ## programs on two hosts over real GlusterFS, MooseFS and sshfs, RUNS times (5) at full size, a line for each part that is done; docs/storage.md has the last results
	go test -count $(or $(RUNS),5) -run 'TestOverRealStorage$$|TestProgramsOutliveTheDaemonOverRealStorage$$' -timeout 5h -v ./cmd/dmxfs -storage.full

storage-nfs: ## the same over NFS 3 and NFS 4, in user-mode Linux (no NFS in the kernel needed); SMALL=1 for some minutes of it, TESTS=TestOverNFS/counters for a part
	go test -count $(or $(RUNS),5) -run 'TestNFS$$' -timeout 10h -v ./cmd/dmxfs -storage.nfs '$(or $(TESTS),Test.*OverNFS)' $(if $(SMALL),,-storage.full)

install: ## the program, the simulator, and the helper of mount(8), for fstab
	install -d $(DESTDIR)/usr/local/bin $(DESTDIR)/sbin
	$(build) -o $(DESTDIR)/usr/local/bin/dmxfs ./cmd/dmxfs
	$(build) -o $(DESTDIR)/usr/local/bin/dmxfs-sim ./cmd/dmxfs-sim
	ln -sf /usr/local/bin/dmxfs $(DESTDIR)/sbin/mount.fuse.dmxfs

packages: ## deb, rpm, apk and tar for amd64 and arm64, SBOMs and checksums, into dist/; docs/packages.md
	tools/packages/build

packages-test: ## are two builds the same, does lintian keep silent, and does the deb install, mount by fstab, update and go; as root, with lintian and rpm, some minutes
	tools/packages/test
