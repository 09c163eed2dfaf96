// Package waitgraph tells who waits for whom, over all members of a cluster. It is
// pure: what each member said goes in, the graph comes out.
//
// # The graph
//
// A [Wait] is one request of one process, and has those that are in its way as its
// [Blocker]s: it goes on when all of them are out of it. Processes are nodes, waits
// their edges. A cycle is a set of processes each of which can be reached from each
// other one ([Graph.Cycles]). Where each process has one thread, none of them goes
// on by itself: flock(2) has no EDEADLK, as on one host.
//
// # What is not known
//
// Members answer at different moments, so a lock may be seen twice or not at all
// when it changes hands meanwhile. A member that has not answered is in
// [Graph.Members] with Answered false, and stands in the way of those who asked it
// as a Blocker of the kind [Silent], without a process.
//
// Times are those of the host that a process runs on: between hosts they are as
// good as the hosts' clocks.
package waitgraph
