// Package rcv is relative consensus voting: a request travels from node to node
// until the votes that it has seen decide its place in one common order.
//
// It is the algorithm of Cao, Zhou, Chen and Wu ("An Efficient Distributed
// Mutual Exclusion Algorithm Based on Relative Consensus Voting", section 4),
// with another bookkeeping. For paths that many nodes want at once: a place is
// found for several requests by one message, and the lock goes from one to the
// next by one more.
//
// # The paper
//
// Every node has a log of the requests that have reached it (its row of the
// table NSIT). A request message RM goes to nodes that it has not visited,
// exchanges tables with each and is put in its log. Every log votes for its
// first request. When the votes that are not known cannot change who is first,
// that one gets the next place in the list of ordered requests (NONL), and
// leaves all logs (Order). A request that has a place stops; who is before it
// is told by IM, and gives it the lock by EM when it has finished.
//
// # What was mended
//
// The paper's tables are compared by time stamps that do not tell what it needs
// to know. Taken by its letter it lets two nodes in with three nodes and one
// request each:
//
//   - A node that gets an IM is to guess from its list whether it has finished,
//     without having exchanged tables (lines 25 to 32): testdata/paper/im.txt.
//   - Exchange, lines 1 and 3, looks into the row of the message's host, which
//     EM and IM do not have, where its text says that of the request that is
//     tested; a valid place is then forgotten: testdata/paper/host.txt.
//   - Exchange, lines 13 to 22, copies a row before rows below it tell that its
//     first request is over. That ghost hides a vote, and two nodes order
//     differently: a deadlock, or two with the lock, from four nodes on that
//     request repeatedly: testdata/paper/ghost_deadlock.txt and
//     ghost_two.txt.
//
// Here a log is what it is in the paper, but it only grows, and its version is
// its length. The order is one sequence with positions. What a node knows of
// it is a part from its beginning on, and the largest stamp of each node that
// has a place. So nothing is guessed: of two parts the longer one is right, of
// two versions the later; what has a place is in no log; and whether a request
// of this node has finished is known here.
//
// A request message says the stamp, not only the node, of its host. A host
// votes for itself and counts the votes that it knows before it sends anything.
//
// # Invariants
//
//   - V1: where two nodes know of a place, they know of the same request.
//   - V2: no log has a request that has a place, or one request twice.
//   - V3: a node knows all places from the first one whose request may not have
//     finished, to the last that it knows.
//   - V4: who has the lock is at the first of those.
//   - V5: a request that has been at all nodes has a place (lemma 3 of the paper):
//     no vote is unknown then.
//   - V6: while the lock is used, all that asked have been told.
//   - V7: see Forgetting.
//
// V1 is by induction: the next place goes to whom the complete logs vote for,
// without those that have a place. A log that is known has its first request
// for good, since logs only grow. Those that are not known cannot change who is
// first (order), so whoever decides decides the same. Exclusion follows: the
// lock goes from place to place, by the one that has it.
//
// A request costs at most N+1 messages: N-1 RM, one IM, one EM. Alone in a system
// that knows nothing it costs [N/2] RM and an EM; for node 0, which wins where
// votes are equal, an RM less if N is even. What is left of earlier requests
// makes it about one more.
//
// # Claims of the paper
//
//   - No FIFO: holds. All simulations let messages overtake each other.
//   - Several places are found by one message: holds. testdata/paper/host.txt
//   - The synchronization delay is that of one message: holds if the next one
//     has its place. testdata/11_delay.txt
//   - N-1 hops at most, [N/2]+2 messages under light load: hold, see above.
//     counts_test.go
//   - "Crash of nodes will not affect the algorithm's execution" does not hold:
//     a node that is to pass the lock on must do so. Here a new epoch begins.
//
// # Withdrawing
//
// A request that is withdrawn is in the logs of others. It stays, as a zombie,
// gets its place and the lock, and passes it on; or it is taken up again, with
// its place, by the next ticket of its node.
//
// # Keeping the lock
//
// Who has the lock and does not use it stays at its place in the order. The IM
// for the next place comes to it and says that the lock is wanted.
//
// # Tries
//
// The RM of a try says so. When it has a place, all that are before it are
// asked, by ASK, to say HELD as soon as they use the lock. A try that comes
// while a request of its node is under way asks by itself if it knows the
// place, and else sends a PROBE after the RM, which ends with PROBED.
//
// # Forgetting
//
// A log is a promise, so a node cannot forget its own; it would vote again where
// it has voted. All forget together. That is for who has the lock and does not
// use it, so there is one at a time, by CLOSE, SEALED or BUSY, and FORGET or
// REOPEN: 3(N-1) messages; see forgetting. A request that comes meanwhile ends
// it, by HURRY. V7: a node that is sealed has no request
// under way, and what it gets waits; a closing that goes on has the lock and
// does not use it. When all are sealed nothing that knows of a request is under
// way.
//
// So messages may overtake each other, and may come twice within what is not
// forgotten; but none may come again after that. The channels of package p2p
// repeat nothing.
//
// # What it does not do
//
// A request roams from one node to the next, which takes [N/2] delays and more
// where a quorum would be asked at once. Requests are not ordered by time.
// One member that does not answer stops who has the lock from forgetting, and
// nothing else.
package rcv
