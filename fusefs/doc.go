// Package fusefs is the mount: a FUSE file system that passes everything on to
// the shared directory, and asks a [Locker] before it lets programs go on.
//
// # What programs see
//
// The files of the shared directory, as they are there: numbers, names, modes,
// owners, times, extended attributes, ACLs, holes. What a call means is what
// the storage makes of it. Only .dmxfs in the root is not for programs: it
// cannot be seen, and nothing can get its name.
//
// # Locks
//
// open(2) for reading takes R on the file in class open, open(2) for writing
// and truncate(2) take W, until the last close(2) or munmap(2). A file that a
// call has just made is locked in the background, and the first I/O waits for
// that: the kernel must not be kept waiting while it holds the directory.
//
// flock(2) and fcntl(2) are passed on to classes flock and posix. From the
// first such call on (locking or unlocking, not F_GETLK) the process that
// calls and the process that opened the file lock for themselves: they keep no
// open locks and take none, on any file of the mount.
//
// What ends a lock follows the man pages. A POSIX lock ends when its process
// closes any descriptor of the file, or ends; a lock of flock(2), an open file
// description lock and an open lock end with the last descriptor that dup(2)
// and fork(2) have made of the one open file.
//
// I/O on a handle that is protected by a lock (its open lock; an explicit lock
// that came through it; an explicit lock of its process) asks for admission
// directly before the system call on the storage. A handle that was under a
// lock when the node was expelled answers EIO until it is closed.
//
// So does every request that changes the storage in another way, by name: it
// asks for the locks of the program that makes it. See fence.go and
// operations.go.
//
// flock(2) on a directory, and leases, are not passed on by the kernel: they
// work between the programs of one host.
//
// Where locks go by path ([FileIDPath]) a file in use is not renamed, see
// moves.go.
//
// # Caches
//
// Data that was read or written under a lock stays in the kernel's cache as
// long as no other node has had a lock to write: [Server.Refresh] drops it, and
// a file that is opened without such an event and as it was left keeps it.
// Names and attributes are kept for a short time ([Options.TTL]), which bounds
// what is seen late without a lock; Refresh ends it at once, so that with a
// lock nothing is seen late. That there is no file of a name is not kept. With
// [Options.CacheTime] all this is kept for longer, and without a file, too, while
// this node holds the lease of names; see leases.go, longcache.go and package lease.
// An open that finds that its name leads to another file now looks it up again.
//
// Refresh and [Server.Flush] also concern every file that is open without an
// open lock, because a lock on another file may be what protects it.
//
// # Requests
//
// Two goroutines read requests, and answer each where it was read; while both
// do that nobody reads. So whatever waits for more than the storage says so
// before (conn.willWait), and what takes long is found by its time; see
// readers.go and conn.go. What they keep from running meanwhile has its turn in
// between; see pauses.go.
//
// # When the process is killed
//
// With [Options.Ledger] programs outlive it: another process goes on with their open
// files, their locks and the calls that they are in, see [ResumeKilled]. Whoever
// supervises the two does this, in order:
//
//  1. It makes a generation, higher than all before, and for it the tables of [LedgerForm] (package
//     internal/shm), [NewRequests], and the ledger of the lock engine. It has their
//     descriptors, or knows their numbers in the table of descriptors of the process;
//     and a process that shares that table (clone(2) with CLONE_FILES), does nothing, and
//     ends with the supervisor. Neither it nor the supervisor uses the mount.
//  2. When the process has died it waits until [Requests.Ended] says so of it: not until
//     it can be waited for, which may be never.
//  3. The next process opens what was left: of all generations there are the tables that
//     count (shm.OpenNewest with [LedgerWhose], and the same of the engine's), and
//     [OpenRequests] of the generation of the mount's. The engine's names the node in whose
//     place it is going to join the cluster (ReadLedgerView); if that was dropped meanwhile
//     the node learns it when it joins, and the locks are lost. It makes all anew, gets the
//     descriptors, and calls [ResumeKilled]; then Inherit of the engine. An error of any
//     of them means that there is no going on: as without a ledger the mount is cut off
//     and made anew, and the locks are lost. Until then nothing has changed, and another
//     process could try it instead. If only the engine has nothing to go on with,
//     [Server.Expelled] is called before Serve.
//  4. The new ledger of the mount counts as soon as ResumeKilled returns, and that of the
//     engine when Inherit does. Then, and before the node is a member and [Server.Serve]
//     runs, they supersede the old ones (Supersede of the tables): who does not find the
//     new ones finds nothing. Who is killed before that is followed by one that goes on
//     with what counts, be it the new one of the mount and the old one of the engine. These
//     belong together: nobody has used the mount, nor the locks. Then the process that has
//     kept the descriptors is ended, when there is another one.
//  5. Before Serve, too, the locks are given up of open files that [Server.Knows] does not
//     know: they were just closed. Later one that is just being opened would look so.
//
// What the process may have changed when it was killed, without having noted it, fails
// with EIO if it cannot be known whether another host has done the same, see again.go.
// [Options.Others] asks them, and [Options.Recent] is what this host has done.
//
// A request that kills each process that takes it is known by the supervisor only by
// their number: after some in a row it goes on without the ledger.
//
// # Parts
//
// The requests are served by types whose names end in Calls; they ask the parts
// above them, and those each other, but none one that is below it in this list.
// All have in common what is in base.
//
//   - descriptors: makes room for what is opened.
//   - actor: acts as the program that asks, as far as that is needed.
//   - private: which names are kept from programs.
//   - stirring: sees to it that other hosts see changed names.
//   - unprotected: the files that are open without an open lock.
//   - entries: which names the kernel may keep, and makes it look them up again; of which
//     files it was told attributes lately.
//   - longCache: what of names and attributes the kernel may keep for long, and makes
//     it forget that.
//   - leases: whether it may, and whether this host may change any.
//   - client: makes the client of the storage look anew.
//   - pageCache: which pages the kernel may have, and makes it drop them.
//   - attrCache: which attributes the kernel may have, and makes it forget them.
//   - waits: how a request waits for other hosts, and what ends that.
//   - lockRecords: the explicit locks that were granted, by file, open file and
//     process.
//   - rules: what open(2) means for which file.
//   - openLocks: takes open locks, and gives them up.
//   - yielder: lets idle open locks give way to other hosts.
//   - coherence: writes out before a lock leaves (Flush), drops what others may
//     have changed when one arrives (Refresh).
//   - fence: admits I/O and changes, and refuses them when a lock is lost.
//   - finder: finds the file that a request is about.
//   - retries: the second attempt of an open(2) whose file was replaced.
//   - moves: renames where locks go by path.
//   - lockCalls, fileCalls, attrCalls, openCalls, nameCalls, dirCalls: the
//     requests about explicit locks, what is in files, attributes, opening and
//     making files, other names, directories.
//
// # Order of locks
//
//	handle.mu
//	├── handle.syncMu
//	├── sizeBounds.mu
//	└── nodeLocks.lockMu
//	    ├── process.mu
//	    └── unprotected.mu
//	        └── nodeCache.cacheMu
//	processes.mu
//	└── process.mu
//	tree.mu
//	└── devices.mu, registry.mu, nodeLocks.lockMu, closings.mu
//	soleVersion.mu, madeSize.mu
//	└── handle.mu
//	dirHandle.mu
//	sizeBounds.mu
//	└── tree.mu, nodeCache.cacheMu
//	leases.mu
//	└── longCache.mu
//	nodeCache.cacheMu, entries.mu, readers.mu, longCache.one
//	attrCache.forgetting
//	└── tree.mu, nodeLocks.lockMu, nodeCache.cacheMu, entries.mu
//
// ledger.mu, redo.mu and Requests.mu come after all others.
//
// No Locker is called with any of them held, but Admit and Wanted with
// handle.mu, which then do not wait. [Server.Clean] is called under the mutex
// of the engine, and takes those of the tree and of nodes.
package fusefs
