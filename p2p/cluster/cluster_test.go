package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

func TestJoinAndLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		for _, x := range n {
			if len(x.lost()) > 0 {
				t.Errorf("%s lost its locks by joining: %v", x.name, x.lost())
			}
			x.engine.mu.Lock()
			// What comes for an epoch, comes in this order.
			if i := slices.Index(x.engine.calls, "freeze"); i < 0 || !strings.HasPrefix(x.engine.calls[i+1], "begin") || !strings.HasPrefix(x.engine.calls[i+2], "install") {
				t.Errorf("%s: %v", x.name, x.engine.calls)
			}
			x.engine.mu.Unlock()
		}
		if err := n[1].Leave(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		ended, ok := errors.AsType[*cluster.Ended](<-n[1].ended)
		if !ok || ended.Code != member.EndLeft {
			t.Fatalf("left with %v", ended)
		}
		// The driver has done what the machine wanted last before it ended.
		n[1].mu.Lock()
		if last := n[1].saved[len(n[1].saved)-1]; last.Was {
			t.Errorf("a node that left keeps %v", last)
		}
		n[1].mu.Unlock()
		if n[1].Live(0) {
			t.Error("live after it has left")
		}
		w.await("the others go on", time.Second, func() bool { return w.together(n[0], n[2]) })
		if err := n[1].Leave(w.t.Context()); err == nil {
			t.Error("a second leave succeeds")
		}
	})
}

// Who was dropped is told so before it is in a view again, and was not live
// from before the others were without it.
func TestExpulsionAndReturn(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		e := n[0].epoch()
		w.cut(n[2:], n[:2])
		from := time.Now()
		w.await("the pair goes on", 6500*time.Millisecond, func() bool {
			if w.together(n[:2]...) && n[2].Live(0) {
				t.Fatal("two sides are live")
			}
			return w.together(n[:2]...)
		})
		if d := time.Since(from); d < 4*time.Second {
			t.Errorf("dropped after %v", d)
		}
		w.heal(n[2:], n[:2])
		w.await("it is back", 5*time.Second, func() bool { return w.together(n...) })
		if len(n[2].lost()) != 1 || len(n[0].lost())+len(n[1].lost()) > 0 {
			t.Errorf("lost: %v, %v, %v", n[0].lost(), n[1].lost(), n[2].lost())
		}
		x := n[2].engine
		x.mu.Lock()
		defer x.mu.Unlock()
		out := slices.Index(x.calls, "expelled")
		in := slices.Index(x.calls, fmt.Sprintf("install %d of 3", x.view.Epoch))
		if out < 0 || in < out || x.view.Epoch < e+2 {
			t.Errorf("the order is %v", x.calls)
		}
	})
}

// While the storage hangs no lock is granted, nobody is dropped, and all goes
// on as soon as it answers.
func TestStorageHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		e := n[0].epoch()
		time.Sleep(10 * time.Second)
		hang := make(chan struct{})
		for _, x := range n {
			f := func(member.Op) registertest.Fault { return registertest.Fault{Hang: hang} }
			x.faults.Store(&f)
		}
		w.await("all are suspended", 6500*time.Millisecond, func() bool { return !n[0].Live(0) && !n[1].Live(0) && !n[2].Live(0) })
		w.hold("nobody grants", 14*time.Second, func() bool { return !n[0].Live(0) })
		resumes := n[0].resumes()
		close(hang)
		w.await("all go on", 500*time.Millisecond, func() bool { return w.together(n...) })
		if n[0].epoch() != e || n[0].resumes() != resumes+1 || n[0].noticed(member.Suspended) == 0 || n[0].noticed(member.Resumed) == 0 {
			t.Errorf("epoch %d after %d, resumed %d times", n[0].epoch(), e, n[0].resumes())
		}
	})
}

// The replies of the storage get lost, and what it refused it does later.
func TestRegisterErrors(t *testing.T) {
	inWorld(t, func(w *world) {
		lossy := func(x *node) {
			k := 0
			f := func(op member.Op) registertest.Fault {
				if k++; k%3 == 0 {
					return registertest.Fault{}
				}
				return registertest.Fault{Err: errors.New("input/output error"), Done: k%2 == 0, Late: 300 * time.Millisecond}
			}
			x.faults.Store(&f)
		}
		for range 3 {
			x := w.add()
			lossy(x)
			x.start()
		}
		n := w.nodes
		w.await("all nodes together", 20*time.Second, func() bool { return w.together(n...) })
		n[2].kill()
		w.await("the others go on", 15*time.Second, func() bool { return w.together(n[:2]...) })
	})
}

// A state that does not arrive is sent again, and nothing is granted before.
func TestStatesThatDoNotArrive(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.add(), w.add()
		var tries atomic.Int64
		b.sendSync = func() error {
			if tries.Add(1) <= 6 {
				return errors.New("reset")
			}
			return nil
		}
		a.start()
		w.await("a alone", 2*time.Second, func() bool { return w.together(a) })
		b.start()
		w.await("the failures", 8*time.Second, func() bool {
			if tries.Load() < 6 && w.together(a, b) {
				t.Fatal("a grants without the state of b")
			}
			return tries.Load() >= 6
		})
		w.await("both together", 2*time.Second, func() bool { return w.together(a, b) })
	})
}

// A node that is restarted while a peer still believes in its former self, and
// one that is killed, are let go of.
func TestKilled(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		n[1].kill()
		if n[1].Live(0) {
			t.Error("live after its end")
		}
		w.await("the others go on", 6500*time.Millisecond, func() bool { return w.together(n[0], n[2]) })
	})
}

func TestStrangers(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(2)
		stranger := member.Node{Peer: "stranger", Inc: 7}
		a := n[0].Status()
		for name, b := range map[string][]byte{
			"nothing":   nil,
			"rubbish":   []byte("GET / HTTP/1.1\r\n\r\n"),
			"zeros":     make([]byte, 100),
			"too long":  make([]byte, member.MaxMessage+1),
			"truncated": encode(t, member.Envelope{From: stranger, To: a.Self, Epoch: a.View.Epoch, Msg: member.HB{T: 5}})[:9],
		} {
			if err := n[0].Message("stranger", b); err == nil {
				t.Errorf("%s: taken for a message", name)
			}
		}
		foreign := *a.View
		foreign.Cluster, foreign.Epoch = strings.Repeat("d", 32), foreign.Epoch+1
		foreign.Members = []member.Member{{Node: stranger, Host: "elsewhere"}}
		foreign.Dropped = nil
		if err := n[0].Message("stranger", encode(t, member.Envelope{From: stranger, To: a.Self, Epoch: foreign.Epoch, Msg: member.ViewMsg{View: &foreign}})); err == nil {
			t.Error("the view of another cluster is taken")
		}
		// What is well formed but from nobody is heard, and changes nothing.
		for _, msg := range []member.Message{member.HB{T: 5}, member.Welcome{}, member.Refused{Code: member.RefusedRevoked, Text: "go away"}} {
			if err := n[0].Message("stranger", encode(t, member.Envelope{From: stranger, To: a.Self, Epoch: a.View.Epoch, Msg: msg})); err != nil {
				t.Error(err)
			}
		}
		n[0].State(w.t.Context(), "no node", a.View.Epoch, nil)
		n[0].State(w.t.Context(), stranger.ID(), a.View.Epoch, []byte("lies"))
		w.hold("the members are not disturbed", 10*time.Second, func() bool { return w.together(n...) })
		if !n[0].log.has("without a name") {
			t.Error("the log says nothing of a state from nobody")
		}
	})
}

func encode(t *testing.T, e member.Envelope) []byte {
	t.Helper()
	b, err := member.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What must survive the process is written as soon as it can be.
func TestSaveFails(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.add()
		a.saveErr = errors.New("no space left on device")
		a.start()
		w.await("a alone", 2*time.Second, func() bool { return w.together(a) })
		if !a.log.has("no space left on device") {
			t.Error("the log does not say so")
		}
		a.mu.Lock()
		a.saveErr = nil
		a.mu.Unlock()
		w.await("it is saved", 6*time.Second, func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.saved) > 0 && a.saved[0].Was
		})
	})
}

// Contacts change while nothing happens to the membership, so the transport is
// told of them again and again.
func TestContactsAreAskedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(2)
		n[0].mu.Lock()
		n[0].static = []member.Contact{{Peer: "other", Addrs: []string{"/x"}}, {Peer: n[1].id.String(), Addrs: []string{"/y"}}, {Peer: n[0].id.String()}}
		n[0].mu.Unlock()
		find := func(p string) (c member.Contact) {
			n[0].mu.Lock()
			defer n[0].mu.Unlock()
			for _, x := range n[0].wanted {
				if x.Peer == p {
					c = x
				}
			}
			return c
		}
		w.await("the new contact is wanted", 6*time.Second, func() bool { return find("other").Peer != "" })
		if c := find(n[1].id.String()); !slices.Contains(c.Addrs, "/y") || !slices.Contains(c.Addrs, "/memory/b") {
			t.Errorf("the contacts of one peer are not joined: %v", c)
		}
		if c := find(n[0].id.String()); c.Peer != "" {
			t.Error("it wants a connection with itself")
		}
	})
}

func TestLockViewFollows(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(2)
		for i, x := range n {
			v := x.Status().View
			x.engine.mu.Lock()
			lv := x.engine.view
			if lv.Epoch != v.Epoch || lv.Self != x.Status().Self.ID() || !slices.IsSorted(lv.Members) || len(lv.Members) != 2 {
				t.Errorf("node %d has %+v for %v", i, lv, v)
			}
			x.engine.mu.Unlock()
			if err := x.transport.Send(v.Epoch, n[1-i].Status().Self.ID(), []byte("frame")); err != nil {
				t.Errorf("the lock channel is not at the epoch: %v", err)
			}
		}
		n[1].kill()
		w.await("alone", 7*time.Second, func() bool { return w.together(n[0]) })
		if err := n[0].transport.Send(n[0].epoch(), locks.NodeID(n[1].id.String()), nil); err == nil {
			t.Error("the lock channel still has the dead node")
		}
	})
}

// I/O waits when little of the tenure is left. If the tenure is then renewed in
// time, it never ended, but what waits has to be told all the same.
func TestResumeAfterANearEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(1)
		time.Sleep(10 * time.Second)
		hang := make(gate)
		n[0].storage.set(hang)
		guard := time.Duration(member.Default().Guard) * time.Millisecond
		w.await("little is left of the tenure", 7*time.Second, func() bool { return !n[0].Live(guard) })
		if !n[0].Live(0) {
			t.Fatal("nothing is left of it")
		}
		resumes := n[0].resumes()
		close(hang)
		w.await("it is renewed", 200*time.Millisecond, func() bool { return n[0].Live(guard) })
		if n[0].noticed(member.Suspended) > 0 {
			t.Fatal("the tenure has ended")
		}
		if n[0].resumes() == resumes {
			t.Error("what waited for that is not told")
		}
	})
}

// What was written is written out before the states of all are there, which can
// need I/O that waits for tenure: it goes on as soon as there is some. A third
// host that stands still takes the tenure of both others at once.
func TestStatesWaitForIO(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		time.Sleep(10 * time.Second)
		for _, x := range n[:2] {
			written := make(gate)
			x.state.set(written)
			before := x.ioResumes()
			go func() { // a program's write, which Admit holds up
				for x.ioResumes() == before && !x.isClosed() {
					time.Sleep(10 * time.Millisecond)
				}
				close(written)
			}()
		}
		still := make(gate)
		n[2].stopped.set(still)
		w.await("the two go on without it", 30*time.Second, func() bool { return w.together(n[:2]...) })
		close(still)
	})
}
