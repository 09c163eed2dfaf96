package fusefs

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// A program looks at something without a lock, and the answer is late; meanwhile another
// host changes that under a lock, and somebody here takes the lock and looks as well. The
// kernel would take over the late answer, and show what was.
func TestALateAnswerDoesNotHideAChange(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.HoldAnswers = opLookup })
	writeFile(t, m.backing("lock"), "")
	for _, x := range []struct {
		name string
		make func(string) error
	}{
		{"directory", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"file", func(path string) error { return os.WriteFile(path, nil, 0o700) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, q := startProgram(t, m.dir, nil), startProgram(t, m.dir, nil)
			must(t, x.make(m.backing(x.name)))
			lock := q.open("lock", "rw")
			q.do("stat %s", x.name)
			m.remote("lock", locks.Flock, locks.Write)()
			q.want("ok", "flock %d ex", lock) // what was told until now is not kept
			q.want("ok", "flock %d un", lock)
			drop := m.remote("lock", locks.Flock, locks.Write)
			ask[None](m, "HoldAttr", 2)
			held := func(n int) {
				t.Helper()
				await(t, "the answer is held back", func() bool { return ask[int](m, "Held", None{}) == n })
			}
			let := func(i int) func() { return sync.OnceFunc(func() { ask[None](m, "Answer", i) }) }
			late, next := let(0), let(1)
			p.tell("stat %s", x.name)
			t.Cleanup(late)
			held(1)
			must(t, os.Chmod(m.backing(x.name), 0o750))
			drop()
			q.want("ok", "flock %d ex", lock)
			q.tell("stat %s", x.name)
			t.Cleanup(next)
			held(2)
			late()
			p.answer()
			next()
			for range 2 {
				if got := q.answer(); !strings.Contains(got, "750 ") {
					t.Errorf("under the lock: %s", got)
				}
				q.tell("stat %s", x.name)
			}
			q.answer()
		})
	}
}

// What of a directory has changed under a lock is seen under it also by who has the
// directory open, or works in it; and what of a file, by who has it open as a path.
func TestAttributesWithoutAName(t *testing.T) {
	// The kernel keeps attributes for so long that they are kept unless they are dropped.
	m := mount(t, func(c *childConfig) { c.TTL = time.Minute })
	writeFile(t, m.backing("lock"), "")
	must(t, os.Mkdir(m.backing("d"), 0o700))
	writeFile(t, m.backing("f"), "")
	p := startProgram(t, m.path("d"), nil)
	lock, d := p.open("../lock", "rw"), p.open(".", "r")
	dir, err := unix.Open(m.path("d"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(dir)
	born := func() string { // which is asked for by a request of its own
		var st unix.Statx_t
		err := unix.Statx(dir, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
		return fmt.Sprintf("mode=%o %v", st.Mode, err)
	}
	path, err := unix.Open(m.path("f"), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(path)
	for i, mode := range []os.FileMode{0o750, 0o755, 0o705} {
		looks := map[string]func() string{
			"stat .": func() string { return p.do("stat .") },
			"fstat":  func() string { return p.do("fstat %d", d) },
			"statx":  born,
			"O_PATH": func() string {
				var st unix.Stat_t
				err := unix.Fstat(path, &st)
				return fmt.Sprintf("mode=%o %v", st.Mode, err)
			},
		}
		for _, look := range looks {
			look()
		}
		drop := m.remote("lock", locks.Flock, locks.Write)
		must(t, os.Chmod(m.backing("d"), mode))
		must(t, os.Chmod(m.backing("f"), mode))
		drop()
		p.want("ok", "flock %d ex", lock)
		for name, look := range looks {
			if got := look(); !strings.Contains(got, fmt.Sprintf("%o ", mode)) {
				t.Errorf("round %d, %s: %s, want the mode %o", i, name, got, mode)
			}
		}
		p.want("ok", "flock %d un", lock)
	}
}
