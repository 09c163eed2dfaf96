// Package rw is the read/write algorithm: many readers or one writer on each
// byte of a file.
//
// It is Ricart and Agrawala's algorithm (Comm. ACM 24(1), 1981) with two ideas
// of Liu, Liu, Qiu and Yan ("A High Efficiency Distributed Mutual Exclusion
// Algorithm"): an R-lock is recorded locally and a W-lock at all nodes
// (section 3.1), and the read/write clock stamp (section 3.2); with the
// permissions of Carvalho and Roucairol (Comm. ACM 26(2), 1983), which stay
// when the lock is released; and with ranges of bytes.
//
// # Words
//
// A claim is a ticket of this node, waiting or held, or a request of a peer
// that is owed an answer. Two claims conflict when their ranges overlap, one
// of them is a write, and their owners differ; owners of two nodes always do.
//
// A stamp is (SN, site, n), smaller first. SN is one more than the largest
// heard of; a write raises it, so that the reads between two writes share one
// and differ in n, the paper's SNr. The order in which everything gives way is
// total over all nodes: a try before a wait; then the latest overtaker; then
// the smaller stamp.
//
// A claim is blocked hard by a held ticket that conflicts with it: that is
// what locks mean. It is blocked soft by a waiting claim that conflicts with
// it and goes before it: that is only fairness, and therefore does not count
// when that claim itself waits for the owner of the first.
//
// # Permissions
//
// For every other member k a node has two sets of bytes: auth[k], where it may
// write without asking k, and given[k], where k may write without asking it.
// Between any two turns, for nodes i and k:
//
//   - I1: auth[k] of i is within given[i] of k; they are equal when nothing is
//     under way between the two.
//   - I2: auth[k] and given[k] of one node are disjoint.
//   - I3: the range of a held W ticket is within auth[k] for every k.
//   - I4: the range of a held R ticket is disjoint from given[k] for every k.
//
// So if i writes byte x: x is in auth[k] of i (I3), hence in given[i] of k
// (I1). Then k does not read x (I4), and x is not in auth[i] of k (I2), so k
// does not write it (I3).
//
// A write needs auth from all and asks those from whom it lacks some. A read
// needs back what was given, and so mostly asks nobody.
//
// # Messages
//
// REQUEST and REPLY are the paper's. CANCEL withdraws a request. RELEASE gives
// kept permissions back unasked. CLOCK is for overtakers. The paper's CREPLY, and its counting of a
// concurrent REQUEST as a REPLY, are left out: they are not safe beside silent
// readers, and worth nothing once permissions are kept.
//
// A write costs 2(N-1) messages, and a read 2 for each peer that may write,
// but for what is kept: a node that repeats a lock sends none, two nodes in
// turns send two a turn, whatever N is. What is kept and must be asked back
// makes it more for reads among random writers, and a RELEASE costs one for
// each peer. See counts_test.go.
//
// # What was mended
//
// As printed, Fig. 2 of the paper lets a reader pass a stored write request
// that it should wait for ((1)4 and (1)6 test only requests marked l), lets a
// write in on one CREPLY, and takes a REQUEST for a REPLY although its sender
// has silent readers ((5)4, (5)5). Each puts two nodes in the critical section
// within a few steps. These are the rules beyond the paper; each has a file in
// testdata with the shortest run that breaks without it.
//
//   - Asking again. A waiting ticket whose permission was given away asks for
//     it again with its old stamp: the second request of Carvalho and
//     Roucairol. (notes_ask_again.txt)
//   - Crossed answers are void. Two nodes can say yes to each other at the same
//     time, when something passes a waiting ticket, or its request outlives
//     it. Both have given then, and neither has. A REPLY lists the sender's
//     open requests; what was granted to one of those, while the answered
//     request was open, does not come with the answer. Both nodes find the
//     same, so both take it off their books, too. (11_crossed_answers.txt)
//   - One order. A wait gives way to a waiting try whatever their stamps, and
//     an overtaken ticket to the overtaker, also when it asks again. Else two
//     nodes that wait for a third take each other's permission for ever.
//     (20_no_storm.txt, notes_one_order.txt)
//   - Leaning. A ticket need not ask where an equal and earlier one of its node
//     has asked. Not where a wider, stronger or later one has, which may be
//     kept waiting by what is nothing to the ticket.
//     (15_no_leaning_on_a_later_ask.txt, 16_no_leaning_on_a_write.txt,
//     notes_no_leaning_on_a_stronger.txt)
//   - A try has its own requests, and a no denies that ticket only.
//     (notes_own_requests_of_a_try.txt)
//   - Expire spares what was asked for. (12_expire_spares_asks.txt)
//   - A request says what its owner holds, so that the rule about owners in
//     soft blocking holds at the other node as well. (14_upgrade.txt)
//   - CANCEL: a withdrawn request leaves no ghost for readers to stand behind.
//     (13_no_ghost.txt) A ticket that asks again withdraws its earlier request
//     by that: it has at most one that counts at each peer.
//     (16_no_leaning_on_a_write.txt)
//   - CLOCK: who overtakes is in front of those of whom it could have heard.
//     A node that had its permission did not tell it; it tells its clock when
//     the request comes, and the overtaker goes in front of that. Else each
//     overtakes from the clock that it knows, and the same one is ahead every
//     time: a wait behind a queue without end. (notes_overtake_unheard.txt)
//
// What a request leaves under way when its ticket is granted or cancelled can
// be answered yes and cross a grant. Then a wait may go before another that its
// node had heard of, once. With one range for all it cannot.
//
// A machine that is idle can be dropped and made anew. What it knew of its
// requests is gone, so their tags must not come again while an old one may
// matter: a tag is the ticket's ID, which is never used again, and a round.
// What it knew of the clock is gone, too; the next request may pass earlier
// ones, once.
//
// # Order
//
// Permission to write that leaves this node sets Turn.Handover: the peer may
// read, or write itself, what was written here. One that comes back sets
// Turn.Stale. Tokens travel with both: a grant has a greater token than all
// that its node has heard of, and two grants that conflict are always
// separated by a REPLY yes or a RELEASE from the earlier node to the later.
//
// # Parts
//
// A machine is put together from parts that know nothing of each other, and says
// in which order they change and what is told to whom:
//
//   - peers, peer: what each member may do without the other (auth, given), and
//     what was asked of it.
//   - stamps, tokens: the clock, and the fencing tokens.
//   - claims: who blocks whom, among what is held (held), what waits (line) and
//     what peers are owed.
//   - looks: what is to be looked at in this turn.
//
// # Failure
//
// There is none within an epoch. At a new one each node says where it writes;
// that is auth at the node, and given at all others. Readers are silent, as
// always; waiting tickets ask again. What a node released after it had said so
// is still a permission of its own: the others count on its word.
//
// # What it does not do
//
// It does not see deadlocks over several keys; the engine finds them by
// Blockers. A queue can complete a cycle that could not arise on one host,
// where only held locks block: therefore Overtake, by which the engine lets
// waiting requests pass one another in time.
package rw
