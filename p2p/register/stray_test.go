package register

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// A file with the name of a view that nobody can have made stops nobody.
func TestStrayFilesAmongTheViewsArePassedOver(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	for e := locks.Epoch(1); e <= 3; e++ {
		mustLink(t, d, e)
	}
	path := func(e locks.Epoch) string { return filepath.Join(dir, viewsDir, member.ViewName(e)) }
	look := func(what string, stray locks.Epoch) {
		t.Helper()
		for _, known := range []locks.Epoch{0, 2, 3} {
			l := mustLook(t, d, member.LookOp{Known: known})
			if l.Newest != 3 || l.Bad != nil || l.Stray != stray || (l.View == nil) != (known == 3) || l.View != nil && l.View.Epoch != 3 {
				t.Errorf("%s, known %d: look %v, stray %d", what, known, l, l.Stray)
			}
		}
	}
	look("none", 0)
	for what, make := range map[string]func(string) error{
		"an empty file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a copy of a view": func(p string) error {
			b, err := os.ReadFile(path(3))
			return errors.Join(err, os.WriteFile(p, b, 0o600))
		},
		"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"a pipe":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"a link":      func(p string) error { return os.Symlink("nowhere", p) },
	} {
		for _, far := range []locks.Epoch{member.MaxEpoch, member.MaxEpoch - 5, 5000} {
			if err := make(path(far)); err != nil {
				t.Fatal(err)
			}
		}
		look(what, member.MaxEpoch)
		for _, far := range []locks.Epoch{member.MaxEpoch, member.MaxEpoch - 5, 5000} {
			os.Remove(path(far))
		}
	}
	// What a newer version made is never passed over, nor what can be a view
	// that was damaged.
	for e, content := range map[locks.Epoch]string{5000: "dmxfs-view 2 something\n", 4: "", 900: ""} {
		os.WriteFile(path(e), []byte(content), 0o600)
		if l := mustLook(t, d, member.LookOp{Known: 3}); l.Newest != e || l.Bad == nil || l.Stray != 0 {
			t.Errorf("%d: look %v", e, l)
		}
		os.Remove(path(e))
	}
	// A view after a jump is one.
	mustLink(t, d, 9000)
	if l := mustLook(t, d, member.LookOp{Known: 3}); l.Newest != 9000 || l.View == nil || l.Bad != nil {
		t.Errorf("after a jump: look %v", l)
	}
}

func TestRecordOfOnePeer(t *testing.T) {
	dir := t.TempDir()
	a, b := founded(t, dir, "a"), newDir(t, dir, "b")
	if err := a.WriteRecord([]byte("where a is")); err != nil {
		t.Fatal(err)
	}
	for peer, want := range map[string]string{"a": "where a is", "nobody": ""} {
		if got, err := b.Record(peer); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", peer, got, err, want)
		}
	}
	if _, err := b.Record("../cluster"); err == nil {
		t.Error("a path was taken for a peer")
	}
}
