package fusefs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
)

// A request is read and an answer is written without any memory for the calls.
func TestCallsOfTheKernelMakeNoGarbage(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	in, err := newFuseFile(r)
	must(t, err)
	out, err := newFuseFile(w)
	must(t, err)
	sent, got := []byte("answer"), make([]byte, 16)
	each := testing.AllocsPerRun(100, func() {
		must(t, out.write(sent))
		n, err := in.read(got)
		must(t, err)
		if string(got[:n]) != "answer" {
			t.Fatalf("read %q", got[:n])
		}
	})
	if each != 0 && !tests.Race { // with the race detector a sync.Pool loses some
		t.Errorf("%v objects for a write and a read", each)
	}
}

// What the kernel says of a call is what it comes to.
func TestErrorsOfTheKernelArePassedOn(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	in, err := newFuseFile(r)
	must(t, err)
	if err := in.write([]byte("x")); err != unix.EBADF {
		t.Errorf("a write to what is open for reading: %v", err)
	}
	in.close()
	if n, err := in.read(make([]byte, 1)); err == nil || n != 0 {
		t.Errorf("a read of what is closed: %d bytes", n)
	}
}
