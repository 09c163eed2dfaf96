package cluster_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dmxfs/dmxfs/locks"
)

// engine writes down what it is told, and checks what the driver promises.
type engine struct {
	n     *node
	stuck hook // in whatever it does
	// unusable: the states of others cannot be used, from then on.
	unusable atomic.Bool

	mu        sync.Mutex
	calls     []string
	view      *locks.View
	told      map[locks.NodeID]string
	frozen    bool
	resumed   int
	resumedIO int
	lost      []string
}

func (e *engine) call(format string, args ...any) {
	e.stuck.pass(e.n.w)
	e.mu.Lock()
	e.calls = append(e.calls, fmt.Sprintf(format, args...))
	e.mu.Unlock()
}

func (e *engine) Freeze() {
	e.call("freeze")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frozen = true
}

func (e *engine) State() []byte {
	e.n.state.pass(e.n.w)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.frozen {
		e.n.w.t.Errorf("%s: State before Freeze", e.n.name)
	}
	return fmt.Appendf(nil, "what %s holds at %d", e.view.Self, e.view.Epoch)
}

func (e *engine) Install(v *locks.View) {
	e.call("install %d of %d", v.Epoch, len(v.Members))
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.frozen {
		e.n.w.t.Errorf("%s: Install before Freeze", e.n.name)
	}
	if e.view != nil && v.Epoch <= e.view.Epoch {
		e.n.w.t.Errorf("%s: Install of %d after %d", e.n.name, v.Epoch, e.view.Epoch)
	}
	e.view, e.told = v, map[locks.NodeID]string{}
}

func (e *engine) Sync(from locks.NodeID, epoch locks.Epoch, s []byte) error {
	e.call("sync %d", epoch)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.view == nil || e.view.Epoch != epoch {
		return nil // as the real one does
	}
	if e.unusable.Load() && from != e.view.Self {
		return errors.New("it contradicts what is held here")
	}
	if want := fmt.Sprintf("what %s holds at %d", from, epoch); string(s) != want {
		e.n.w.t.Errorf("%s: the state of %s at %d is %q", e.n.name, from, epoch, s)
	}
	if e.told[from] = string(s); len(e.told) == len(e.view.Members) {
		e.frozen = false
	}
	return nil
}

func (e *engine) Expelled(why string) {
	e.call("expelled")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost = append(e.lost, why)
	e.told = nil
}

func (e *engine) Resume() {
	e.call("resume")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resumed++
}

func (e *engine) ResumeIO() {
	e.call("resume I/O")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resumedIO++
}

func (e *engine) Ping() { e.stuck.pass(e.n.w) }
