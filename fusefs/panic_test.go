package fusefs

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A handler that panics may leave mutexes behind. The daemon ends, instead of
// serving on with them.
func TestAPanicEndsTheDaemon(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.PanicAt = "bad" })
	for _, name := range []string{"good", "bad"} {
		writeFile(t, m.backing(name), "content")
	}
	p := startProgram(t, m.dir, nil)
	p.want("ok content", "cat good")
	if got := p.do("cat bad"); got != "ECONNABORTED" && got != "ENOTCONN" {
		t.Errorf("the program that was asked about is told %s", got)
	}
	if err := <-m.exited; err == nil || !strings.Contains(m.stderr.String(), "no rule for bad") {
		t.Errorf("the daemon has ended with %v, and said: %s", err, m.stderr)
	}
	m.exited <- nil // as it should
	must(t, unix.Unmount(m.dir, unix.MNT_DETACH))
}
