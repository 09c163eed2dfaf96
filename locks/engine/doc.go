// Package engine is where the machines of the algorithms meet time, network,
// disk and programs. It owns every machine of this node.
//
// # What it does
//
// Callers in file system handlers ask with [Engine.Lock]; the engine finds the
// machine of the file, steps it, and either answers at once or parks the
// caller until a message from a peer, or a release on this node, lets it go
// on. It turns the locks of programs (fcntl ranges that split and merge, flock
// conversions, open handles) into tickets of the machines and back. It hands
// the data over with the lock, see below, and tells the journal of every step.
//
// # Epochs
//
// The membership driver calls, in this order and never at the same time:
//
//	Freeze    no grant and no message from now on; it returns at once
//	NewRules  only when Options.Rule answers otherwise from now on
//	Install   the new view; frames of its epoch are kept from now on
//	State     what this node must tell the others, after a write-out of what is
//	          its own no longer; without Install, as it leaves, of everything
//	Sync      what a member told, once for each member, this one included
//
// With the last Sync every machine is restored and granting goes on.
// [Engine.Expelled] ends a tenure instead: everything held is lost.
// [Engine.Bequeath] ends the engine between two epochs, and [Engine.Inherit] of
// another one, in the process that takes the place of this one, goes on with the
// next epoch (bequest.go). So it does with what [ReadLedger] finds of a process that
// was killed, if that has kept a ledger (ledger.go).
//
// # Invariants
//
//  1. A caller is told of a grant only when the machine has granted it in a
//     turn in which the node was live (Options.Live), in the present epoch.
//  2. Messages of one key leave in the order in which its machine made them.
//  3. Before a message leaves that lets a peer see or change a file which may
//     have been written here under the key, Files.Flush has returned; and if
//     that has failed, all peers have been sent word of it, which whoever the
//     lock goes by way of passes on before it (damage.go).
//  4. A caller returns with a grant only after Files.Refresh, if a peer may
//     have written since the last one; but for a blind request, which leaves
//     that to the next one.
//  5. Every call of Lock ends: granted, denied, interrupted, lost, or because
//     the node leaves. An interrupted call leaves nothing behind that could be
//     granted later; only its stamp is remembered for a second. A call that
//     fails leaves what its owner had as it was (deliver.go), but for flock(2),
//     which gives up the lock of the other mode first.
//  6. Within an epoch the machines of a key are of one algorithm on all members.
//     What was granted by another one, before the rules changed, stays held, and
//     while it does nothing else of the key is granted: see change.go.
//
// # Who is next
//
// Requests that conflict are served in the order of their stamps, over all
// nodes; an interrupted one that comes again within a second keeps its stamp
// (places.go). Two things go before their turn, both bounded in gate.go: opens
// that join an open lock of their own node, and tickets that overtake because
// the order alone, not a lock, has kept them waiting for a while (sweeper.go).
//
// # Parts
//
// [Engine] is put together from parts (assemble), each with its own state. Each
// asks those above it in this list; assemble says where two ask each other. All
// have in common what is in base: the mutex, the view, and where the node is in
// the life of an epoch. What they know of one key is in its entry.
//
//   - alarm: wakes Run.
//   - journal: tells the Recorder.
//   - ledger: writes down what the next process needs if this one is killed.
//   - quota: how many locks a program has, and may have.
//   - waiters: which tickets wait, and whose.
//   - entries: makes and drops the entries of keys, and knows what is idle, clean,
//     or pinned to an algorithm.
//   - damages: tells everybody of data that did not get to the storage.
//   - outboxes: write out, then send.
//   - wishes: what others want of what is held here.
//   - stepper: makes turns of machines.
//   - barriers: what is held from before the algorithm of a key changed.
//   - askBacks: asks for a permission again in the moment in which it is given away.
//   - reports: the table of locks, and why something waits.
//   - queries: F_GETLK, over all members.
//   - tickets: how a request comes to wait, is decided, overtakes, is withdrawn.
//   - holdings: the pieces that owners have: what a grant replaces, what an unlock
//     leaves, what is on its way to its program.
//   - breaker: takes locks away, as an admin wants it.
//   - lent, borrowed: what this node has delegated, and what others have delegated
//     to it.
//   - detector: looks for deadlocks, by probes.
//   - heirs: what was taken over from a process before this one.
//   - sweeper: what is due: permissions that nobody uses, probes, overtaking.
//   - closings: what waits for a lock that may be on its way out.
//   - inbox: the frames of members, also of epochs to come.
//   - epochs: freeze, state, install, restore; what is lost with a tenure.
//   - bequest: leaves what there is to the next process.
//   - calls: serve lock and unlock.
//
// Under them are pure types, which tests step by themselves: an owner's pieces
// (heldList), tallies, the gate of a key, waiters, places, recent keys.
//
// # Order of locks
//
// There is one mutex, base.mu. It is never held while Files is called, and
// Transport.Send, Recorder.Record and Cleaner.Clean, which are called under it,
// never block.
// That one mutex serves all keys is a choice: a turn takes about a
// microsecond, and a file system request takes ten.
//
// # What it does not do
//
// It does not know who is a member, nor for how long (p2p/member), and it does
// not do I/O on files (fusefs).
package engine
