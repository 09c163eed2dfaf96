package registertest

import (
	"errors"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Shared is a [Store] that several clients use at the same time, in real time
// or in that of testing/synctest.
type Shared struct {
	mu    sync.Mutex
	store Store
	start time.Time
	late  sync.WaitGroup
}

// NewShared is an empty one.
func NewShared() *Shared { return &Shared{start: time.Now()} }

// With calls f with the store and the present time in it.
func (s *Shared) With(f func(store *Store, now int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.store, int64(time.Since(s.start)))
}

// Wait waits for what is to be carried out late.
func (s *Shared) Wait() { s.late.Wait() }

// Fault is what happens to one operation.
type Fault struct {
	// Before passes until the storage carries the operation out, After until
	// the client has its reply.
	Before, After time.Duration
	// Hang, if not nil, keeps the operation back until it is closed.
	Hang <-chan struct{}
	// Err, if not nil, is what the client is told. The operation is carried
	// out all the same if Done; or else after Late, if that is not 0 and it
	// changes something.
	Err  error
	Done bool
	Late time.Duration
	// Stale is how old the listing is that a look sees.
	Stale time.Duration
}

// Register is one client. The zero value of Fault, or none, is a storage that
// works at once.
type Register struct {
	Shared *Shared
	// Fault is asked about each operation.
	Fault func(op member.Op) Fault
	// Closed, if not nil, ends operations that hang or wait, with [ErrClosed].
	Closed <-chan struct{}
}

// ErrClosed: the client was closed during the operation.
var ErrClosed = errors.New("register client is closed")

// Look is in register.Register.
func (r *Register) Look(op member.LookOp) (member.Look, error) {
	var l member.Look
	err := r.do(op, func(s *Store, now int64, f Fault) error {
		l = s.Look(now-int64(f.Stale), op)
		return s.Unseen(op, l)
	})
	return l, err
}

// Link is in register.Register.
func (r *Register) Link(v *member.View, file []byte) error {
	return r.change(member.LinkOp{View: v, File: file})
}

// Ask is in register.Register.
func (r *Register) Ask(c member.Challenge) error { return r.change(member.AskOp{Challenge: c}) }

// Answer is in register.Register.
func (r *Register) Answer(a member.Answer) error { return r.change(member.AnswerOp{Answer: a}) }

// Unask is in register.Register.
func (r *Register) Unask(op member.UnaskOp) error { return r.change(op) }

// Prune is in register.Register.
func (r *Register) Prune(below locks.Epoch) error { return r.change(member.PruneOp{Below: below}) }

func (r *Register) change(op member.Op) error {
	return r.do(op, func(s *Store, now int64, _ Fault) error { return s.Do(now, op) })
}

func (r *Register) do(op member.Op, act func(*Store, int64, Fault) error) error {
	var f Fault
	if r.Fault != nil {
		f = r.Fault(op)
	}
	if err := r.wait(f.Before, f.Hang); err != nil {
		return err
	}
	var err error
	perform := func() { r.Shared.With(func(s *Store, now int64) { err = act(s, now, f) }) }
	switch {
	case f.Err == nil:
		perform()
	case f.Done:
		perform()
		err = f.Err
	case f.Late > 0 && !isLook(op):
		r.Shared.late.Go(func() {
			time.Sleep(f.Late)
			r.Shared.With(func(s *Store, now int64) { act(s, now, f) })
		})
		err = f.Err
	default:
		err = f.Err
	}
	if werr := r.wait(f.After, nil); werr != nil {
		return werr
	}
	return err
}

func isLook(op member.Op) bool {
	_, ok := op.(member.LookOp)
	return ok
}

// wait waits for d, and then for hang to be closed.
func (r *Register) wait(d time.Duration, hang <-chan struct{}) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Closed:
			return ErrClosed
		}
	}
	if hang != nil {
		select {
		case <-hang:
		case <-r.Closed:
			return ErrClosed
		}
	}
	return nil
}
