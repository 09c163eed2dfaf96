package estate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/keeper"
	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Own is what this process leaves if it is killed.
type Own struct {
	will     Will
	mount    *shm.Tables
	requests *fusefs.Requests
	locks    *shm.Tables
	claims   *claims
	recent   *recent.Memory
	made     []io.Closer

	mu     sync.Mutex
	keeper *keeper.Keeper // nil: it has ended
	lost   error          // it was not End that has ended it
}

// Begin makes what the process that calls it leaves, all of it empty. lifeline and tracer
// are as for [keeper.Start]. It is best called early.
func Begin(generation uint64, version string, lifeline, tracer int) (*Own, error) {
	o := &Own{will: Will{PID: os.Getpid(), Generation: generation, Version: version}}
	if err := o.begin(lifeline, tracer); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *Own) begin(lifeline, tracer int) (err error) {
	if o.keeper, err = keeper.Start(lifeline, tracer); err != nil {
		return err
	}
	o.will.Keeper = o.keeper.ID()
	g := o.will.Generation
	if o.mount, err = shm.Create("dmxfs-mount", g, mountForm()); err != nil {
		return err
	}
	o.made = append(o.made, o.mount)
	if o.requests, err = fusefs.NewRequests(g); err != nil {
		return err
	}
	o.made = append(o.made, o.requests)
	if o.locks, err = shm.Create("dmxfs-locks", g, locksForm()); err != nil {
		return err
	}
	o.made = append(o.made, o.locks)
	if o.claims, err = newClaims(g); err != nil {
		return err
	}
	o.made = append(o.made, o.claims)
	o.will.Mount, o.will.Requests, o.will.Locks, o.will.Claims = o.mount.FD(), o.requests.FD(), o.locks.FD(), o.claims.FD()
	return nil
}

func mountForm() shm.Form {
	f := shm.Form{Version: fusefs.LedgerVersion}
	for _, t := range fusefs.LedgerForm {
		f.Tables = append(f.Tables, shm.Spec{Words: t.Words, Texts: t.Texts, Max: t.Max})
	}
	return f
}

func locksForm() shm.Form {
	f := shm.Form{Version: engine.LedgerVersion}
	for _, t := range engine.LedgerTables {
		f.Tables = append(f.Tables, shm.Spec{Words: t.Words, Texts: t.Texts, Max: t.Max})
	}
	return f
}

// Ledger is that of the lock engine; nil if o is.
func (o *Own) Ledger() engine.Ledger {
	if o == nil {
		return nil
	}
	return o.locks
}

// MountLedger is that of the mount; nil if o is.
func (o *Own) MountLedger() *fusefs.Ledger {
	if o == nil {
		return nil
	}
	return &fusefs.Ledger{Tables: o.mount, Requests: o.requests}
}

// Recent is where this process notes what it changes: it goes on with that of left, which may
// be nil.
func (o *Own) Recent(left *Left) (m *recent.Memory, err error) {
	if left != nil {
		m, err = left.recent()
	} else {
		m, err = recent.Create()
	}
	if err != nil {
		return nil, err
	}
	o.recent, o.will.Recent = m, m.FD()
	o.made = append(o.made, m)
	return m, nil
}

// Claim keeps who has claimed the place of a node: see [member.LinkOp].
func (o *Own) Claim(of member.Node, by []member.Node) error { return o.claims.keep(of, by) }

// GoesOn has the claims of l, which this process goes on with: when its will is in force
// nobody looks at what was left before, and it may be killed before it claims anything.
func (o *Own) GoesOn(l *Left) error {
	if len(l.Heir.Claimed) == 0 {
		return nil
	}
	return o.Claim(l.Heir.Of, l.Heir.Claimed)
}

// Will is the will of this process, but for what is known only when it serves.
func (o *Own) Will() Will { return o.will }

// End ends the keeper. What the process has open stays open, and what it wrote is left to
// nobody.
func (o *Own) End() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keeper == nil {
		return nil
	}
	k := o.keeper
	o.keeper = nil
	return k.Stop()
}

// AwaitLoss returns when the keeper has ended, unless that is by End: somebody has killed it,
// or it has ended with the other end of its lifeline. It returns nil when ctx ends before that.
func (o *Own) AwaitLoss(ctx context.Context) error {
	o.mu.Lock()
	k := o.keeper
	if k == nil {
		o.mu.Unlock()
		return nil
	}
	ending, err := k.Ending()
	o.mu.Unlock()
	if err != nil {
		return fmt.Errorf("whether the keeper of the descriptors lives is not known: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { ending.Close() })
	err = keeper.AwaitEnd(ending)
	if stop() {
		ending.Close()
	} else if err != nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.keeper != k:
		return nil
	case err != nil:
		return fmt.Errorf("whether the keeper of the descriptors lives is not known: %w", err)
	}
	o.keeper = nil
	o.lost = fmt.Errorf("%w: process %d (dmxfs-keeper), which had open what this one has open, was killed, or has ended with those who watched", keeper.ErrGone, k.ID().PID)
	return errors.Join(o.lost, k.Reap()) // or it stays in the list of processes
}

// Lost is what AwaitLoss has found; nil as long as that is nothing.
func (o *Own) Lost() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

// Close is End, and gives up the memory, which nobody uses any more.
func (o *Own) Close() error {
	err := o.End()
	for _, c := range o.made {
		err = errors.Join(err, c.Close())
	}
	o.made = nil
	return err
}

// Problem is why the keeper is not there; nil if it is.
func (o *Own) Problem() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost != nil {
		return o.lost
	}
	if o.keeper == nil {
		return keeper.ErrGone
	}
	k, err := keeper.Find(o.will.Keeper)
	if err != nil {
		return fmt.Errorf("the next daemon could not have what this one has open: %w", err)
	}
	return k.Close()
}
