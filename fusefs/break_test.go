package fusefs

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// BreakArgs are locks that an admin breaks: all that are held of a key.
type BreakArgs struct{ Key locks.Key }

func (c *control) Break(a BreakArgs, _ *None) error {
	c.locker.mu.Lock()
	var hs []locks.HandleID
	for _, x := range c.locker.held[a.Key] {
		hs = append(hs, x.handle)
	}
	c.locker.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.s.Break(ctx, a.Key, hs)
}

// Who held the lock is fenced, and only that program; closing ends it.
func TestIOUnderABrokenLock(t *testing.T) {
	for _, c := range []struct {
		name  string
		class locks.Class
		take  func(p *testProgram) (data, lock int)
	}{
		{"open lock", locks.Open, func(p *testProgram) (int, int) { fd := p.open("data", "rw"); return fd, fd }},
		{"flock", locks.Flock, func(p *testProgram) (int, int) {
			fd := p.open("data", "rw")
			p.want("ok", "flock %d ex", fd)
			return fd, fd
		}},
		{"POSIX lock", locks.Posix, func(p *testProgram) (int, int) {
			fd := p.open("data", "rw")
			p.want("ok", "lk %d setw w 0 10", fd)
			return fd, fd
		}},
		{"lock on another file", locks.Flock, func(p *testProgram) (int, int) {
			lock := p.open("lock", "r")
			p.want("ok", "flock %d ex", lock)
			return p.open("data", "rw"), lock
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mount(t)
			writeFile(t, m.backing("data"), strings.Repeat("c", 4096))
			writeFile(t, m.backing("lock"), "")
			writeFile(t, m.backing("other"), "other")
			p, bystander := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
			free := bystander.open("other", "rw")
			bystander.want("ok", "flock %d ex", free)
			data, lock := c.take(p)
			p.want("ok ccccc", "read %d 0 5", data)
			p.want("ok", "map %d 4096", data)
			p.want("ok", "poke 0 changed")
			file := "data"
			if lock != data {
				file = "lock"
			}
			ask[None](m, "Break", BreakArgs{m.key(file, c.class)})
			for _, call := range ioCalls {
				p.want("EIO", call, data)
			}
			p.want("EIO", "flock %d ex", lock)
			if got := readFile(t, m.backing("data")); got != strings.Repeat("c", 4096) {
				t.Errorf("the storage has %q...", got[:20])
			}
			bystander.want("ok", "write %d 0 still", free)

			p.want("ok", "unmap")
			p.want("ok", "close %d", data)
			if lock != data {
				p.want("ok", "close %d", lock)
			}
			await(t, "the last close is known", func() bool { return ask[Counts](m, "Counts", None{}).Handles == 1 })
			fd := p.open("data", "rw")
			p.want("ok", "write %d 0 again", fd)
		})
	}
}

// Break waits for what is under way, but not for ever.
func TestBreakWaitsForIOUnderWay(t *testing.T) {
	f := handlersOnly(t)
	writeFile(t, f.opts.Root.Name()+"/f", "content")
	h := f.openForTest(t, "f", os.O_RDWR)
	h.mu.RLock() // a write is under way
	k := locks.Key{Class: locks.Open}
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	cancel(enough)
	if err := f.fence.breakLocks(ctx, k, []locks.HandleID{h.lockID()}); !errors.Is(err, enough) {
		t.Errorf("while a write is under way: %v", err)
	}
	if !h.lost.Load() {
		t.Error("the handle is not fenced")
	}
	h.mu.RUnlock()
	if err := f.fence.breakLocks(context.Background(), k, []locks.HandleID{h.lockID()}); err != nil {
		t.Error(err)
	}
	if _, st := f.writeForTest(h, 0, "x"); st.Ok() {
		t.Error("the handle still works")
	}
}

// A grant that is on its way when its handle is fenced is not worth anything.
func TestBreakMeetsAGrant(t *testing.T) {
	f := handlersOnly(t)
	writeFile(t, f.opts.Root.Name()+"/f", "content")
	h := f.openForTest(t, "f", os.O_RDWR)
	k := locks.Key{Class: locks.Flock}
	if err := f.fence.breakLocks(context.Background(), k, []locks.HandleID{h.lockID()}); err != nil {
		t.Fatal(err)
	}
	p := &process{}
	f.records.remember(h, p, &locks.Request{Key: k, Owner: 1, Range: locks.Whole}, locks.Grant{Tenure: 5})
	if got := p.held.Load(); got != uint64(brokenTenure)+1 {
		t.Errorf("the process holds a lock of tenure %d", got-1)
	}
}

// An open lock between processes that was broken is fenced until its file is closed,
// also when it is idle and gives way before.
func TestABrokenLockThatGivesWayStaysFenced(t *testing.T) {
	f := handlersOnly(t, func(o *Options) {
		o.Locker = newFakeLocker()
		o.Rule = func(string) Rule { return Rule{Open: true, PerProcess: true, Yield: time.Second} }
	})
	must(t, os.WriteFile(f.opts.Root.Name()+"/f", nil, 0o644))
	h := f.openForTest(t, "f", os.O_RDWR)
	if h.proc == nil {
		t.Skip("the process is not known")
	}
	if err := f.fence.breakLocks(context.Background(), h.open.req.Key, []locks.HandleID{h.lockID()}); err != nil {
		t.Fatal(err)
	}
	l := newLeaving(openIdle)
	h.mu.Lock()
	f.yielder.leaves(h, l)
	h.mu.Unlock()
	f.yielder.letGo(h.n, l, "idle")
	<-l.done
	if got := h.proc.held.Load(); got != uint64(brokenTenure)+1 {
		t.Errorf("when it has given way its process holds a lock of tenure %d", int64(got)-1)
	}
	f.handles.take(h.id)
	f.release(h)
	if held, n := h.proc.held.Load(), f.records.explicit.Load(); held != 0 || n != 0 {
		t.Errorf("when it is closed: held %d, %d explicit locks", held, n)
	}
}

// A lock is broken while its file is being closed.
func TestWhatIsClosedIsNotBroken(t *testing.T) {
	f := handlersOnly(t, func(o *Options) {
		o.Locker = newFakeLocker()
		o.Rule = func(string) Rule { return Rule{Open: true, PerProcess: true} }
	})
	must(t, os.WriteFile(f.opts.Root.Name()+"/f", nil, 0o644))
	h := f.openForTest(t, "f", os.O_RDWR)
	if h.proc == nil {
		t.Skip("the process is not known")
	}
	h.mu.Lock()
	f.openLocks.setState(h, openHeld)
	h.mu.Unlock()
	if h.proc.held.Load() == 0 || f.records.explicit.Load() == 0 {
		t.Fatal("the open lock is not between processes")
	}
	f.handles.take(h.id)
	f.release(h)
	f.fence.breakAlone(h) // which has found it before
	if held, n := h.proc.held.Load(), f.records.explicit.Load(); held != 0 || n != 0 {
		t.Errorf("held %d, %d explicit locks", held, n)
	}
}
