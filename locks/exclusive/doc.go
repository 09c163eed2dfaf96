// Package exclusive is what the exclusive algorithms have in common: the many
// tickets of a node, in front of one lock that nodes hand to each other.
//
// The papers speak of nodes that enter and leave a critical section, one
// request at a time. A node of dmxfs has many programs. So there are two
// layers, and this package is the upper one:
//
//   - A [Core] is an algorithm of a paper. It knows one lock for the whole key,
//     and at most one request of its node at a time. It never hears of tickets.
//   - The machine that [New] makes in front of it has the tickets, asks the
//     core for the lock while one waits, and lets the tickets in while the lock
//     is here.
//
// Whatever its mode and range, a ticket excludes those of all other owners.
// Tickets of one owner exclude nothing.
//
// # Invariants
//
//   - X1: all held tickets are of one owner.
//   - X2: while a ticket is held the core has the lock.
//   - X3: a request of the core is open exactly while a ticket waits and the
//     lock is not here.
//   - X4: a lock that is not used and that a member wants is given away.
//
// With X1 and X2, exclusion of nodes by the core is exclusion of owners.
//
// # Whose turn it is
//
// The lock stays when its ticket is released, until a member wants it: to have
// it again costs no message. Waiting tickets are served in the order of their
// stamps, tries first. As soon as a member is known to wait, only those have a
// turn that were there at that moment; then the lock is given away, and asked
// for again if more wait. So neither the programs of one node nor the other
// members wait for ever. An owner that holds the lock gets more of it at any
// time, since it would wait for itself.
//
// A ticket that was interrupted and comes again brings its stamp, and has its
// place among the tickets of its node. It has none among the requests of nodes:
// safety rests on their stamps never coming again.
//
// Overtake does nothing. Who waits for an exclusive lock waits for its holder;
// a queue before it closes no cycle of waiting that the holder does not close.
//
// # Tries
//
// A try must know whether the lock is used, here or elsewhere; that it is kept
// elsewhere is no reason to deny it. So a request says that a try stands behind
// it, with a number, and the core finds out whether one that goes before it has
// a ticket that is held, now or as soon as it has one. If so that is told, and
// the tries of that number and of those before are denied; their request is
// withdrawn, unless others wait. If not, the lock comes. A try that comes while
// a request is open asks by the next number.
//
// A try is therefore denied only if a ticket of another owner was held in its
// life, and it always has an answer, in a time that depends on messages alone
// and not on programs, unless a node that is to have the lock may not enter.
//
// # Clock, stamps and tokens
//
// One number does for all three: Lamport's clock (Comm. ACM 21(7), 1978). All
// messages bring it. A request has its value as its stamp, and a grant as its
// fencing token. Of two grants that conflict the later one has heard of the
// earlier one, by whatever messages brought the lock, so its token is greater.
//
// The clock is also what outlives a machine. One that is dropped has its clock
// as its Token, and the machine that is made anew begins there: it never uses a
// stamp again. What else a core must remember to be safe keeps it from being
// idle.
//
// # Data
//
// The lock leaves with Turn.Handover and comes with Turn.Stale: between the two
// any member may have written.
//
// # Epochs
//
// A node that holds a ticket says so, with the stamp of the request by which it
// has the lock. In the new epoch that request has it, by the word of all; all
// else is over. Open requests are made again with the stamps that they had,
// which are earlier than any of the new epoch.
package exclusive
