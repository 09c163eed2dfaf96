// Package p2ptest is a network in memory for tests: it carries the channels of
// package p2p between endpoints of one process, with delays, one-way cuts and
// lost connections, and with no clock of its own, so that it works in the
// virtual time of testing/synctest as well as in real time.
//
// Above it runs the same [p2p.Transport] as in production: what a simulation
// sees of sessions, resumption and dropped messages is what there will be.
//
// # What is modelled
//
//   - A connection is TCP with a multiplexer: all streams of one direction share
//     one ordered flow. What is sent arrives after the latency of the link at
//     that moment, never out of order.
//   - A cut link holds back what is sent, as TCP does, and lets it through when
//     it is healed in time. After one to two seconds of silence in either
//     direction each end gives the connection up by itself, as the keep-alive of
//     p2p makes it; then what was under way is lost.
//   - A stream holds 256 KiB that were written and not read; then writing blocks.
//   - A dial takes a round trip, and fails after a second when it gets no
//     answer. Two endpoints that dial each other get two connections.
//   - An endpoint that ends closes its connections; so does a crash of a process.
//
// Not modelled: addresses (every endpoint can be dialed), who is admitted,
// bandwidth, and the settling of double connections.
//
// Choices are drawn from a seed, but which goroutine runs first is the Go
// scheduler's choice: a seed gives the same faults, not the same run.
package p2ptest
