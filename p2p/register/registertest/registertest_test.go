package registertest_test

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

var _ register.Register = (*registertest.Register)(nil)

func view(e locks.Epoch, by string) *member.View {
	return &member.View{Cluster: "00112233445566778899aabbccddeeff", Epoch: e, By: member.Node{Peer: by, Inc: 1}, Reason: member.ReasonJoin}
}

func newest(t *testing.T, r register.Register) locks.Epoch {
	t.Helper()
	l, err := r.Look(member.LookOp{})
	if err != nil {
		t.Fatal(err)
	}
	return l.Newest
}

func TestFaults(t *testing.T) {
	errLost := errors.New("lost")
	for _, c := range []struct {
		name         string
		fault        registertest.Fault
		err          error
		before, late locks.Epoch // the newest view at the end of the link, and a minute later
		took         time.Duration
	}{
		{"none", registertest.Fault{}, nil, 1, 1, 0},
		{"slow", registertest.Fault{Before: time.Second, After: 2 * time.Second}, nil, 1, 1, 3 * time.Second},
		{"fails", registertest.Fault{Err: errLost}, errLost, 0, 0, 0},
		{"reply lost", registertest.Fault{Err: errLost, Done: true}, errLost, 1, 1, 0},
		{"late", registertest.Fault{Err: errLost, Late: 8 * time.Second}, errLost, 0, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := registertest.NewShared()
				r := &registertest.Register{Shared: shared, Fault: func(op member.Op) registertest.Fault { return c.fault }}
				other := &registertest.Register{Shared: shared}
				began := time.Now()
				if err := r.Link(view(1, "a"), nil); !errors.Is(err, c.err) {
					t.Errorf("error %v, want %v", err, c.err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if e := newest(t, other); e != c.before {
					t.Errorf("newest %d, want %d", e, c.before)
				}
				time.Sleep(time.Minute)
				shared.Wait()
				if e := newest(t, other); e != c.late {
					t.Errorf("a minute later: newest %d, want %d", e, c.late)
				}
			})
		})
	}
}

func TestHangEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, closed := make(chan struct{}), make(chan struct{})
		r := &registertest.Register{
			Shared: registertest.NewShared(), Closed: closed,
			Fault: func(member.Op) registertest.Fault { return registertest.Fault{Hang: hang} },
		}
		result := make(chan error, 1)
		go func() { result <- r.Link(view(1, "a"), nil) }()
		synctest.Wait()
		select {
		case err := <-result:
			t.Fatalf("it did not hang: %v", err)
		default:
		}
		close(hang)
		if err := <-result; err != nil {
			t.Error(err)
		}
		hang = make(chan struct{})
		go func() { result <- r.Link(view(2, "a"), nil) }()
		synctest.Wait()
		close(closed)
		if err := <-result; !errors.Is(err, registertest.ErrClosed) {
			t.Errorf("error %v, want %v", err, registertest.ErrClosed)
		}
	})
}

func TestOldListings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := registertest.NewShared()
		now := &registertest.Register{Shared: shared}
		old := &registertest.Register{Shared: shared, Fault: func(member.Op) registertest.Fault { return registertest.Fault{Stale: 10 * time.Second} }}
		for e := locks.Epoch(1); e <= 3; e++ {
			time.Sleep(4 * time.Second)
			if err := now.Link(view(e, "a"), nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // 13 s: the views are of 4, 8 and 12 s
		if e := newest(t, old); e != 0 {
			t.Errorf("newest %d 10 s ago, want 0", e)
		}
		time.Sleep(6 * time.Second)
		if e := newest(t, old); e != 2 {
			t.Errorf("newest %d 10 s ago, want 2", e)
		}
		// What is pruned is still in old listings.
		if err := now.Prune(3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		l, _ := old.Look(member.LookOp{Known: 1})
		if !l.Known || l.Newest != 2 {
			t.Errorf("10 s ago: %v, want views 1 and 2", l)
		}
		l, _ = now.Look(member.LookOp{Known: 1})
		if l.Known || l.Newest != 3 {
			t.Errorf("now: %v, want view 3 alone", l)
		}
	})
}

// The store and the directory must agree about what a look shows.
func TestStoreIsLikeADirectory(t *testing.T) {
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	dir := register.NewDir(root, "dir", "a")
	cluster, err := dir.Init(register.Expect{})
	if err != nil {
		t.Fatal(err)
	}
	mem := &registertest.Register{Shared: registertest.NewShared()}
	both := func(f func(r register.Register) error) {
		t.Helper()
		e1, e2 := f(dir), f(mem)
		if (e1 == nil) != (e2 == nil) || errors.Is(e1, member.ErrExists) != errors.Is(e2, member.ErrExists) {
			t.Errorf("directory: %v, memory: %v", e1, e2)
		}
	}
	link := func(e locks.Epoch, by string) {
		t.Helper()
		v := view(e, by)
		v.Cluster = cluster.ID
		file, err := member.EncodeView(v)
		if err != nil {
			t.Fatal(err)
		}
		both(func(r register.Register) error { return r.Link(v, file) })
	}
	me := member.Node{Peer: "b", Inc: 2}
	look := func() {
		t.Helper()
		for _, op := range []member.LookOp{{}, {Known: 1}, {Known: 3}, {Known: 9}, {Asks: true}, {For: me}, {For: member.Node{Peer: "b", Inc: 3}}} {
			one, err := dir.Look(op)
			if err != nil {
				t.Fatal(err)
			}
			two, _ := mem.Look(op)
			if one.String() != two.String() {
				t.Errorf("%v: directory shows %v, memory %v", op, one, two)
			}
		}
	}
	look()
	link(1, "a")
	link(1, "b")
	look()
	link(2, "b")
	link(3, "a")
	both(func(r register.Register) error { return r.Ask(member.Challenge{Node: me, Base: 3}) })
	both(func(r register.Register) error {
		return r.Answer(member.Answer{To: me, Node: member.Node{Peer: "a", Inc: 1}})
	})
	look()
	// One of the same peer asks whether it is alone.
	twin := member.Node{Peer: "b", Inc: 3}
	both(func(r register.Register) error { return r.Ask(member.Challenge{Node: twin, Base: 3, Own: true}) })
	both(func(r register.Register) error { return r.Answer(member.Answer{To: twin, Node: me, Own: true}) })
	look()
	both(func(r register.Register) error { return r.Unask(member.UnaskOp{Node: me}) })
	look()
	both(func(r register.Register) error { return r.Ask(member.Challenge{Node: me, Base: 3}) })
	both(func(r register.Register) error { return r.Unask(member.UnaskOp{Node: twin, Own: true}) })
	look()
	both(func(r register.Register) error { return r.Prune(3) })
	look()
	link(1, "z") // a name that was pruned
	both(func(r register.Register) error { return r.Unask(member.UnaskOp{Node: me}) })
	look()
	both(func(r register.Register) error { return r.Prune(99) })
	look()
}
