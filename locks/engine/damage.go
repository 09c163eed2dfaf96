package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// What was written under a key may not get to the storage when the lock is
// handed over: it is full, or broken. The lock goes on all the same, because the
// programs of other nodes would wait for ever, and because they may be what can
// mend the file. But nobody is given it without a word: before the messages
// that hand it over, all members are told that the data is damaged, and on each
// of them the first program that is granted the lock gets ErrDamaged in place of
// it, once. The programs that wrote are told by the mount.
//
// The word goes from the node that could not write to each member, before what
// hands the lock over. By an exclusive algorithm the lock may go on by way of a
// third one, and be there first. So each node passes the words of a key on, before
// whatever its machine says to a member; they are known by who gave them and his
// number of them, and count once.
//
// Between two epochs nobody can be told; then it is done at the begin of the
// next one, before anything is granted. What was said in the last minute is said
// again then, as it may have been on its way when the epoch ended; so a node that
// joins later than that is not told.

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

// sayAgain is for how long a word is given again in a new epoch.
const sayAgain = locks.Moment(time.Minute)

// damages are what is to be told of damaged data.
type damages struct {
	*base
	ledger  *ledger
	entries *entries

	serial uint64    // of the last word of this node
	own    []ownWord // of the last minute, or not given yet
	told   *recent   // to this node, but not to a program
	// heard are the words that have come, of each key by the member's index in the
	// view, in this epoch; known are the last ones of each node, in all epochs.
	heard map[locks.Key][]*word
	known map[knownWord]uint64
}

type ownWord struct {
	key    locks.Key
	serial uint64
	at     locks.Moment
	epoch  locks.Epoch // in which it was given last; 0 if it was not
	line   uint32      // of the ledger
}

// word is one of another node, which may have to be passed on.
type word struct {
	origin int // index in the view
	serial uint64
	passed map[locks.NodeID]bool
}

type knownWord struct {
	key    locks.Key
	origin locks.NodeID
}

func newDamages(b *base, es *entries, lg *ledger) *damages {
	return &damages{base: b, ledger: lg, entries: es, told: newRecent(maxDamaged), heard: map[locks.Key][]*word{}, known: map[knownWord]uint64{}}
}

// add is called when what was written under k could not be written out, and
// before k is handed over.
// REQUIRES: mu held.
func (d *damages) add(k locks.Key, err error) {
	d.o.Log.Error("could not write out a file before its lock was handed over: what is on the storage is not complete",
		"key", k.String(), "path", d.entries.pathOf(k), "err", err)
	d.tell(Damage{Key: k, Path: d.entries.pathOf(k), Err: err})
	if slices.ContainsFunc(d.own, func(w ownWord) bool { return w.key == k && w.epoch == 0 }) {
		return // it is going to be given
	}
	d.serial++
	d.own = append(d.own, ownWord{key: k, serial: d.serial, at: d.Moment()})
	if len(d.own) > maxDamaged {
		d.ledger.unsaid(&d.own[0])
		d.own = d.own[1:]
	}
	d.ledger.word(&d.own[len(d.own)-1])
	if d.phase >= restoring {
		d.send()
	}
}

// send tells the members of the epoch what they may not know yet.
// REQUIRES: mu held; the epoch is active, or being restored.
func (d *damages) send() {
	d.own = slices.DeleteFunc(d.own, func(w ownWord) bool {
		old := w.epoch != 0 && d.Moment()-w.at > sayAgain
		if old {
			d.ledger.unsaid(&w)
		}
		return old
	})
	self := d.view.Index(d.view.Self)
	for i := range d.own {
		w := &d.own[i]
		if w.epoch == d.view.Epoch {
			continue
		}
		w.epoch = d.view.Epoch
		for _, m := range d.view.Members {
			if m != d.view.Self {
				d.o.Transport.Send(d.view.Epoch, m, damagedFrame(w.key, self, w.serial))
			}
		}
	}
}

// begin is send at the begin of an epoch.
func (d *damages) begin() {
	clear(d.heard) // who gave them gives them again
	d.send()
}

// receive: programs of a member wrote under k, and it is not on the storage.
// REQUIRES: mu held.
func (d *damages) receive(from locks.NodeID, k locks.Key, origin int, serial uint64) {
	node := d.view.Members[origin]
	id := knownWord{k, node}
	if node == d.view.Self {
		return
	}
	if !slices.ContainsFunc(d.heard[k], func(w *word) bool { return w.origin == origin && w.serial >= serial }) {
		if len(d.heard) >= maxDamaged {
			clear(d.heard)
		}
		d.heard[k] = append(slices.DeleteFunc(d.heard[k], func(w *word) bool { return w.origin == origin }),
			&word{origin, serial, map[locks.NodeID]bool{from: true, node: true}})
	}
	if d.known[id] >= serial {
		return
	}
	if len(d.known) >= maxDamaged {
		clear(d.known)
	}
	d.known[id] = serial
	d.o.Log.Error("another host could not write out a file before its lock was handed over: what is on the storage is not complete",
		"key", k.String(), "path", d.entries.pathOf(k), "peer", node)
	d.told.put(k)
	d.ledger.damaged(k)
	d.tell(Damage{Key: k, Path: d.entries.pathOf(k), Node: node})
}

// words are what a member has to know before it is told something of en.
func (d *damages) words(en *entry, to locks.NodeID) (frames []letter) {
	if len(d.heard) == 0 || en.alg.Shared {
		return nil // by rw a lock comes from those who may have written
	}
	for _, w := range d.heard[en.key] {
		if !w.passed[to] {
			w.passed[to] = true
			frames = append(frames, letter{to, damagedFrame(en.key, w.origin, w.serial)})
		}
	}
	return frames
}

func (d *damages) tell(x Damage) {
	if d.o.Damaged != nil {
		d.o.Damaged(x)
	}
}

// take is an error if k is damaged and no program of this node was told.
// REQUIRES: mu held.
func (d *damages) take(k locks.Key, path string) error {
	if !d.told.take(k) {
		return nil
	}
	d.ledger.tells(k)
	return fmt.Errorf("%w: %s", locks.ErrDamaged, path)
}
