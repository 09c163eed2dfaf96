// Package sim is a discrete-event simulation of the algorithms: how many
// messages a lock costs, how long it takes, and who gets it, in a cluster of any
// size and under any load, without a cluster.
//
// It runs the machines that the daemon runs, not copies of them, through the
// methods of [locks.Machine] that a world without failures needs; and beside
// them the algorithms that the papers compare with (package sim/baseline).
//
// # Model
//
// It is the one of the paper on relative consensus voting (Cao, Zhou, Chen and
// Wu, section 6.2). There is one key. Each node has at most one request at a
// time; what arrives meanwhile waits in a queue of its own, which costs nothing
// and is not counted. A message takes [Config.Delay], Tn in the paper, and a
// critical section (CS) [Config.CS], Tc. Channels between two nodes are FIFO,
// as in the product. Nothing is lost, nobody fails, computing takes no time.
// Events of the same instant happen in an order that is drawn.
//
// # Measures
//
//   - NME: messages sent, of all kinds, for each CS that was completed.
//   - RT: from the moment at which a node asks its machine to the end of its CS.
//   - Synchronization delay: from an exit that leaves the CS empty, while
//     somebody waits, to the next entry. A node's own next request counts as
//     waiting.
//   - Fairness: Jain's index of the numbers of CS that the nodes have had: 1 if
//     all had the same, 1/N if one had all.
//   - Overtaken: how many requests that were issued earlier, and conflict, still
//     waited at an entry, on the average.
//   - Bytes: the encoded messages, without the frame around them, for each CS.
//
// # Determinism
//
// A run is decided by its [Config]. Time is a whole number, so that sums of it
// are exact on every machine, and all choices come from generators seeded by
// [Config.Seed]. What the nodes ask for does not depend on the algorithm: one
// seed puts the same requests to all, except under [Closed], where a node's next
// request waits for the end of the one before.
//
// # What is checked
//
// At every entry, whether the CS was free for that mode, and whether the
// fencing token is greater than those of conflicting entries before; at every
// event, whether somebody waits although nothing is under way. A run that
// breaks one of these is an error, never a figure.
package sim
