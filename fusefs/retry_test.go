package fusefs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A thread may not come back with the open(2) that a lock was taken for. What
// it opens then, the same file for something else, needs a lock of its own.
func TestASecondAttemptIsOfTheSameOpen(t *testing.T) {
	f := handlersOnly(t)
	writeFile(t, f.opts.Root.Name()+"/f", "content")
	for _, c := range []struct {
		flags int
		same  bool
	}{{os.O_RDONLY, true}, {os.O_RDWR, false}} {
		n := f.openForTest(t, "f", os.O_RDONLY).n
		in := header(n.id)
		first := f.newHandle(n, unix.O_RDONLY, false, &in)
		f.attach(first, openWaiting)
		must(t, f.lockOpened(nil, first, false, &in))
		f.retries.put(in.Pid, &retry{h: first, flags: unix.O_RDONLY, at: f.now()})
		h := f.openForTest(t, "f", c.flags)
		if (h == first) != c.same {
			t.Errorf("flags %#o: the handle of the first attempt: %v", c.flags, h == first)
		}
		if h.write != (c.flags&os.O_RDWR != 0) {
			t.Errorf("flags %#o: a handle that can write: %v", c.flags, h.write)
		}
	}
}
