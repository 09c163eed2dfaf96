package engine

import (
	"iter"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Lock asks for r and returns when it is granted, denied, or when cancel is
// closed. Errors are those of package locks. After an error nothing is held
// that was not held before, with the exceptions that flock(2) and fcntl(2)
// make: a flock in another mode is given up before the new one is asked for.
func (e *Engine) Lock(cancel <-chan struct{}, r *locks.Request) (locks.Grant, error) {
	return e.calls.lock(cancel, r)
}

// LockNow is Lock for the open file of a program that has just made it, if nothing has to
// be waited for and no other member to be asked. Else it is false, and r is not asked for.
func (e *Engine) LockNow(r *locks.Request) (locks.Grant, bool) { return e.calls.lockNow(r) }

// Unlock gives up what o holds of r, in whatever mode. It never waits and
// never fails: what is not held needs no unlock. It reports whether somebody
// goes on because of it, here or on another node.
func (e *Engine) Unlock(k locks.Key, o locks.OwnerID, r locks.Range) (handed bool) {
	return e.calls.unlock(k, o, r, "unlocked")
}

// UnlockOwner gives up all that o holds: in class Posix, its process has
// closed a descriptor of the file (fcntl(2)).
func (e *Engine) UnlockOwner(k locks.Key, o locks.OwnerID) {
	e.calls.unlock(k, o, locks.Whole, "a descriptor of the file was closed by its process")
}

// UnlockHandle gives up all that was taken through h, and ends what waits
// through it with ErrInterrupted: the open file is closed, or does without
// locks from now on, as why tells the journal.
func (e *Engine) UnlockHandle(k locks.Key, h locks.HandleID, why string) {
	e.calls.unlockHandle(k, h, why)
}

// Closing tells that h was closed, perhaps for the last time: then UnlockHandle
// follows within moments. It does not wait.
func (e *Engine) Closing(k locks.Key, h locks.HandleID) { e.closings.closing(k, h) }

// Test is F_GETLK: it returns a lock that would make r wait, the one with the
// lowest offset of those that were held at some moment of the call, or nil.
// It asks the other members when they could have one.
//
// With r.Mode 0 it is F_OFD_GETLK with F_UNLCK: the lock of r.Owner itself that
// has the lowest offset on r.Range.
func (e *Engine) Test(cancel <-chan struct{}, r *locks.Request) (*locks.Conflict, error) {
	return e.queries.test(cancel, r)
}

// Wanted is the mode in which the first of those wants a lock of k, another
// member or another owner on this one, from whom a lock of this node keeps it.
// It is 0 if there is nobody.
func (e *Engine) Wanted(k locks.Key) locks.Mode { return e.wishes.of(k) }

// Share makes the open lock of h one for reading, if it is one for writing:
// other nodes may read what was written under it, and no other one writes. It
// reports whether h has a lock for reading now. A request to write through h
// replaces that when it is granted.
func (e *Engine) Share(k locks.Key, h locks.HandleID, why string) bool {
	return e.holdings.share(k, h, why)
}

// Receive takes a frame that a member sent in an epoch. Frames of one member
// come in the order in which it sent them. The engine keeps frame.
func (e *Engine) Receive(from locks.NodeID, epoch locks.Epoch, frame []byte) {
	e.inbox.take(from, epoch, frame)
}

// ReceiveNow is Receive of a frame that takes moments, and waits for nothing. If it is
// false, as where the engine is busy, nothing has happened, and the frame is for Receive,
// before any other of its sender. It does not keep the frame.
func (e *Engine) ReceiveNow(from locks.NodeID, epoch locks.Epoch, frame []byte) bool {
	return e.inbox.takeNow(from, epoch, frame)
}

// NewRules is called when Rule answers otherwise than at the last epoch: after
// Freeze, before State.
func (e *Engine) NewRules() { e.epochs.rulesChanged() }

// Freeze ends the epoch: from its return on nothing is granted and nothing
// sent until the next one is restored. It is called once more without harm.
func (e *Engine) Freeze() { e.epochs.freeze() }

// State is what the other members need to know of this node at the next
// epoch. It returns when what was written here can be read elsewhere, but for what
// was written under locks on whole files that are held still: the permissions that guard the
// rest end with the epoch. Without an Install since the last Freeze this node leaves, and that
// goes out as well.
// Freeze must have been called; what else happens meanwhile, also that a later
// epoch begins, makes the result worthless, but does no harm: then it may be nil,
// and must not be sent. So it is after Bequeath, when what programs have written
// by mappings is not written out any more: the successor does that.
func (e *Engine) State() []byte { return e.epochs.state() }

// Install begins to collect what the members of v say by Sync.
func (e *Engine) Install(v *locks.View) { e.epochs.install(v) }

// Sync is the State of one member for the epoch that is being installed; the
// node's own comes in the same way. When all are there the epoch is restored.
// It is safe to call it twice for one member. An error means that the state
// cannot be read: then this node must not go on.
func (e *Engine) Sync(from locks.NodeID, epoch locks.Epoch, state []byte) error {
	return e.epochs.collect(from, epoch, state)
}

// Expelled ends the tenure: the others went on without this node. Everything
// held is lost, every wait fails with ErrLost. The engine is outside until the
// next Install. It returns what was lost.
func (e *Engine) Expelled(reason string) []LostLock { return e.epochs.expelled(reason) }

// Bequeath ends this engine in favor of one in another process. It freezes it for
// good, and returns what [Engine.Inherit] of the other one needs; it grants, gives
// and sends nothing from then on. Calls of Lock, Test and Admit that wait, and
// those to come, end with [locks.ErrBequeathed]. Of all methods only those that
// tell something, and State, do something still. An error means that nothing has
// happened: there is a moment, as when the view changes, at which it cannot be.
//
// Nothing may be written under locks any more, and no other call may be under way
// but those of Lock and Test that wait.
func (e *Engine) Bequeath() ([]byte, error) { return e.bequest.bequeath() }

// Inherit makes this engine, which is new, what another one was at its Bequeath, or
// when its process was killed (see [ReadLedger]): between two epochs. It holds what
// that one held, with the same tokens and in the
// same tenure, and what waited there has its place. A call of Lock with the same
// key, owner, handle, mode, range and Try goes on with what waits, or was granted
// and not told yet; what no call has claimed after ten seconds of an epoch is
// given up. An error means that state cannot be used; nothing was taken over then.
//
// The next Install must be of the view that drops the node of that engine and adds
// this one; else Expelled is to be called before it. The methods of Files may be
// called from the next State on. Until Install, Rule has to answer as it did.
func (e *Engine) Inherit(state []byte) error { return e.heirs.takeLegacy(state) }

// GiveUpUnknown gives up all that was taken through open files that are not known any
// more: their close was answered, or their program has ended, and nobody will close
// them again. It is for who has taken over from a process that was killed, once it knows
// all open files and before it opens others. It returns of how many open files there
// was something. known is called without the engine's mutex.
func (e *Engine) GiveUpUnknown(known func(locks.Key, locks.HandleID) bool, why string) int {
	return e.calls.giveUpUnknown(known, why)
}

// Resumed lists the requests, as the Recorder knows them, that were taken over.
func (e *Engine) Resumed() []uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heirs.taken)
}

// Condemn says that an admin takes away what programs of this node hold of k
// through the handles, which it returns. From now on the end of those locks is
// a loss, for the journal: the caller keeps the programs from going on under
// them, and then one may give its lock up before Break frees it. An empty
// reason takes that back.
func (e *Engine) Condemn(k locks.Key, handles []locks.HandleID, reason string) []LostLock {
	return e.breaker.condemn(k, handles, reason)
}

// Break frees what is still held of what Condemn was told of. What waits
// through the handles goes on waiting.
func (e *Engine) Break(k locks.Key, handles []locks.HandleID) { e.breaker.breakLocks(k, handles) }

// Locks lists what this node holds, waits for and keeps. Of many it is not all of
// one moment.
func (e *Engine) Locks() []LockInfo { return e.reports.locks() }

// List is Locks as an iterator, for which very many take a third of the memory.
// What they are is found out by the call; they can be gone through more than once.
func (e *Engine) List() iter.Seq[LockInfo] { return e.reports.list() }

// LongWaits lists the requests that have waited for longer than d.
func (e *Engine) LongWaits(d time.Duration) []LockInfo { return e.reports.longWaits(d) }

// Count is how many locks are held and how many requests wait. Of many it is not
// all of one moment.
func (e *Engine) Count() (held, waiting int) { return e.reports.count() }

// Delegation tells whether all other members have delegated to this node, and
// to whom it delegates, which is empty if it does not.
func (e *Engine) Delegation() (all bool, to locks.NodeID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.borrowed.all, e.lent.to
}
