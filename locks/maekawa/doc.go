// Package maekawa is Maekawa's algorithm: who wants the lock asks the members of
// its quorum for their votes, and any two quorums have a member in common.
//
// It is the algorithm of Maekawa ("A sqrt(N) Algorithm for Mutual Exclusion in
// Decentralized Systems", ACM TOCS 3(2), 1985, sections 2 to 4), with what
// Sanders ("The Information Structure of Distributed Mutual Exclusion
// Algorithms", ACM TOCS 5(3), 1987) found missing, and with names for requests
// and votes. For large clusters: with K members in a quorum, about the square
// root of N, the lock costs 3(K-1) messages where nobody else wants it, about 4(K-1)
// where many do, and at most 7(K-1).
//
// # The paper
//
// A node is two things. As a requester it sends REQUEST to its quorum and has
// the lock when all have answered LOCKED. As an arbiter, a member of quorums, it
// has one vote. A request that comes while the vote is given waits. If another
// that is there precedes it, it is told by FAILED that it is not the next;
// else INQUIRE asks the one with the vote whether it will succeed. That
// one, if it has had a FAILED, gives the vote back by RELINQUISH, and waits.
// RELEASE ends a request.
//
// # Quorums
//
// [Quorum] uses the lines of finite projective planes (section 3), folded onto
// the nodes that there are; see [Plane]. They are smaller than the rows and
// columns of a [Grid] for any N. A node is always in its own quorum.
//
// # What was mended
//
//   - Step (2) sends FAILED to a request that comes second, but not to one that
//     becomes second because an earlier one comes. That one believes that it is
//     the next, gives nothing back, and three can wait in a cycle:
//     testdata/paper/displaced.txt, with seven nodes, and in the paper's own
//     example, section5_node3.txt. It is sent a FAILED, too.
//   - Step (3) gives back what is asked for after "a FAILED message from some
//     of its members". A vote that was given back is as good a reason, since
//     that member has voted for another one now: testdata/paper/relinquished.txt.
//   - Nothing says which request and which vote a message is about. An INQUIRE
//     about an earlier request then gives back a vote for the present one, and
//     the arbiter takes it from a third: two have the lock. Without FIFO,
//     INQUIRE can overtake the LOCKED that it is about: to answer it is unsafe,
//     to ignore it a deadlock. Here every message names its request, and votes
//     have numbers, which are clocks and never used again:
//     testdata/paper/inquire_first.txt.
//   - A withdrawn request is released like any other. If the RELEASE overtakes
//     the REQUEST, the arbiter votes for what is over; the LOCKED is then
//     answered by another RELEASE: testdata/07_ghost.txt.
//   - Messages need not be FIFO, and may come twice.
//
// # Claims of the paper
//
//   - Sections 2 and 3, quorums and their sizes: hold, and Figure 1 has the
//     properties that it should have. quorum_test.go
//   - 3 to 5 messages for each member: holds on the average. counts_test.go
//   - Section 5, the example: runs as it is told. testdata/paper/section5.txt
//   - Section 6.2, no deadlock: does not hold as printed, see above.
//   - From one holder to the next it takes two messages. testdata/08_delay.txt
//
// # Keeping the lock
//
// In the paper the lock is given back at once, so nobody has to ask for it. Here
// it is kept, so an arbiter tells the one with its vote, by LOCKED or later
// once by WANTED, that another request waits, unless INQUIRE says it anyway.
// [Options.Eager] leaves that out.
//
// # Tries
//
// A REQUEST for a try says so. An arbiter asks the one with its vote, by LOCKED
// or WANTED, to say USING as soon as it uses the lock, and passes that on to
// those for whom it asked by DENIED. Whoever uses the lock has the vote of a
// member of every quorum, so the try is known there.
//
// # Invariants
//
//   - M1: a vote that a requester counts is given to that very request.
//   - M2: while a request waits at an arbiter its vote is given.
//   - M3: who has the lock has the votes of all its members.
//   - M4: at an arbiter, all that are not the first of those that wait have had
//     a FAILED since they had the vote, and so has the first if the vote went
//     to one that precedes it.
//   - M5: else the one with the vote has had an INQUIRE.
//   - M6: who has asked for the lock's use is known to the one with the vote,
//     and is told while the lock is used.
//
// Exclusion is M1 and M3: two that have the lock have a member in common.
// Of those that wait in a cycle one precedes the others; whoever keeps a vote
// from it has had an INQUIRE for it (M5), and has failed where the cycle goes on
// (M4), so it gives the vote back.
//
// # Forgetting
//
// An arbiter that has its vote knows of no request. Stamps and numbers of votes
// outlive it, being clocks. So it can be dropped.
//
// # What it does not do
//
// Locks are not granted in the order of stamps over all arbiters: one that is
// later may be first. It is not faster when members are near each other: who
// takes over waits for RELEASE and then for LOCKED.
package maekawa
