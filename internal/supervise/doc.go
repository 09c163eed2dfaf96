// Package supervise keeps a mount served. A mount is two processes: one serves it; the
// other, the watcher, does next to nothing and so hardly ever fails, and starts the first
// anew when it dies. Meanwhile the dead mount stays in its place, where it fails, so that
// programs never get at the shared directory without locks. The daemon in turn has a
// [Minder], which starts another watcher when that is killed.
//
// [Background] and [Watch] begin with it; [Serve], [RunWatch] and [Adopt] are the processes
// themselves, which the program runs as hidden commands. Other commands ask here which
// process watches a mount, and help a daemon to end that cannot.
//
// How a mount is served is given to it ([Daemon]): it knows neither locks nor members, nor
// what an upgrade leaves to the next program, but for its own part ([MinderLeft]).
package supervise
