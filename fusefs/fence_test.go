package fusefs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// What a program does through a handle, and what it may see of it when the
// node lost its locks.
var ioCalls = []string{"read %d 0 5", "write %d 0 xxxxx", "ftruncate %d 3", "fsync %d"}

func TestIOUnderALockThatWasLost(t *testing.T) {
	lock := 0
	for _, c := range []struct {
		name    string
		prepare func(p *testProgram) (data int)
	}{
		{"open lock", func(p *testProgram) int { return p.open("data", "rw") }},
		{"flock", func(p *testProgram) int {
			fd := p.open("data", "rw")
			p.want("ok", "flock %d sh", fd)
			return fd
		}},
		{"POSIX lock", func(p *testProgram) int {
			fd := p.open("data", "rw")
			p.want("ok", "lk %d setw w 0 10", fd)
			return fd
		}},
		{"lock on another file", func(p *testProgram) int {
			lock = p.open("lock", "r")
			p.want("ok", "flock %d ex", lock)
			return p.open("data", "rw")
		}},
	} {
		for _, told := range []bool{true, false} { // before Expelled is called, too
			t.Run(fmt.Sprintf("%s, told %v", c.name, told), func(t *testing.T) {
				m := mount(t)
				writeFile(t, m.backing("data"), "content")
				writeFile(t, m.backing("lock"), "")
				p, other := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
				fd := c.prepare(p)
				p.want("ok conte", "read %d 0 5", fd)
				ask[None](m, "Expel", told)
				for _, call := range ioCalls[1:] {
					p.want("EIO", call, fd)
				}
				if told { // until it is, data may be served from the cache
					await(t, "cached data is dropped", func() bool { return p.do("read %d 0 5", fd) == "EIO" })
				}
				if got := readFile(t, m.backing("data")); got != "content" {
					t.Errorf("the storage has %q", got)
				}
				p.want("EIO", "flock %d ex", fd)
				p.want("EIO", "lk %d set w 0 1", fd)
				p.want("ok", "flock %d un", fd) // there is nothing to keep

				// Closed and opened again it is as good as new; and others are
				// not concerned.
				p.want("ok", "close %d", fd)
				if c.name == "lock on another file" {
					fd = p.open("data", "rw")
					p.want("EIO", "write %d 0 xxxxx", fd) // under a lock that it has lost
					p.want("ok", "close %d", lock)
					p.want("ok", "close %d", fd)
					await(t, "the last close is known", func() bool { return ask[Counts](m, "Counts", None{}).Handles == 0 })
				}
				fd = p.open("data", "rw")
				p.want("ok", "write %d 0 again", fd)
				fd = other.open("data", "rw")
				other.want("ok againnt", "read %d 0 7", fd)
			})
		}
	}
}

// A page that was changed under a lock must not be written when the lock is lost.
func TestAMappingUnderALockThatWasLost(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("data"), strings.Repeat("c", 4096))
	p := startProgram(t, m.dir, nil)
	fd := p.open("data", "rw")
	p.want("ok", "map %d 4096", fd)
	p.want("ok", "poke 0 changed")
	ask[None](m, "Expel", true)
	p.want("EIO", "fsync %d", fd)
	if got := readFile(t, m.backing("data")); got != strings.Repeat("c", 4096) {
		t.Errorf("the storage has %q...", got[:20])
	}
}

func TestIOWaitsWhileTheNodeIsSuspended(t *testing.T) {
	for _, call := range ioCalls {
		t.Run(call, func(t *testing.T) {
			m := mount(t)
			writeFile(t, m.backing("data"), "content")
			writeFile(t, m.backing("free"), "")
			p, self := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
			fd := p.open("data", "rw")
			free := self.open("free", "rw")
			self.want("ok", "flock %d un", free) // locks for itself, and holds nothing
			ask[None](m, "Suspend", true)
			p.tell(call, fd)
			p.sleeping()
			self.want("ok", "write %d 0 unprotected", free)
			ask[None](m, "Suspend", false)
			if got := p.answer(); !strings.HasPrefix(got, "ok") {
				t.Errorf("%s: %s", call, got)
			}

			p.want("ok", "close %d", fd)
			fd = p.open("data", "rw,trunc") // so that nothing is cached
			p.want("ok", "ftruncate %d 10", fd)
			ask[None](m, "Suspend", true)
			p.tell(call, fd)
			p.sleeping()
			ask[None](m, "Expel", true) // while it waits
			if got := p.answer(); got != "EIO" {
				t.Errorf("%s: %s", call, got)
			}

			fd = p.open("data", "rw")
			ask[None](m, "Suspend", true)
			p.tell(call, fd)
			p.sleeping()
			p.kill() // it can be killed
			ask[None](m, "Suspend", false)
			self.kill()
		})
	}
}

// A descriptor that was inherited is protected by the locks of the process
// that uses it, too.
func TestIOThroughAnInheritedDescriptor(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("data"), "content")
	writeFile(t, m.backing("lock"), "")
	parent := startProgram(t, m.dir, nil)
	fd := parent.open("data", "rw")
	parent.want("ok", "flock %d un", fd) // gives up the open lock
	shared := shareDescriptor(t, parent, fd)
	child := startProgram(t, m.dir, nil, shared)
	shared.Close()
	lock := child.open("lock", "r")
	child.want("ok", "flock %d ex", lock)
	child.want("ok", "write 3 0 under-a-lock")
	ask[None](m, "Expel", false)
	child.want("EIO", "write 3 0 too-late")
	if got := readFile(t, m.backing("data")); got != "under-a-lock" {
		t.Errorf("the storage has %q", got)
	}
}

// stubLocker admits as it is told.
type stubLocker struct {
	nullLocker
	admit func(call int) error
	calls int
}

func (l *stubLocker) Admit(<-chan struct{}, locks.Tenure) error {
	l.calls++
	return l.admit(l.calls)
}

// The tenure ends between the check and the return of the system call.
func TestLateWritesAreReported(t *testing.T) {
	for _, c := range []struct {
		name  string
		admit func(int) error
		late  bool
	}{
		{"in time", func(int) error { return nil }, false},
		{"suspended meanwhile", func(n int) error {
			if n == 2 {
				return locks.ErrInterrupted // would wait
			}
			return nil
		}, false},
		{"lost meanwhile", func(n int) error {
			if n > 1 {
				return locks.ErrLost
			}
			return nil
		}, true},
		{"suspended, then lost", func(n int) error {
			switch n {
			case 1:
				return nil
			case 2:
				return locks.ErrInterrupted
			}
			return locks.ErrLost
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var late []LateWrite
			f := handlersOnly(t, func(o *Options) { o.LateWrite = func(w LateWrite) { late = append(late, w) } })
			f.locker = &stubLocker{admit: c.admit}
			writeFile(t, f.opts.Root.Name()+"/f", "content")
			h := f.openForTest(t, "f", os.O_RDWR)
			n, st := f.writeForTest(h, 3, "text")
			if !c.late {
				if n != 4 || !st.Ok() || len(late) > 0 {
					t.Errorf("write: %d %v; reported: %+v", n, st, late)
				}
				return
			}
			if st.Ok() || len(late) != 1 {
				t.Fatalf("write: %d %v; reported: %+v", n, st, late)
			}
			w := late[0]
			if w.Path != "f" || w.Offset != 3 || w.Length != 4 || w.Program.PID != os.Getpid() || w.File == "" {
				t.Errorf("reported: %+v", w)
			}
			if _, st := f.writeForTest(h, 0, "x"); st.Ok() {
				t.Error("the handle still works")
			}
		})
	}
}
