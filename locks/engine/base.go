package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// phase is where the node is in the life of an epoch. What asks for active waits
// for the end of restoring, but for the machines that have begun: they grant, and
// speak to those of other members, who keep what comes until they are active.
type phase uint8

const (
	outside   phase = iota // no member: nothing can be granted
	frozen                 // a new epoch is coming or being restored
	restoring              // its machines begin, one after the other
	active
)

// base is what all parts of an engine share: what it is made of, its mutex, and
// where the node is in the life of an epoch. All that may change is guarded by mu.
type base struct {
	o       Options
	start   time.Time
	mu      mutex
	breathe func() // of mu, for machines
	lastID  uint64 // tickets, requests and queries
	// What the ledger knows may have been given, and what tells it that there is more.
	reserved uint64
	reserve  func()

	left       atomic.Bool // see Leave; set under mu
	closed     bool
	bequeathed bool // see Bequeath: closed, left and frozen for good

	// These are set by epochs only.
	tenure   atomic.Uint64
	phase    phase
	began    locks.Moment // when the epoch became active
	view     *locks.View  // of the epoch that is active, or being restored
	newRules bool         // Rule has changed since the last epoch was restored
	// stated: in this pause between two epochs the machines have been asked
	// for their states, and those that are made are.
	stated bool

	changed chan struct{} // closed, and replaced, when the phase or the tenure changes
}

// beside reports whether what is held here is held beside the machine.
func (b *base) beside(en *entry) bool { return b.view != nil && en.barrier[b.view.Self] }

// concerns reports whether delegations are about en, and there may be some.
func (b *base) concerns(en *entry) bool {
	_, ok := en.delegable()
	return ok && b.phase == active && len(b.view.Members) > 1
}

func (b *base) tellMember(n locks.NodeID, frames ...[]byte) {
	for _, f := range frames {
		b.o.Transport.Send(b.view.Epoch, n, f)
	}
}

// Moment is the present one.
func (b *base) Moment() locks.Moment { return locks.Moment(time.Since(b.start)) + 1 }

// Tenure is the present one.
func (b *base) Tenure() locks.Tenure { return locks.Tenure(b.tenure.Load()) }

// broadcast wakes everybody who waits for a change of phase or tenure.
// REQUIRES: mu held.
func (b *base) broadcast() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *base) id() uint64 {
	if b.lastID++; b.lastID > b.reserved {
		b.reserve()
	}
	return b.lastID
}

// over is why nothing is granted by this engine any more, if it is closed.
func (b *base) over() error {
	if b.bequeathed {
		return locks.ErrBequeathed
	}
	return errClosed
}

// member waits until this node can grant anything at all. A try does not wait.
// REQUIRES: mu held; it is held again when member returns.
func (b *base) member(cancel <-chan struct{}, limit <-chan struct{}, r *locks.Request) error {
	for {
		switch {
		case b.closed:
			return b.over()
		case b.phase != outside:
			return nil
		case r.Try:
			return fmt.Errorf("%w: this node is not a member of the cluster at the moment", locks.ErrUnavailable)
		}
		changed := b.changed
		b.mu.Unlock()
		r.WillWait()
		select {
		case <-changed:
		case <-cancel:
			b.mu.Lock()
			return locks.ErrInterrupted
		case <-limit:
			b.mu.Lock()
			return fmt.Errorf("%w: this node is not a member of the cluster at the moment", locks.ErrTimeout)
		}
		b.mu.Lock()
	}
}

// parts lets others go on, if it is time to, and reports whether this epoch is over
// then.
// REQUIRES: mu held.
func (b *base) parts() (over func() bool) {
	epoch := b.view.Epoch
	return func() bool {
		b.mu.breathe()
		return b.phase != active || b.view.Epoch != epoch
	}
}
