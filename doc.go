// Package dmxfs is the map of this module; it holds no code.
//
//   - cmd/dmxfs: the program, one file for each command.
//   - cmd/dmxfs-man: makes the man pages, for packages.
//   - cmd/dmxfs-sim: the simulator, a program of its own.
//   - fusefs: the mount. A pass-through file system that asks for locks.
//   - fusefs/looktest: tests of what two hosts see while their kernels keep names.
//   - locks: the words that all parts share, and the contract of an algorithm.
//   - locks/engine: drives the algorithms: programs on one side, peers on the
//     other.
//   - locks/posix: the algebra of byte-range locks.
//   - locks/rw: the default algorithm, readers and writers.
//   - locks/rcv, locks/maekawa, locks/ring: the exclusive algorithms.
//   - locks/lease: who may keep names and attributes for long.
//   - locks/exclusive: what those three share.
//   - locks/wire: how messages are written.
//   - locks/locktest: the harness that all algorithms must pass.
//   - p2p: the libp2p host and its channels.
//   - p2p/member: who is in the cluster, as a pure state machine.
//   - p2p/register: the files on the shared directory that decide it.
//   - p2p/cluster: drives the membership machine: clock, messages, storage.
//   - p2p/p2ptest, p2p/register/registertest: a network and a register for tests.
//   - sim: the algorithms simulated, to be measured.
//   - sim/baseline: those that the papers compare with.
//   - sim/figures: the papers' figures and claims.
//   - policy: the rules that say which algorithm serves which path.
//   - systemtest: tests of all but the kernel and the network, on virtual time.
//   - internal/boottime: the clock of time since boot.
//   - internal/version: which dmxfs this program is.
//   - internal/process: what Linux lets one do with processes.
//   - internal/hugepages: code and data of a program in huge pages of memory.
//   - internal/memory: how much memory a process may still have.
//   - internal/printing: tables, JSON and times for people, safe for terminals.
//   - internal/mountlog: the log of a mount.
//   - internal/trouble: what an error means: may it pass, and what can be done.
//   - internal/again: repeats system calls that end with errors of a moment.
//   - internal/writegate: keeps writes to the storage apart from an open that
//     must not meet one.
//   - internal/mountpoint: mount point and shared directory: which are there,
//     and what is wrong with them.
//   - internal/nodestate: what a node keeps of its cluster in the state
//     directory.
//   - internal/privileges: a daemon is started without capabilities that it does
//     not need.
//   - internal/trial: storage is tried before a first mount.
//   - internal/history: the journal of a daemon whose disk may fail.
//   - internal/supervise: a mount is served by a process that another one
//     watches.
//   - internal/chronicle: what happens to a node gets into journal and log.
//   - internal/rules: the policy of the view is in force on a node.
//   - internal/rotation: the secret of the cluster changes while all goes on.
//   - internal/journalquery: what is asked of journals, and what is answered.
//   - internal/succession: a daemon is replaced by another program in its own
//     process.
//   - internal/daemon: the process that serves a mount; it joins the parts.
//   - internal/ask: how commands ask the daemon of a mount.
//   - internal/journalview: journals shown to people and programs.
//   - internal/firsthour: tests of the tutorial and of common mistakes.
//   - internal/benchplot: a program that draws the results of benchmarks.
//   - internal/long: whether tests run in full, and what ends those that hang.
//   - internal/admin: what commands and daemon say to each other, and the socket.
//   - internal/config: the settings of a mount.
//   - internal/statedir: the state directory of a mount.
//   - internal/metrics: what a daemon counts, for Prometheus.
//   - internal/snapshot: what a daemon tells of its cluster at one moment, searched
//     and summed up.
//   - internal/top: the terminal view of dmxfs top.
//   - internal/web: the page of dmxfs web.
//   - internal/crash: reports on daemons that crashed.
//   - internal/sigbus: pages of mapped files that the disk cannot give.
//   - internal/relay: what a daemon leaves to the program that takes its place.
//   - internal/shm: tables in memory that outlives a process.
//   - internal/recent: what this host has changed lately, and what follows from it.
//   - internal/keeper: descriptors that outlive a process.
//   - internal/estate: what a daemon that was killed leaves, and how the next one
//     takes it.
//   - internal/support: the archive of dmxfs support.
//   - internal/doctor: what a shared directory keeps between two hosts.
//   - internal/exitcode: the numbers with which dmxfs ends.
//   - internal/mutant: builds of packages with planted bugs, for tests.
//   - internal/mountinfo: what is mounted where, as the kernel tells.
//   - internal/waitgraph: who waits for whom in the cluster.
//   - journal: what happened on this node, in Badger.
//   - story: the journals of all members as one, and the story of a file.
//
// fusefs, p2p, journal and locks/engine do not import one another: each says
// what it needs as an interface of its own. arch_test.go holds the rule; it
// fails the build when it is broken. docs/ARCHITECTURE.md explains the whole.
package dmxfs
