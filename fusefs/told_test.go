package fusefs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"dmxfs/locks"
)

// One program asks for the size of a file, and its answer is late; meanwhile
// another host writes and another program gets the lock, and reads. The kernel
// takes over the late answer while that asks for the size, and would ignore the
// new one.
func TestALateAnswerDoesNotEndARead(t *testing.T) {
	base := tempDir(t)
	below, client, dir := base+"/below", base+"/client", base+"/mnt"
	for _, d := range []string{below, client, dir} {
		must(t, os.Mkdir(d, 0o755))
	}
	storage := mountConfig(t, childConfig{Loopback: true, Root: below, Mount: client, HoldAttr: true})
	m := mountConfig(t, childConfig{Root: client, Mount: dir, FileIDs: FileIDInode})
	writeFile(t, below+"/f", "old")
	p, other := startProgram(t, dir, nil), startProgram(t, dir, nil)
	fd, looked := p.open("f", "rw"), other.open("f", "r")
	m.remote("f", locks.Flock, locks.Write)()
	p.want("ok", "flock %d ex", fd) // nothing that was told before is kept now
	p.want("ok", "flock %d un", fd)
	held := func(n int) {
		await(t, fmt.Sprintf("%d answers are held back", n), func() bool {
			return ask[int](storage, "Held", None{}) == n
		})
	}

	drop := m.remote("f", locks.Flock, locks.Write)
	ask[None](storage, "HoldAttr", 1)
	other.tell("fstat %d", looked)
	held(1)
	writeFile(t, below+"/f", "new, and longer")
	drop()
	p.want("ok", "flock %d ex", fd)
	p.tell("read %d 0 100", fd)
	ask[None](storage, "Answer", 0)
	if got := other.answer(); !strings.Contains(got, "size=15") {
		t.Errorf("fstat, answered after the change: %q, want the new size", got)
	}
	if got := p.answer(); got != "ok new, and longer" {
		t.Errorf("read: %q", got)
	}
}

// An answer that was given may be on its way when a lock comes. The kernel is
// told to ignore it if it is old, and only then: it would ignore the new size,
// too, that is on its way to somebody else.
func TestOldAnswersAreIgnored(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "old")
	writeFile(t, m.backing("lock"), "")
	p := startProgram(t, m.dir, nil)
	fd, lock := p.open("f", "rw"), p.open("lock", "rw")
	p.want("ok", "flock %d ex", lock) // no open lock any more: what is told is not kept
	notified := func(change string, look func()) int64 {
		t.Helper()
		p.want("ok", "flock %d un", lock)
		drop := m.remote("lock", locks.Flock, locks.Write)
		look()
		if change != "" {
			writeFile(t, m.backing("f"), change)
		}
		drop()
		before := ask[Stats](m, "Stats", None{})
		p.want("ok", "flock %d ex", lock)
		after := ask[Stats](m, "Stats", None{})
		return after.AttrDrops + after.PageDrops - before.AttrDrops - before.PageDrops
	}
	look := func() { p.do("fstat %d", fd) }
	notified("", func() {}) // what was told by the opens
	for _, tt := range []struct {
		name, change string
		look         func()
		want         int64
	}{
		{"nothing was told", "newer", func() {}, 0},
		{"it is still true", "", look, 0},
		{"it is old", "new, and longer", look, 1},
		{"it was old, and no new answer since", "once more, and longer", func() {}, 0},
		{"first old, then true", "", func() {
			look()
			writeFile(t, m.backing("f"), "shorter")
			look()
		}, 1},
	} {
		if got := notified(tt.change, tt.look); got != tt.want {
			t.Errorf("%s: %d notifications, want %d", tt.name, got, tt.want)
		}
	}
}

func TestToldSizes(t *testing.T) {
	var x toldSizes
	if x.differ(0, 1) || x.pending(1) {
		t.Error("nothing was told")
	}
	x.add(3, 1)
	x.add(3, 2)
	if x.differ(3, 2) || !x.differ(4, 2) || !x.pending(2) {
		t.Errorf("3 was told: %+v", x)
	}
	x.add(4, 3)
	if !x.differ(3, 3) || !x.differ(4, 3) {
		t.Errorf("3 and 4 were told: %+v", x)
	}
	if late := int64(3 + takenOver + 1); x.differ(3, late) || x.pending(late) {
		t.Errorf("they are known by then: %+v", x)
	}
	x.add(5, 3+takenOver+1)
	if x.differ(5, 3+takenOver+1) {
		t.Errorf("only 5 may be on its way: %+v", x)
	}
}
