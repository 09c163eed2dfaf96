package engine

import (
	"fmt"
	"slices"

	"dmxfs/locks"
)

// What was written under a key may not get to the storage when the lock is
// handed over: it is full, or broken. The lock goes on all the same, because the
// programs of other nodes would wait for ever, and because they may be what can
// mend the file. But nobody is given it without a word: before the messages
// that hand it over, all members are told that the data is damaged, and on each
// of them the first program that is granted the lock gets ErrDamaged in place of
// it, once. The programs that wrote are told by the mount.
//
// Between two epochs nobody can be told; then it is done at the begin of the
// next one, before anything is granted. A node that joins later is not told.

// maxDamaged bounds what is remembered, of files that nobody uses here.
const maxDamaged = 1 << 12

// Damage says that what programs of a node wrote under a lock did not get to the
// storage before the lock was handed over.
type Damage struct {
	Key  locks.Key
	Path string       // as this node knows it; may be empty
	Node locks.NodeID // whose programs wrote it; empty: this node's
	Err  error        // why, if it was this node
}

// damage holds what is to be told of damaged data. Guarded by Engine.mu.
type damage struct {
	owed *recent // to the members of the next epoch
	told *recent // to this node, but not to a program
}

func newDamage() damage { return damage{newRecent(maxDamaged), newRecent(maxDamaged)} }

// damaged is called when what was written under k could not be written out, and
// before k is handed over.
// REQUIRES: e.mu held.
func (e *Engine) damaged(k locks.Key, err error) {
	e.o.Log.Error("could not write out a file before its lock was handed over: what is on the storage is not complete",
		"key", k.String(), "path", e.pathOf(k), "err", err)
	e.tellDamage(Damage{Key: k, Path: e.pathOf(k), Err: err})
	e.damage.owed.put(k)
	if e.phase == active {
		e.sendDamage()
	}
}

// sendDamage tells the members of the epoch what they were not told yet.
// REQUIRES: e.mu held; the epoch is active.
func (e *Engine) sendDamage() {
	if e.damage.owed.len() == 0 {
		return
	}
	for _, k := range slices.SortedFunc(e.damage.owed.keys(), locks.Key.Compare) {
		for _, m := range e.view.Members {
			if m != e.view.Self {
				e.o.Transport.Send(e.view.Epoch, m, appendKey([]byte{frameDamaged}, k))
			}
		}
	}
	e.damage.owed.clear()
}

// receiveDamage: programs of from wrote under k, and it is not on the storage.
// REQUIRES: e.mu held.
func (e *Engine) receiveDamage(from locks.NodeID, k locks.Key) {
	e.o.Log.Error("another host could not write out a file before its lock was handed over: what is on the storage is not complete",
		"key", k.String(), "path", e.pathOf(k), "peer", from)
	e.damage.told.put(k)
	e.tellDamage(Damage{Key: k, Path: e.pathOf(k), Node: from})
}

func (e *Engine) tellDamage(d Damage) {
	if e.o.Damaged != nil {
		e.o.Damaged(d)
	}
}

// takeDamage is an error if k is damaged and no program of this node was told.
// REQUIRES: e.mu held.
func (e *Engine) takeDamage(k locks.Key, path string) error {
	if !e.damage.told.take(k) {
		return nil
	}
	return fmt.Errorf("%w: %s", locks.ErrDamaged, path)
}

func (e *Engine) pathOf(k locks.Key) string {
	if en := e.entries[k]; en != nil {
		return en.path
	}
	return ""
}
