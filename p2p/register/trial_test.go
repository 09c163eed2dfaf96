package register

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func quiet(string) {}

// Whatever number link(2) fails with, it is told from trouble that passes, and
// nothing is left.
func TestTrialOfLinks(t *testing.T) {
	for errno, kind := range map[unix.Errno]error{
		unix.EIO: ErrNoLink, unix.EPERM: ErrNoLink, unix.ENOSYS: ErrNoLink, unix.EOPNOTSUPP: ErrNoLink, unix.EACCES: ErrNoLink,
		unix.EINVAL: ErrNoLink, unix.EMLINK: ErrNoLink, unix.EXDEV: ErrNoLink, unix.EREMOTEIO: ErrNoLink,
		unix.ENOSPC: ErrFull, unix.EDQUOT: ErrFull, unix.ESTALE: nil, unix.ENOMEM: nil, unix.ETIMEDOUT: nil,
	} {
		dir := t.TempDir()
		d := newDir(t, dir, "a")
		d.link = func(*os.File, string, string) error { return errno }
		err := d.Trial("fuse.some", quiet)
		if !errors.Is(err, errno) || kind != nil && !errors.Is(err, kind) || kind != ErrNoLink && errors.Is(err, ErrNoLink) {
			t.Errorf("%v: error %v, want %v", errno, err, kind)
		}
		if kind == ErrNoLink && !strings.Contains(err.Error(), "/mnt/shared: this storage (fuse.some) makes no hard links") {
			t.Errorf("%v: error %v", errno, err)
		}
		if left := list(t, dir); len(left) != 0 {
			t.Errorf("%v: %v is left", errno, left)
		}
	}
}

// A link that fails once, and all that fails afterwards, is no storage without links.
func TestTrialOfTrouble(t *testing.T) {
	d := newDir(t, t.TempDir(), "a")
	n := 0
	d.link = func(dir *os.File, from, to string) error {
		if n++; n == 1 {
			return unix.EIO
		}
		return linkIn(dir, from, to)
	}
	if err := d.Trial("some", quiet); err != nil || n != 2 {
		t.Errorf("after %d links: %v", n, err)
	}
	if os.Getuid() != 0 {
		return
	}
	inNamespace(t, func() {
		at := t.TempDir()
		if err := unix.Mount("none", at, "tmpfs", unix.MS_RDONLY, ""); err != nil {
			t.Error(err)
			return
		}
		defer unix.Unmount(at, unix.MNT_DETACH)
		if err := newDir(t, at, "a").Trial("tmpfs", quiet); !errors.Is(err, ErrReadOnly) {
			t.Errorf("error %v, want %v", err, ErrReadOnly)
		}
	})
}

// A trial beside an established cluster leaves it as it is, and costs one link.
func TestTrialBesideACluster(t *testing.T) {
	dir := t.TempDir()
	founded(t, dir, "a")
	before := list(t, filepath.Join(dir, Name))
	d := newDir(t, dir, "b")
	n := 0
	d.link = func(dir *os.File, from, to string) error { n++; return linkIn(dir, from, to) }
	if err := d.Trial("some", quiet); err != nil || n != 1 {
		t.Errorf("%d links: %v", n, err)
	}
	if after := list(t, filepath.Join(dir, Name)); strings.Join(after, " ") != strings.Join(before, " ") || len(leftovers(t, dir)) != 0 {
		t.Errorf("%v became %v, %v is left", before, after, leftovers(t, dir))
	}
}

// Several hosts try the storage, and found a cluster, at the same time.
func TestTrialsBesideFounders(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		var wg sync.WaitGroup
		for _, peer := range []string{"a", "b", "c", "d"} {
			d := newDir(t, dir, peer)
			wg.Go(func() {
				if err := d.Trial("some", quiet); err != nil {
					t.Errorf("trial: %v", err)
				}
				if _, err := d.Init(Expect{}); err != nil {
					t.Errorf("init: %v", err)
				}
			})
		}
		wg.Wait()
	}
}
