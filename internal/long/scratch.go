package long

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// memory is where the memory is that Linux has for files, and enough of it is what tests use
// many times over.
const (
	memory = "/dev/shm"
	enough = 4 << 30 // bytes
)

// Scratch has tests make their directories in memory if they do not run in full: a third of
// the time of a mount can go into making its files on a disk. remove, which is to be called
// before the process ends, takes away what is left there.
//
// It does nothing if TMPDIR says where they are to be, if memory is short, or if files there
// are not what files on a disk are: before Linux 6.6 they have no user attributes.
func Scratch() (remove func()) {
	none := func() {}
	var fs unix.Statfs_t
	if Tests() || os.Getenv("TMPDIR") != "" || unix.Statfs(memory, &fs) != nil ||
		fs.Type != unix.TMPFS_MAGIC || fs.Bavail*uint64(fs.Bsize) < enough {
		return none
	}
	dir, err := os.MkdirTemp(memory, "dmxfs-tests-")
	if err != nil {
		return none
	}
	// As /tmp: some tests are another user.
	if unix.Setxattr(dir, "user.test", nil, 0) != nil || os.Chmod(dir, 0o777|os.ModeSticky) != nil || os.Setenv("TMPDIR", dir) != nil {
		_ = os.RemoveAll(dir)
		return none
	}
	inMemory = true
	return func() { _ = os.RemoveAll(dir) }
}

// inMemory is whether Scratch has done what it is for.
var inMemory bool

// OnDisk has a test that is about what only a disk does make its directories there,
// whatever Scratch has done. It does not run beside others, see t.Setenv.
func OnDisk(t testing.TB) {
	if inMemory {
		t.Setenv("TMPDIR", "")
	}
}
