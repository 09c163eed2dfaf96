// Package wire is how messages between nodes are written: unsigned varints,
// and byte strings behind their length. There are no field numbers; what a
// message holds is fixed by the version of the protocol that carries it, see
// package p2p.
//
// An encoding is canonical: what [Reader] accepts, the append functions write
// in the same way, so that a decoder can be tested by encoding again.
package wire
