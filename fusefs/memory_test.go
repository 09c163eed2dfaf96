package fusefs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
)

// What is in memory is read without a word, ends of files included; what is not,
// or passes by the memory, is announced.
func TestReadsOfWhatIsInMemory(t *testing.T) {
	tests.OnDisk(t) // memory knows no RWF_NOWAIT
	name := filepath.Join(t.TempDir(), "f")
	content := bytes.Repeat([]byte("0123456789"), 1000)
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	var m memory
	blocked := 0
	read := func(size int, off int64, direct bool) {
		t.Helper()
		b := make([]byte, size)
		n, err := m.pread(fd, b, off, direct, func() { blocked++ })
		if want := content[min(int(off), len(content)):min(int(off)+size, len(content))]; err != nil || !bytes.Equal(b[:n], want) {
			t.Errorf("%d bytes from %d: %d, %v", size, off, n, err)
		}
	}
	read(100, 0, false)
	if m.cannotTell.Load() {
		t.Skip("the file system of the temporary directory knows no RWF_NOWAIT")
	}
	for _, off := range []int64{0, 4090, 9999, 10_000, 20_000} {
		read(4096, off, false)
	}
	read(len(content)+1, 0, false)
	if blocked != 0 {
		t.Errorf("%d reads of what was just written waited", blocked)
	}
	read(4096, 0, true)
	if blocked != 1 {
		t.Error("a direct read was not announced")
	}
	// Without FADV_RANDOM isOut has the kernel read ahead what is read below. The
	// kernel may keep some page for a moment, if somebody else looks at it.
	for try := 0; try < 100 && blocked == 1; try++ {
		if unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) != nil || unix.Fsync(fd) != nil || unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) != nil || !isOut(fd) {
			t.Log("the kernel keeps the file in memory")
			return
		}
		read(4096, 4096, false)
	}
	if blocked != 2 {
		t.Error("a read from the storage was not announced")
	}
}

// isOut reports whether the first page of a file is not in memory.
func isOut(fd int) bool {
	_, whole, err := preadNowait(fd, make([]byte, 1), 0)
	return !whole && err == unix.EAGAIN
}
