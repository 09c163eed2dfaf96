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
	tr := new(tree)
	tr.closings.leave()
	removed, weighed, comm := opened(), opened(), opened() // before any number could be given again
	tr.closings.add(removed)
	tr.closings.relieve()
	if tr.closings.pending() != nil {
		t.Error("something is to be closed")
	}
	tr.mu.Lock()
	tr.closeLater(weighed)
	tr.unlock()
	ps := newProcesses(-1)
	tid := uint32(os.Getpid())
	x := &thread{comm: comm, leader: true, p: &process{pid: os.Getpid()}}
	ps.threads[tid] = x
	ps.leave()
	ps.mu.Lock()
	ps.drop(tid, x)
	ps.mu.Unlock()
	for _, fd := range []int{removed, weighed, comm} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
	if len(ps.threads) != 0 {
		t.Error("the thread is known still")
	}
}
