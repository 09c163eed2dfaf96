// Package ring is the several-tokens ring: a request is a token that travels
// round all members, and is the permission when it comes home.
//
// It is the algorithm of Thiare ("Several-Tokens Distributed Mutual Exclusion
// Algorithm in a Logical Ring Network", sections 3 and 4). It costs N messages
// for each change of the holder, whatever the load, the same for all members,
// and the token takes N times the delay of one message. That is for few nodes.
//
// # The paper
//
// The members form a ring. Who wants the lock sends a token (SN, id) round, with
// SN one more than the largest seen (Rule 1, relation (4)). A member that does
// not want the lock passes it on; one that has the lock, or that waits with a
// token of its own that precedes it, holds it in its queue (Rule 2). Who gets
// its own token back has the lock, and at the end sends on, in their order, all
// tokens that it holds (Rule 3).
//
// # What was mended
//
//   - Rule 2 has a member that wants nothing "replace the sequence number" of a
//     token by the largest seen. The token then has less precedence than the
//     request that its owner compares others with. From five nodes on, two can
//     hold each other's tokens for ever: see testdata/rule2.txt. A token is
//     never changed here.
//   - With that, a token can only be known by its owner's name, so one of an
//     earlier request counts for a later one. Here it is known by stamp and
//     owner, exactly; one that comes home and is not the one waited for is
//     dropped: testdata/04_stale.txt. Neither order nor duplicates matter then.
//   - Rule 4 has members store a token that is sent again, also those that want
//     nothing and so never send it on: no retransmission could ever succeed.
//     There is none here. Within an epoch no message is lost; a new epoch asks
//     again.
//   - Section 3 lets only received tokens raise the largest SN seen, relation
//     (4) also the own request. It is the latter: else two requests of one node
//     could be equal.
//   - The message complexity is N, not N-1: the last hop leads home.
//
// # Invariants
//
//   - R1: a node never holds its own token.
//   - R2: it holds tokens only while it has the lock or waits for it, and while
//     it waits only those that its own precedes.
//   - R3: while the lock is used, all that asked have been told.
//   - R4: who has the lock precedes all that wait: property 4.1 of the paper,
//     and what theorem 4.1 rests on. Let a and b have the lock, a before b in
//     precedence. The token of b was at a's node. If a was requested by then, a
//     held it, and holds it still. If not, a was stamped later than a token
//     that its node had seen, so it does not precede b.
//
// Stamps follow the tokens that were seen, as in the paper, rather than the
// clock of package exclusive; they begin at the clock. Else a request would go
// behind others that are far away on the ring, and the lock would take up to
// twice as long from one holder to the next.
//
// # Claims of the paper
//
//   - N-1 messages whatever the load: it is N. counts_test.go
//   - Theorem 4.1, safe and fair by property 4.1: holds, and is checked at every
//     step of every simulation (R4).
//   - Theorem 4.2, liveness: does not hold as printed, see above.
//
// # Tries
//
// A token that asks is held like any other. What it asks goes on, as ASK, past
// those that hold the token: 2N messages at most. Each that precedes it answers HELD when the lock
// is used there, or notes the question until it is. Who requests after the ASK
// has passed comes after it, and need not know.
//
// # Forgetting
//
// A node without a request holds nothing (R2), and what it has seen is not more
// than its clock. So it can be dropped at any time.
//
// # What it does not do
//
// A token waits for all members in turn; one that is slow makes all slow.
package ring
