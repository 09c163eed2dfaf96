package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

var (
	takeoverFiles  = flag.Int("takeover.files", 0, "how many files are open in TestTakeoverOfManyFiles, a fifth of them locked; 0: a thousand in full, half of that otherwise")
	takeoverRounds = flag.Int("takeover.rounds", 0, "how often its daemon is killed; 0: some times")
)

// hoardSize is how many files one program has open in TestTakeoverOfManyFiles: fewer than it may
// have where limits are not raised.
const hoardSize = 2000

// Very many files are open, and a fifth of them locked. They stay so, however often the
// daemon is killed, and the next one does not grow.
func TestTakeoverOfManyFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "--takeover")
	m := c.mounts[0]
	files, rounds := cmp.Or(*takeoverFiles, long.Or(500, 1000)), cmp.Or(*takeoverRounds, long.Or(2, 3))
	c.watch.Allow(time.Duration(rounds)*15*time.Second + 4*time.Minute)
	var l unix.Rlimit
	if err := unix.Prlimit(m.daemon(), unix.RLIMIT_NOFILE, nil, &l); err != nil {
		t.Fatal(err)
	}
	if most := int(l.Cur/2) - 600; files > most { // a descriptor for the file, and one for its name
		t.Logf("the daemon may have %d descriptors: %d files are open, and not %d", l.Cur, most, files)
		files = most
	}
	var hoards []*keeper
	for n := 0; n < files; n += hoardSize {
		dir := fmt.Sprint("hoard-", n)
		makeDirs(t, m.dir, dir)
		k, some := m.converse("hoard"), min(hoardSize, files-n)
		k.want("ok", "chdir %s", dir)
		k.want("ok", "files %d %d", some/5, some-some/5)
		hoards = append(hoards, k)
	}
	locked := m.locksHeld()
	beside := m.converse("beside", "own")
	var first int
	for i := range rounds {
		m.livesOn()
		beside.want("ok", "reset")
		m.killed(unix.SIGKILL)
		m.nothingLost(i + 1)
		beside.tell("say")
		paused := beside.answer()
		if n := m.locksHeld(); n < locked || n > locked+1 { // and that of the one beside
			t.Errorf("%d locks are held, and there were %d", n, locked)
		}
		for _, k := range hoards {
			k.want("ok", "check")
		}
		m.livesOn()
		x, kb := m.takeover(), resident(t, m.daemon())
		t.Logf("%d files, %d locks: no call was answered for %d ms, another lock for %s; the daemon has %d MiB of memory", files, locked, x.LastMS, paused, kb>>10)
		if first == 0 {
			first = kb
		}
		if kb > first*3/2+32<<10 {
			t.Errorf("after %d takeovers the daemon has %d KiB of memory, after the first one it had %d", i+1, kb, first)
		}
	}
	for line := range strings.Lines(m.log()) {
		if strings.Contains(line, "taken over: ") {
			t.Log(strings.TrimSpace(line))
			if !strings.HasSuffix(line, " collections=0\n") {
				t.Error("a daemon has looked for garbage while programs waited")
			}
		}
	}
}

// locksHeld is how many locks status says are held on a host.
func (m *testMount) locksHeld() int {
	m.c.t.Helper()
	s, err := m.status()
	if err != nil {
		m.c.t.Fatal(err)
	}
	return s.Held
}

// resident is how much memory a process has of its own, in KiB.
func resident(t testing.TB, pid int) (kb int) {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			if _, err := fmt.Sscan(rest, &kb); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kb
}

// checkHoarded writes to each file, and looks at its size.
func checkHoarded(fds []int) error {
	for _, fd := range fds {
		var st unix.Stat_t
		_, err := unix.Pwrite(fd, []byte("y"), 0)
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err == nil && st.Size != 1 {
			err = fmt.Errorf("it has %d bytes", st.Size)
		}
		if err != nil {
			path, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
