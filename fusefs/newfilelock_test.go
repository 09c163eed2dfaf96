package fusefs

import (
	"fmt"
	"strings"
	"testing"
)

// Who has made a file says so; who finds one does not, also with O_CREAT.
func TestALockOfANewFile(t *testing.T) {
	m := mount(t)
	p := startProgram(t, m.dir, nil)
	for _, how := range []string{"rw,creat", "w,creat,excl", "w,creat,trunc"} {
		m.calls()
		fd := p.open("f", how)
		m.awaitOpenLocks("f", 1)
		handleOf(t, m.calls("f"), "lock open:f owner=1 h=%s W [all] try=false path=f born")
		p.want("ok", "close %d", fd)
		m.awaitOpenLocks("f", 0)
		m.calls()
		fd = p.open("f", "rw,creat")
		m.awaitOpenLocks("f", 1)
		handleOf(t, m.calls("f"), "lock open:f owner=1 h=%s W [all] try=false path=f")
		p.want("ok", "close %d", fd)
		m.awaitOpenLocks("f", 0)
		p.want("ok", "unlink f")
	}
}

// A lock of a new file that nobody else need be asked for is there before the file is open;
// one that would have to wait is waited for by I/O.
func TestALockOfANewFileAtOnce(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.AtOnce = true })
	p := startProgram(t, m.dir, nil)
	m.calls()
	fd := p.open("f", "rw,creat")
	m.wantOpenLocks("f", 1)
	calls := m.calls("f")
	id := handleOf(t, calls, "locknow open:f owner=1 h=%s W path=f")
	if got := fmt.Sprint(calls); strings.Contains(got, "lock open:f") {
		t.Errorf("asked for twice: %s", got)
	}
	p.want("ok", "write %d 0 abc", fd)
	p.want("ok", "close %d", fd)
	m.awaitOpenLocks("f", 0)
	if got := fmt.Sprint(m.calls("f")); !strings.Contains(got, "unlockhandle open:f h="+id) {
		t.Errorf("at close: %s", got)
	}

	ask[None](m, "Suspend", true)
	fd = p.open("g", "rw,creat")
	calls = nil
	await(t, "the locker is asked", func() bool { // behind the answer
		calls = append(calls, m.calls("g")...)
		return len(calls) > 0
	})
	handleOf(t, calls, "lock open:g owner=1 h=%s W [all] try=false path=g born")
	p.tell("write %d 0 abc", fd)
	p.sleeping()
	ask[None](m, "Suspend", false)
	if got := p.answer(); got != "ok" {
		t.Errorf("write: %s", got)
	}
	p.want("ok", "close %d", fd)
	m.awaitOpenLocks("g", 0)
}
