package fusefs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/shm"
)

// goOnAndDie starts a server that is killed when its own ledger has begun to count.
func (k *keptMount) goOnAndDie() {
	k.t.Helper()
	k.conf.Kept.Dies = true
	err := k.goOn()
	k.conf.Kept.Dies = false
	if err == nil {
		k.t.Fatal("the server lives")
	}
	b, err := os.ReadFile(k.conf.Kept.Locks + ".kept")
	must(k.t, err)
	var x KeptState
	must(k.t, json.Unmarshal(b, &x))
	if want := k.next.Generation + uint64(len(k.tried)) + 1; x.Generation != want {
		k.t.Fatalf("the server that was killed is of generation %d, want %d", x.Generation, want)
	}
	k.tried = append(k.tried, x)
}

// A server that is killed when its ledger has just begun to count leaves all that was
// left to it: the requests that are under way, too. When one serves the mount nobody can
// go on with what was left to it.
func TestKilledAsItsLedgerBegins(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
	if got := p.do("open f rw,creat"); got[:2] != "ok" {
		t.Fatal(got)
	}
	m.crashAt(Crash{Op: 9, Where: atTaken})
	q.tell("mkdir d 0750")
	m.killed()
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", m.next.Keeper, m.next.Tables), unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	first := []shm.Candidate{{FD: fd, Generation: m.next.Generation}}
	for range 2 {
		m.goOnAndDie()
	}
	must(t, m.goOn())
	if got := m.answer(q); got != "ok" {
		t.Errorf("a call that was under way: %s", got)
	}
	if got := p.do("put g hello"); got != "ok" {
		t.Error(got)
	}
	if _, err := shm.OpenNewest(ledgerForm(), LedgerWhose, first); !errors.Is(err, shm.ErrOver) {
		t.Errorf("the first ledger after that: %v", err)
	}
}

// The same where an answer was noted, and perhaps written, of a request that is longer than
// what is kept of it.
func TestKilledTwiceAfterALongWrite(t *testing.T) {
	t.Parallel()
	m := mountKept(t)
	p := startProgram(t, m.dir, nil)
	fd := p.open("f", "rw,creat")
	m.crashAt(Crash{Op: opWrite, Where: atDone})
	text := strings.Repeat("long", pageSize/2)
	p.tell("write %d 0 %s", fd, text)
	m.killed()
	for range 2 {
		m.goOnAndDie()
	}
	must(t, m.goOn())
	if got := m.answer(p); got != "ok" {
		t.Errorf("the write: %s", got)
	}
	if b, err := os.ReadFile(m.backing("f")); err != nil || string(b) != text {
		t.Errorf("the file has %d bytes (%v)", len(b), err)
	}
}
