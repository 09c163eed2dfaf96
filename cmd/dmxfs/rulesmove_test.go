package main

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A move or a link from one algorithm to another is one to another file
// system, for programs that can copy.
func TestMoveAcrossRules(t *testing.T) {
	t.Parallel()
	c := newExclusiveCluster(t, 2)
	a, b := c.mounts[0], c.mounts[1]
	if err := os.MkdirAll(a.path("rcv/dir/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"plain", "rcv/f", "rcv/dir/sub/f"} {
		write(t, a.path(f), "content of "+f)
	}
	for _, x := range []struct {
		from, to string
		want     error
	}{
		{"plain", "rcv/plain", unix.EXDEV},
		{"rcv/f", "f", unix.EXDEV},
		{"rcv/f", "ring/f", unix.EXDEV},
		{"rcv/dir", "dir", unix.EXDEV},
		{"rcv", "rw/rcv", unix.EXDEV},
		{"rw", "rcv/rw", unix.EXDEV},
		{"rcv/f", "rcv/g", nil},
		{"rcv/dir", "rcv/moved", nil},
		{"plain", "rw/plain", nil},
		{"rw", "renamed", nil},
	} {
		if err := unix.Rename(a.path(x.from), a.path(x.to)); !errors.Is(err, x.want) {
			t.Errorf("rename %s to %s: %v, want %v", x.from, x.to, err, x.want)
		}
	}
	for _, x := range []struct {
		from, to string
		want     error
	}{
		{"renamed/plain", "rcv/link", unix.EXDEV},
		{"rcv/g", "link", unix.EXDEV},
		{"rcv/g", "rcv/link", nil},
		{"renamed/plain", "link", nil},
	} {
		if err := unix.Link(b.path(x.from), b.path(x.to)); !errors.Is(err, x.want) {
			t.Errorf("link %s to %s: %v, want %v", x.from, x.to, err, x.want)
		}
	}
	if err := unix.Renameat2(unix.AT_FDCWD, a.path("rcv/g"), unix.AT_FDCWD, a.path("renamed/plain"), unix.RENAME_EXCHANGE); !errors.Is(err, unix.EXDEV) {
		t.Errorf("exchange: %v", err)
	}
	// mv copies.
	if out, code := b.sh("mv rcv/g copied && mv rcv/moved tree && mv copied ring/"); code != 0 {
		t.Fatalf("mv: %d %s", code, out)
	}
	if got := read(t, a.path("ring/copied")); got != "content of rcv/f" {
		t.Errorf("the copy says %q", got)
	}
	if got := read(t, a.path("tree/sub/f")); got != "content of rcv/dir/sub/f" {
		t.Errorf("the copied tree says %q", got)
	}
	for _, f := range []string{"rcv/g", "rcv/moved", "copied"} {
		if _, err := os.Lstat(a.path(f)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", f, err)
		}
	}
	// A file without a name is under the rule of its directory.
	for dir, want := range map[string]error{"rcv": unix.EXDEV, "renamed": nil} {
		fd, err := unix.Open(a.path(dir), unix.O_TMPFILE|unix.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, a.path("renamed/from-"+dir), unix.AT_SYMLINK_FOLLOW)
		if !errors.Is(err, want) {
			t.Errorf("link of a file of %s without a name: %v, want %v", dir, err, want)
		}
		unix.Close(fd)
	}
}
