package fusefs

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadAbout(t *testing.T) {
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ps := newProcesses(proc)
	defer ps.close()
	pid := uint32(os.Getpid())

	// One that is longer than the first read, in records.
	want, err := os.ReadFile("/proc/self/smaps")
	if err != nil || len(want) < 2*4096 {
		t.Fatalf("smaps has %d bytes (%v)", len(want), err)
	}
	got, err := ps.readAbout(pid, "smaps")
	if err != nil || len(got) < len(want)/2 || !bytes.HasSuffix(got, []byte("\n")) {
		t.Errorf("smaps had %d bytes, and %d were read (%v)", len(want), len(got), err)
	}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := uint32(unix.Gettid())
	for field, want := range map[string]uint32{"Tgid:": pid, "Pid:": tid, "PPid:": uint32(os.Getppid())} {
		if got, err := ps.statusField(tid, field); err != nil || got != want {
			t.Errorf("%s is %d, want %d (%v)", field, got, want, err)
		}
	}
	if _, err := ps.statusField(tid, "Nothing:"); err == nil {
		t.Error("a field that is not there has a value")
	}
	if _, err := ps.readAbout(1<<30, "status"); err != unix.ENOENT {
		t.Errorf("a thread that is not there: %v", err)
	}
}
