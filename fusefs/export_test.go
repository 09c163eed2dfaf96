package fusefs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What a mount has left to the next process stays open, also if a task in the background
// gives it up after that.
func TestNothingIsClosedThatWasLeft(t *testing.T) {
	opened := func() int {
		t.Helper()
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	var c closings
	before := c.pending()
	c.leave()
	fd := opened()
	c.add(fd)
	c.relieve()
	if c.pending() != before {
		t.Error("something is to be closed")
	}
	ps := newProcesses(-1)
	tid, comm := uint32(os.Getpid()), opened()
	x := &thread{comm: comm, leader: true, p: &process{pid: os.Getpid()}}
	ps.threads[tid] = x
	ps.leave()
	ps.mu.Lock()
	ps.drop(tid, x)
	ps.mu.Unlock()
	for _, fd := range []int{fd, comm} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
	if len(ps.threads) != 0 {
		t.Error("the thread is known still")
	}
}
