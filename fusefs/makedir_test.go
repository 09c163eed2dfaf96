package fusefs

import (
	"syscall"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
)

// mkdir(2) waits for another host that makes the same name, where the storage's client
// keeps names. Signals that do not end the process do not interrupt it: runtimes send
// themselves some.
func TestSignalsDoNotInterruptMkdir(t *testing.T) {
	t.Setenv("DMXFS_TEST_CATCH", "1")
	m := mount(t, func(c *childConfig) { c.KeepsNames = true })
	id := ask[int](m, "Hold", HoldArgs{locks.Key{File: "pd/", Class: locks.Flock}, locks.Write, locks.Whole})
	p := startProgram(t, m.dir, nil)
	p.tell("mkdir d 0755")
	p.sleeping()
	must(t, p.cmd.Process.Signal(syscall.SIGUSR1))
	must(t, p.cmd.Process.Signal(syscall.SIGWINCH))
	p.sleeping()
	ask[None](m, "Drop", id)
	if got := p.answer(); got != "ok" {
		t.Errorf("mkdir: %s", got)
	}
}
