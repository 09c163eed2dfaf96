# Short names for what CONTRIBUTING.md tells; each is one command.

.PHONY: build test check bench install

build: ## the program, into ./dmxfs
	go build -o dmxfs ./cmd/dmxfs

test: ## all tests
	go test ./...

check: ## what must pass before a change counts
	.ci/run

bench: ## ratios to a bare go-fuse loopback, in one run
	go test -run '^$$' -bench BesideLoopback -benchtime 30x ./cmd/dmxfs

install: ## the program and the helper of mount(8), for fstab
	go build -o $(DESTDIR)/usr/local/bin/dmxfs ./cmd/dmxfs
	ln -sf /usr/local/bin/dmxfs $(DESTDIR)/sbin/mount.fuse.dmxfs
