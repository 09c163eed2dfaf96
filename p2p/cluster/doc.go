// Package cluster is the thin loop around the membership machine of package
// member: it gives it clock, messages and storage, and does what its outputs
// ask for.
//
// # One goroutine
//
// [Node.Run] has one goroutine that steps the machine, and that nothing else
// can hold up: heartbeats are answered, and promises given, whatever storage,
// engine, journal, log, state directory or a peer do. What may block runs in
// goroutines of its own and comes back as an input:
//
//   - Storage operations, fencing and write-outs ([Engine].State), one each.
//   - The sending of a state to a member, one each.
//   - All other methods of the engine, and the changes of the epoch on the
//     lock channels: one goroutine, in the order of the outputs.
//   - State directory, journal, log and address book: another one.
//
// # Order
//
// An output is obeyed in the order of its fields. Above all: LiveUntil is
// published before anything else, and what grants or starts I/O compares it
// with a clock that it reads itself, see [Node.Live]. That the engine follows
// later does no harm. After an expulsion this node has tenure again only in a
// view that the machine installs when it has [member.Frozen], which the
// engine's goroutine gives after all that was before it.
//
// # Failure
//
// Messages to the machine may be lost, so a full queue drops them. Results are
// never dropped. When the machine ends, Run returns with an [*Ended] that says
// why; nothing is granted any more then. An engine that does not return would
// keep its locks for as long as this node promises, so then Run ends too: see
// [ErrStuck]. So it does when the engine cannot use what a member says that it
// holds, and when a message of a lock could not be sent ([Node.Fail]): nobody
// would go on before the next change of the members, which may never come.
package cluster
