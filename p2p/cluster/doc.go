// Package cluster is the thin loop around the membership machine of package
// member: it gives it clock, messages and storage, and does what its outputs
// ask for.
//
// # One goroutine
//
// [Node.Run] has one goroutine that steps the machine. Nothing that can block
// happens in it: storage operations, write-outs, fencing and the sending of
// states run in goroutines of their own and come back as inputs. The engine's
// Freeze, Install, Expelled and Resume are called in it, since the machine
// relies on their order; they hold the engine's mutex for as long as they need
// to look at each lock, no longer. So heartbeats are answered, and promises
// given, whatever the storage does.
//
// # Order
//
// An output is obeyed in the order of its fields. Above all: LiveUntil is
// published before anything else, and what grants or starts I/O compares it
// with a clock that it reads itself, see [Node.Live].
//
// # Failure
//
// Messages to the machine may be lost, so a full queue drops them. Results are
// never dropped. When the machine ends, Run returns with an [*Ended] that says
// why; nothing is granted any more then.
package cluster
