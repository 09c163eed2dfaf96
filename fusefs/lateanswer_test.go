package fusefs

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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
			ask[None](m, "HoldAttr", 1)
			p.tell("stat %s", x.name)
			let := sync.OnceFunc(func() { ask[None](m, "Answer", 0) })
			t.Cleanup(let)
			await(t, "the answer is held back", func() bool { return ask[int](m, "Held", None{}) == 1 })
			must(t, os.Chmod(m.backing(x.name), 0o750))
			drop()
			settles := ask[Stats](m, "Stats", None{}).Settles
			q.tell("flock %d ex", lock)
			await(t, "the lock waits for the answer", func() bool { return ask[Stats](m, "Stats", None{}).Settles > settles })
			let()
			p.answer()
			if got := q.answer(); got != "ok" {
				t.Fatalf("flock: %s", got)
			}
			if got := q.do("stat %s", x.name); !strings.Contains(got, "750 ") {
				t.Errorf("under the lock: %s", got)
			}
		})
	}
}

// What of a directory has changed under a lock is seen under it also by who has the
// directory open, or works in it.
func TestAttributesOfAnOpenDirectory(t *testing.T) {
	// The kernel keeps attributes for so long that they are kept unless they are dropped.
	m := mount(t, func(c *childConfig) { c.TTL = time.Minute })
	writeFile(t, m.backing("lock"), "")
	must(t, os.Mkdir(m.backing("d"), 0o700))
	p := startProgram(t, m.path("d"), nil)
	lock, d := p.open("../lock", "rw"), p.open(".", "r")
	for i, mode := range []os.FileMode{0o750, 0o755, 0o705} {
		for _, look := range []string{"stat .", fmt.Sprintf("fstat %d", d)} {
			p.do("%s", look)
		}
		drop := m.remote("lock", locks.Flock, locks.Write)
		must(t, os.Chmod(m.backing("d"), mode))
		drop()
		p.want("ok", "flock %d ex", lock)
		for _, look := range []string{"stat .", fmt.Sprintf("fstat %d", d)} {
			if got := p.do("%s", look); !strings.Contains(got, fmt.Sprintf("%o ", mode)) {
				t.Errorf("round %d, %s: %s, want the mode %o", i, look, got, mode)
			}
		}
		p.want("ok", "flock %d un", lock)
	}
}
