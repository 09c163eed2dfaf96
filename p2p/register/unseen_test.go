package register

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// down makes d see storage one of whose servers is down: is says which names it keeps,
// found what is said of one of them that is looked for, made of one that is to be made.
func down(d *Dir, is func(name string) bool, found, made error) {
	d.stat = func(dir *os.File, name string) (unix.Stat_t, error) {
		if is(name) {
			return unix.Stat_t{}, found
		}
		return statIn(dir, name)
	}
	d.openFile = func(dir int, name string, flags int, mode uint32) (*os.File, error) {
		switch {
		case !is(name):
			return openAt(dir, name, flags, mode)
		case flags&unix.O_CREAT != 0:
			return nil, made
		}
		return nil, found
	}
}

// of reports names that GlusterFS keeps with these.
func of(names ...string) func(name string) bool {
	return func(name string) bool {
		if rest, ok := strings.CutPrefix(name, "."); ok && strings.Contains(rest, ".") {
			name = rest[:strings.LastIndex(rest, ".")]
		}
		return slices.Contains(names, name)
	}
}

// A listing leaves out the names of a server that is down. What is not seen is not missing.
func TestAViewThatIsNotSeenIsNotMissing(t *testing.T) {
	newest := member.ViewName(3)
	for what, x := range map[string]struct {
		is          func(name string) bool
		found, made error
	}{
		"another server knows of it": {of(newest), unix.ENOTCONN, unix.EIO},
		"it hangs":                   {of(newest), unix.ETIMEDOUT, nil},
		"nobody knows of it":         {of(newest), unix.ENOENT, unix.EIO},
		"nor of any":                 {of(newest), unix.ENOENT, unix.ENOTCONN},
		"names go elsewhere": {func(name string) bool { // of a volume that does not know what rsync writes
			return name == newest || strings.HasPrefix(name, newPrefix) && strings.HasSuffix(name, "0")
		}, unix.ENOENT, unix.EIO},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			d := founded(t, dir, "a")
			for e := range locks.Epoch(3) {
				mustLink(t, d, e+1)
			}
			away := filepath.Join(dir, "away")
			if err := os.Rename(filepath.Join(dir, viewsDir, newest), away); err != nil {
				t.Fatal(err)
			}
			down(d, x.is, x.found, x.made)
			for _, known := range []locks.Epoch{0, 3} { // a process that was started since, and a member
				failed := 0
				for range 10 { // some look meets a name of the server
					l, err := d.Look(member.LookOp{Known: known, Linked: 3})
					if err != nil {
						failed++
						continue
					}
					if l.Newest != 2 || l.Known || l.Hidden {
						t.Errorf("look %v", l)
					}
				}
				if failed == 0 || failed < 10 && what != "names go elsewhere" {
					t.Errorf("known %d: %d of 10 looks have failed", known, failed)
				}
			}
			// Whose newest view is shown sees it.
			if l := mustLook(t, d, member.LookOp{Known: 2, Linked: 2}); !l.Known || l.Hidden {
				t.Errorf("look %v", l)
			}
			down(d, of(), nil, nil)
			if err := os.Rename(away, filepath.Join(dir, viewsDir, newest)); err != nil {
				t.Fatal(err)
			}
			if l := mustLook(t, d, member.LookOp{Known: 3, Linked: 3}); l.Newest != 3 || !l.Known {
				t.Errorf("after it is back: %v", l)
			}
			if left := strays(t, dir); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// strays are the names among the views that are none.
func strays(t *testing.T, dir string) []string {
	return slices.DeleteFunc(list(t, filepath.Join(dir, viewsDir)), func(name string) bool {
		_, ok := member.ParseViewName(name)
		return ok
	})
}

// A listing that lacks what is there is told from one that lacks what is not.
func TestAListingThatIsNotWhole(t *testing.T) {
	d := founded(t, t.TempDir(), "a")
	mustLink(t, d, 1)
	d.stat = func(dir *os.File, name string) (unix.Stat_t, error) {
		if name == member.ViewName(2) {
			return unix.Stat_t{}, nil
		}
		return statIn(dir, name)
	}
	if l := mustLook(t, d, member.LookOp{Known: 2, Linked: 2}); l.Known || !l.Hidden || l.Newest != 1 {
		t.Errorf("look %v", l)
	}
}

// What was restored from a copy, or removed, is missing, whatever else is wrong with the
// storage that says nothing of what is there; and nothing is made that could be taken for a view.
func TestARestoredDirectoryIsStillTold(t *testing.T) {
	for _, made := range []error{nil, unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EACCES} {
		dir := t.TempDir()
		d := founded(t, dir, "a")
		mustLink(t, d, 1)
		var tried []string
		d.openFile = func(at int, name string, flags int, mode uint32) (*os.File, error) {
			if flags&unix.O_CREAT != 0 {
				if tried = append(tried, name); made != nil {
					return nil, made
				}
			}
			return openAt(at, name, flags, mode)
		}
		d.link = func(_ *os.File, from, to string) error { t.Errorf("link %s %s", from, to); return unix.EIO }
		for _, known := range []locks.Epoch{0, 3} {
			l := mustLook(t, d, member.LookOp{Known: known, Linked: 3})
			if l.Newest != 1 || l.Known || l.Hidden {
				t.Errorf("%v: look %v", made, l)
			}
		}
		for _, name := range tried {
			if _, ok := member.ParseViewName(name); ok || !isTemp(name) {
				t.Errorf("%s was made", name)
			}
		}
		if left := strays(t, dir); len(tried) == 0 || len(left) != 0 {
			t.Errorf("%v: %d names tried, %v is left", made, len(tried), left)
		}
		if err := os.RemoveAll(filepath.Join(dir, Name)); err != nil {
			t.Fatal(err)
		}
		if l := mustLook(t, d, member.LookOp{Known: 3, Linked: 3}); l.Newest != 0 || l.Known || l.Hidden {
			t.Errorf("%v: after it was removed: %v", made, l)
		}
	}
}

// What a process leaves that is killed while it tries names is removed by whoever cleans up.
func TestPruneRemovesTriedNames(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	views := filepath.Join(dir, viewsDir)
	for _, name := range []string{".00000000000000000007.new-b-beside12-3", ".00000000000000000008.new-b-beside12-4", ".other"} {
		if err := os.WriteFile(filepath.Join(views, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-newAge - time.Hour)
	if err := errors.Join(os.Chtimes(filepath.Join(views, ".00000000000000000007.new-b-beside12-3"), old, old), d.Prune(0)); err != nil {
		t.Fatal(err)
	}
	if got := strays(t, dir); !slices.Equal(got, []string{".00000000000000000008.new-b-beside12-4", ".other"}) {
		t.Errorf("left: %v", got)
	}
}

// A server that is down and has a part of the names is no storage that cannot be used: where a
// cluster is, what fails may pass. Where none is nobody can tell.
func TestTrialWhileAServerIsDown(t *testing.T) {
	isTrial := func(name string) bool { return strings.Contains(name, "-trial") }
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOTCONN} {
		for _, cluster := range []bool{true, false} {
			for _, link := range []bool{true, false} {
				dir := t.TempDir()
				if cluster {
					founded(t, dir, "a")
				}
				d := newDir(t, dir, "b")
				if link {
					d.link = func(*os.File, string, string) error { return errno }
				} else {
					down(d, isTrial, errno, errno)
				}
				err := d.Trial("fuse.some", quiet)
				final := errors.Is(err, ErrUnusable) || errors.Is(err, ErrNoLink)
				if !errors.Is(err, errno) || final != (!cluster && errno == unix.EIO) {
					t.Errorf("%v, cluster %v, link %v: %v", errno, cluster, link, err)
				}
				if !final && cluster && errno == unix.EIO && !strings.Contains(err.Error(), "all of its servers are up") {
					t.Errorf("no advice: %v", err)
				}
			}
		}
	}
	// What the storage cannot do it cannot do beside a cluster either.
	dir := t.TempDir()
	founded(t, dir, "a")
	d := newDir(t, dir, "b")
	d.link = func(*os.File, string, string) error { return unix.EOPNOTSUPP }
	if err := d.Trial("fuse.some", quiet); !errors.Is(err, ErrNoLink) {
		t.Error(err)
	}
	down(d, isTrial, unix.ENOSYS, unix.ENOSYS)
	if err := d.Trial("fuse.some", quiet); !errors.Is(err, ErrUnusable) {
		t.Error(err)
	}
}

// A secret, or the file of the cluster, on a server that is down is neither a wrong secret nor
// a cluster that is to be founded or put back.
func TestInitWhileAServerIsDown(t *testing.T) {
	for _, file := range []string{secretFile, ClusterFile} {
		for _, found := range []unix.Errno{unix.ENOENT, unix.ENOTCONN, unix.EIO} {
			dir := t.TempDir()
			mustLink(t, founded(t, dir, "a"), 1)
			d := newDir(t, dir, "b")
			down(d, of(file), found, unix.EIO)
			for _, e := range []Expect{{}, {Join: true}, {Cluster: testCluster}, {GoesOn: true}} {
				_, err := d.Init(e)
				if !errors.Is(err, unix.EIO) && !errors.Is(err, found) {
					t.Errorf("%s %v, %+v: %v", file, found, e, err)
				}
				for _, kind := range []error{ErrSecret, ErrDamaged, ErrNoCluster, ErrOtherCluster} {
					if errors.Is(err, kind) {
						t.Errorf("%s %v, %+v: %v", file, found, e, err)
					}
				}
			}
			if left := leftovers(t, dir); len(left) != 0 || len(list(t, filepath.Join(dir, Name))) != 5 {
				t.Errorf("%v is left, %v", left, list(t, filepath.Join(dir, Name)))
			}
		}
		// One that is missing is.
		dir := t.TempDir()
		mustLink(t, founded(t, dir, "a"), 1)
		if err := os.Remove(filepath.Join(dir, Name, file)); err != nil {
			t.Fatal(err)
		}
		want := map[string]error{secretFile: ErrSecret, ClusterFile: ErrDamaged}[file]
		if _, err := newDir(t, dir, "b").Init(Expect{}); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", file, err, want)
		}
	}
}

// The newest generation of the secret on a server that is down is no storage on which a former
// secret counts again; one that is gone is.
func TestAGenerationThatIsNotSeen(t *testing.T) {
	former, now := secretOf("f"), secretOf("n")
	second := generationName(2)
	for _, known := range []uint64{2, 3} {
		dir := t.TempDir()
		a := newDir(t, dir, "a")
		if _, err := a.Init(Expect{Secret: former}); err != nil {
			t.Fatal(err)
		}
		for i, s := range [][]byte{former, now} {
			if err := a.SetGeneration(Generation{Number: uint64(i) + 1, Fingerprint: Fingerprint(s)}); err != nil {
				t.Fatal(err)
			}
		}
		e := Expect{Kept: [][]byte{now, former}, Generation: known}
		d := newDir(t, dir, "b")
		if c, err := d.Init(e); err != nil || c.Generation != 2 {
			t.Errorf("generation %d is known: %+v, %v", known, c, err)
		}
		// The listing leaves it out.
		path := filepath.Join(dir, secretsDir, second)
		if err := os.Rename(path, filepath.Join(dir, "away")); err != nil {
			t.Fatal(err)
		}
		for _, found := range []unix.Errno{unix.ENOENT, unix.ENOTCONN} {
			down(d, of(generationName(known)), found, unix.EIO)
			if c, err := d.Init(e); err == nil || errors.Is(err, ErrSecret) || !errors.Is(err, found) && !errors.Is(err, unix.EIO) {
				t.Errorf("%v: generation %d is known: %+v, %v", found, known, c, err)
			}
		}
		down(d, of(), nil, nil)
		if c, err := d.Init(e); err != nil || c.Generation != 1 || string(c.Secret) != string(former) {
			t.Errorf("one that is gone: %+v, %v", c, err)
		}
		if left := leftovers(t, dir); len(left) != 0 || len(list(t, filepath.Join(dir, secretsDir))) != 1 {
			t.Errorf("%v is left, %v", left, list(t, filepath.Join(dir, secretsDir)))
		}
	}
}
