// Package estate is what a daemon leaves when it is killed, and how the next one takes it.
//
// A daemon that can be succeeded has tables in memory that outlive it ([Own]): of its mount
// and its requests (package fusefs), of its locks (package locks/engine), and of who has
// claimed its place in the cluster (package p2p/member). A keeper (package keeper) has open
// what it has open. It tells its watcher, by a [Will], how all this is found.
//
// When it dies the watcher waits until it does nothing any more ([Estate.Ended]) and starts
// the next daemon with all wills that may count, the [Estate]. That one finds out which do,
// and takes what was left ([Estate.Open]). It says its own will before anything changes, and
// again when all that counts is its own: [Will.InForce]. Then the watcher ends the keepers
// of those before. Whoever is killed in between is followed by one that has both wills.
//
// An error means that nothing can be taken: the keepers are ended, and all is as if there
// had been none. Nothing is guessed.
package estate
