// Package locktest runs the machines of one key on many nodes, in one
// goroutine, and checks all that a lock promises after every step. It is for
// tests of algorithms: whoever implements locks.Machine passes [Conformance],
// tells its stories in interaction files ([RunFiles]), and is explored
// ([Explore]) and simulated ([Simulate]) here.
//
// # Words
//
//   - A world is the nodes, their machines, the messages under way, and what an
//     observer knows who sees all of it.
//   - An op is one step of a world: something that a program, the engine or the
//     network does. A run is a list of ops; as text it is an interaction file.
//
// # What is checked
//
// After every op:
//
//   - no two tickets are held that conflict, over all nodes;
//   - one outcome per ticket, none after a cancel; none is granted while its
//     node may not enter;
//   - a try is denied only if, in its life, a conflicting ticket was held or an
//     earlier conflicting try was under way;
//   - tokens rise at a node, and between grants that conflict;
//   - whoever is granted a byte sees the last value that was written to it
//     under a lock, if it caches and writes back by Turn.Stale and
//     Turn.Handover alone;
//   - between State and Restore a machine says and grants nothing;
//   - Machine.Suspects names all that hold a lock, and Machine.Blockers all
//     that hold one here against a ticket;
//   - Machine.Check, and what [Options.Pair] says of any two nodes;
//   - messages are the same after encoding and decoding.
//
// Whenever no message is under way: nobody waits without cause. At the end of
// a run: nobody waits, and after Expire every machine can be dropped.
//
// # Replay
//
// A run is decided by its seed. A failure prints the command that repeats it,
// and the shortest run that was found to fail as well, as an interaction file.
//
// # Flags
//
// Of a test binary that uses this package: -locktest.seeds is how many random
// runs there are, -locktest.from the first seed, -locktest.seed the only one,
// -locktest.for a limit in time, and -locktest.nodes the size of each run.
// -locktest.long explores 200,000 states of each small world rather than 1000.
// -locktest.blind leaves out what machines say of themselves, and
// -locktest.shrink=false the search for a shorter run. -rewrite writes the
// interaction files anew; only commit what you can explain.
package locktest
