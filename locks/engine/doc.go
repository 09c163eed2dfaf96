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
//	State     what this node must tell the others, after a write-out
//	Install   the new view; frames of its epoch are kept from now on
//	Sync      what a member told, once for each member, this one included
//
// With the last Sync every machine is restored and granting goes on.
// [Engine.Expelled] ends a tenure instead: everything held is lost.
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
// the order alone, not a lock, has kept them waiting for a while (sweep.go).
//
// # Order of locks
//
// There is one mutex, Engine.mu. It is never held while Files is called, and
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
