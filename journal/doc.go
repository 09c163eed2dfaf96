// Package journal is a node's record, on its local disk, of every step of every
// lock request: what was asked for, by which program, what it was told, what
// the node held when it died. It is for admins and for programs that check
// histories; no lock depends on it.
//
// # What is promised
//
//   - [Journal.Append] copies the record and returns. One goroutine writes what
//     has gathered, some milliseconds later. Nothing in the protocols needs a
//     record to be durable before a message leaves: a daemon that starts again
//     is a new incarnation, and learns the state from its peers.
//   - A daemon that is killed loses what was appended in the last milliseconds
//     ([Options.Delay] and one write). A power cut loses what was appended in
//     the last second ([Options.SyncEvery]); rare events, such as a new view or
//     a lost lock, are synced as they come. [Journal.Sync] waits until nothing
//     can be lost.
//   - Records keep their order, by [Record.Seq], also when clocks are set.
//   - [Open] closes what the last run left open: each request that was held ends
//     as lost, each that waited as withdrawn. Every request so has exactly one
//     end, whatever happened to the daemon.
//   - The space is bounded by [Options.MaxBytes] and [Overhead]. What is deleted
//     is the oldest, but never the beginning of a request that is open.
//   - While the disk is full or fails, [Journal.Healthy] says so, and records
//     stay in memory, up to a limit. What has to be dropped is counted.
//   - Damage costs the block that it is in, at most 128 records, and is
//     reported by their numbers. A database that can't be opened any more is
//     made anew of all blocks that are left in its files.
//
// # What is on disk
//
// A directory has the identity of its owner, a lock file, and a Badger
// database; see directory.go. The database's only keys are those of blocks; the
// key of a block begins with the number of its first record, so that the
// database is one long log. Two kinds of block alternate:
//
//	records      what was appended, up to 128 records, compressed
//	state        "here these requests are open": their records again; and
//	             "the journal begins at record N"
//
// State blocks stand before the record whose number they have. One is written
// at least for every eighth of MaxBytes, before anything is deleted, and by
// Close. Hence to know the open requests it is enough to read from the last
// state on; and that a journal was closed in order can be seen from its last
// block. block.go and codec.go have the form of a block and of a record.
//
// # Order of effects
//
// Writing: blocks are stored; then the set of open requests, in memory, takes
// account of them; then the buffer forgets the records. A write that fails is
// tried again with the same blocks under the same keys, so it does not matter
// whether the failed one was stored. Deleting: see retention.go.
//
// # Badger
//
// Badger is used as a log with an index, not as a database, since some of what
// it does on its own can't be had in a daemon that must not die: see
// badgeroptions.go, badgerstore.go and room.go for what, and docs/adr.
//
// # Locks of this package
//
// None is held while another one is taken, or while the store is called.
package journal
