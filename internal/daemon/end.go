package daemon

import (
	"context"
	"errors"
	"os"
	"runtime/pprof"
	"time"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// close ends the journal. Two things go with the process, no sooner, since an
// operation that hangs in the storage outlives the membership: the shared
// directory, which such an operation knows by the number of its descriptor, and
// the lock of the state directory, which says that what this daemon has begun may
// still reach the storage.
func (d *daemon) close() error {
	if d.journal == nil {
		return nil
	}
	return d.journal.Close()
}

// errLeftBehind ends a daemon whose mount is gone while a request of it still
// hangs. What that writes may reach the storage later: its locks must not be
// free as soon as those of a node that leaves.
var errLeftBehind = errors.New("a request hangs in the storage")

// unfinished logs what went wrong at the end. Where the mount has ended as
// wished, that is no reason to start another daemon.
func (d *daemon) unfinished(end, err error) {
	if err == nil {
		return
	}
	if end == nil {
		d.log.Error("the mount has ended, but not all is in order", "err", err)
		return
	}
	d.log.Error("not all is in order", "err", err)
}

// dead is why the daemon ends while its mount stays, dead, so that programs do
// not get at the shared directory without locks.
type dead struct{ error }

func (e *dead) Unwrap() error { return e.error }

// endCode is the exit number for the end of a membership: whether it makes
// sense to try again.
func endCode(err error) int {
	e, ok := errors.AsType[*cluster.Ended](err)
	if !ok {
		return exitcode.Failure
	}
	switch e.Code {
	case member.EndLost, member.EndUnreachable, member.EndPartial: // the network may come yet
		return exitcode.Failure
	}
	return exitcode.Refused
}

// stuckPatience is how long the end of a part may take that should take no
// time at all.
const stuckPatience = 5 * time.Second

// servedPatience is how long requests of programs that are under way may take
// when the mount is gone.
const servedPatience = 15 * time.Second

// cutPatience is how long who has cut off the mount has to take it away as well,
// as umount -fl does in two steps.
const cutPatience = time.Second

// saveStacks writes down what all goroutines hang in, for who has to find out
// why the engine did not turn.
func (d *daemon) saveStacks() {
	path := d.state.File("stuck.txt")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(pprof.Lookup("goroutine").WriteTo(f, 2), f.Close())
	}
	if err != nil {
		d.log.Error("could not write down what the process hangs in", "err", err)
		return
	}
	d.log.Error("the lock engine is stuck: please report this, with the file that says what it hangs in", "file", path)
}

// endLocks ends all granting. It does not wait for ever for an engine that is
// stuck: then the membership ends soon, with cluster.ErrStuck.
func (d *daemon) endLocks() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.engine.Leave()
	}()
	select {
	case <-done:
	case <-time.After(stuckPatience):
		d.log.Error("the lock engine does not answer: it is left behind")
	}
}

// leaveTime is how long leaving may take: the machine gives up after 5 s.
const leaveTime = 8 * time.Second

// isGone lets the others know that this host, which has left and has no mount any more,
// changes nothing: see [others].
func (d *daemon) isGone() {
	d.book.leaves.Store(true)
	done := make(chan error, 1)
	go func() { done <- d.register.RemoveRecord() }()
	select {
	case err := <-done:
		if err != nil {
			d.log.Warn("the address record on the shared directory cannot be removed: for a month others take this host for one that may be cut off", "err", err)
		}
	case <-time.After(goneTime):
	}
}

// goneTime is how long the storage has to remove a record.
const goneTime = 2 * time.Second

// leave ends the membership, so that the others need not wait for this node.
func (d *daemon) leave(nodeDone chan error) error {
	d.endLocks()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := d.node.Load().Leave(ctx); err != nil {
		return nil // it has ended before
	}
	select {
	case err := <-nodeDone:
		if e, ok := errors.AsType[*cluster.Ended](err); ok && e.Code == member.EndLeft {
			d.isGone()
			return nil
		}
		return err
	case <-ctx.Done():
		return errors.New("could not leave in good order: the others go on without this node in some seconds")
	}
}
