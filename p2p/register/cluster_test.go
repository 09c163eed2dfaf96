package register

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestInitFoundsThenJoins(t *testing.T) {
	dir := t.TempDir()
	a, err := newDir(t, dir, "a").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newDir(t, dir, "b").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	if !a.Founded || b.Founded {
		t.Errorf("founded: %v and %v, want only the first", a.Founded, b.Founded)
	}
	if a.ID != b.ID || string(a.Secret) != string(b.Secret) || len(a.Secret) != 64 || !isHex(a.ID, 32) {
		t.Errorf("clusters differ, or are malformed: %+v, %+v", a, b)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Who goes on for a process that had the cluster open founds nothing.
func TestInitOfWhoGoesOn(t *testing.T) {
	dir := t.TempDir()
	if _, err := newDir(t, dir, "a").Init(Expect{GoesOn: true}); !errors.Is(err, ErrNoCluster) {
		t.Errorf("without a cluster: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, Name)); !os.IsNotExist(err) {
		t.Errorf("something was made: %v", err)
	}
	c, err := newDir(t, dir, "a").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := newDir(t, dir, "a").Init(Expect{GoesOn: true, Cluster: c.ID})
	if err != nil || got.ID != c.ID || string(got.Secret) != string(c.Secret) || got.Founded {
		t.Errorf("%+v, %v; want %+v", got, err, c)
	}
	if _, err := newDir(t, dir, "a").Init(Expect{GoesOn: true, Cluster: "another"}); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("in another cluster: %v", err)
	}
}

// Who goes on for a process changes the directory of the views, so that a client which keeps
// its listing looks anew, also if there is no room for a file; and leaves none.
func TestWhoGoesOnListsTheViewsAnew(t *testing.T) {
	inNamespace(t, func() {
		for _, full := range []bool{false, true} {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=200"); err != nil {
				t.Error(err)
				return
			}
			c, err := newDir(t, dir, "a").Init(Expect{})
			if err != nil {
				t.Error(err)
				return
			}
			for i := 0; full && err == nil; i++ {
				err = os.WriteFile(fmt.Sprint(dir, "/filler-", i), nil, 0o600)
			}
			views, old := filepath.Join(dir, viewsDir), time.Unix(1, 0)
			if err := os.Chtimes(views, old, old); err != nil {
				t.Error(err)
			}
			if _, err := newDir(t, dir, "b").Init(Expect{GoesOn: true, Cluster: c.ID}); err != nil {
				t.Errorf("full %v: %v", full, err)
			}
			if st, err := os.Stat(views); err != nil || st.ModTime().Equal(old) {
				t.Errorf("full %v: the directory of the views is unchanged, %v", full, err)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("full %v: left behind: %v", full, left)
			}
		}
	})
}

func TestInitRaceHasOneFounder(t *testing.T) {
	dir := t.TempDir()
	const n = 16
	clusters := make([]*Cluster, n)
	var wg sync.WaitGroup
	for i := range n {
		d := newDir(t, dir, "peer"+string(rune('a'+i)))
		wg.Go(func() {
			c, err := d.Init(Expect{})
			if err != nil {
				t.Error(err)
				return
			}
			clusters[i] = c
		})
	}
	wg.Wait()
	founders := 0
	for _, c := range clusters {
		if c == nil {
			continue
		}
		if c.Founded {
			founders++
		}
		if c.ID != clusters[0].ID || c.Fingerprint != clusters[0].Fingerprint {
			t.Errorf("two clusters: %+v, %+v", c, clusters[0])
		}
	}
	if founders != 1 {
		t.Errorf("%d founders, want 1", founders)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInitGoesOnWhereAFounderDied(t *testing.T) {
	whole := t.TempDir()
	c, err := newDir(t, whole, "a").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	// What there is after each step of found, besides nothing.
	for _, keep := range [][]string{{}, {"views"}, {"views", "peers"}, {"views", "peers", "secret"}} {
		dir := t.TempDir()
		os.Mkdir(filepath.Join(dir, Name), 0o700)
		secret := false
		for _, name := range keep {
			if name == "secret" {
				secret = true
				os.WriteFile(filepath.Join(dir, Name, name), append(c.Secret, '\n'), 0o600)
			} else {
				os.Mkdir(filepath.Join(dir, Name, name), 0o700)
			}
		}
		got, err := newDir(t, dir, "b").Init(Expect{})
		if err != nil {
			t.Errorf("after %v: %v", keep, err)
			continue
		}
		if secret && string(got.Secret) != string(c.Secret) {
			t.Errorf("after %v: another secret was made", keep)
		}
	}
}

func TestInitChecksTheSecretFirst(t *testing.T) {
	dir := t.TempDir()
	c, err := newDir(t, dir, "a").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(filepath.Join(dir, Name, "peers")) // would be made again
	wrong := []byte("a secret of another cluster")
	_, err = newDir(t, dir, "b").Init(Expect{Secret: wrong})
	if !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), c.Fingerprint) || !strings.Contains(err.Error(), Fingerprint(wrong)) {
		t.Errorf("error %v, want one that names both fingerprints", err)
	}
	if _, err := os.Stat(filepath.Join(dir, Name, "peers")); !os.IsNotExist(err) {
		t.Error("something was written before the secret was checked")
	}
	if got, err := newDir(t, dir, "b").Init(Expect{Secret: c.Secret}); err != nil || got.ID != c.ID {
		t.Errorf("with the right secret: %+v, %v", got, err)
	}
}

func TestInitWithoutReadableSecretAsksForIt(t *testing.T) {
	dir := t.TempDir()
	c, err := newDir(t, dir, "a").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, Name, "secret"))
	_, err = newDir(t, dir, "b").Init(Expect{})
	if !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), "--secret") || !strings.Contains(err.Error(), c.Fingerprint) {
		t.Errorf("error %v, want one that asks for the secret", err)
	}
}

func TestInitWarnsOfAnOpenSecret(t *testing.T) {
	dir := t.TempDir()
	founded(t, dir, "a")
	os.Chmod(filepath.Join(dir, Name, "secret"), 0o644)
	c, err := newDir(t, dir, "b").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "0644") {
		t.Errorf("warnings %q, want one about the mode", c.Warnings)
	}
}

func TestInitRefusesANewerFormat(t *testing.T) {
	dir := t.TempDir()
	founded(t, dir, "a")
	os.WriteFile(filepath.Join(dir, Name, "cluster"), []byte(`{"format":2,"shape":"new"}`), 0o600)
	if _, err := newDir(t, dir, "b").Init(Expect{}); !errors.Is(err, ErrFormat) {
		t.Errorf("error %v, want %v", err, ErrFormat)
	}
}

func TestInitRefusesViewsWithoutCluster(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	mustLink(t, d, 1)
	os.Remove(filepath.Join(dir, Name, "cluster"))
	if _, err := newDir(t, dir, "b").Init(Expect{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v, want %v", err, ErrDamaged)
	}
	if names := list(t, filepath.Join(dir, Name)); strings.Contains(strings.Join(names, " "), "cluster") {
		t.Errorf("a new cluster was founded over the old one's views: %v", names)
	}
}

// A founder with --secret that is faster leaves one without it outside, and
// that one takes the secret that it made back.
func TestInitRaceOfDifferentSecrets(t *testing.T) {
	dir := t.TempDir()
	b := newDir(t, dir, "b")
	given := []byte("the secret that a was given")
	links := 0
	b.link = func(dirf *os.File, from, to string) error {
		if links++; links == 2 { // b is about to link the cluster
			if _, err := newDir(t, dir, "a").Init(Expect{Secret: given}); err != nil {
				t.Fatal(err)
			}
		}
		return linkIn(dirf, from, to)
	}
	if _, err := b.Init(Expect{}); !errors.Is(err, ErrSecret) {
		t.Errorf("error %v, want %v", err, ErrSecret)
	}
	if _, err := os.Stat(filepath.Join(dir, Name, "secret")); !os.IsNotExist(err) {
		t.Error("a secret that is nobody's was left")
	}
}

func TestStorageWithoutLinksIsRefused(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS, unix.EOPNOTSUPP} {
		d := newDir(t, t.TempDir(), "a")
		d.link = func(*os.File, string, string) error { return errno }
		_, err := d.Init(Expect{})
		if !errors.Is(err, ErrNoLink) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "/mnt/shared") {
			t.Errorf("%v: error %v, want %v that names the source", errno, err, ErrNoLink)
		}
	}
}

// Some gateways make a link by copying, or replace what has the name.
func TestStorageWhoseLinkReplacesIsRefused(t *testing.T) {
	d := newDir(t, t.TempDir(), "a")
	d.link = func(dir *os.File, from, to string) error {
		return unix.Renameat(int(dir.Fd()), from, int(dir.Fd()), to)
	}
	if _, err := d.Init(Expect{}); !errors.Is(err, ErrNoLink) {
		t.Errorf("error %v, want %v", err, ErrNoLink)
	}
}

func TestModes(t *testing.T) {
	for _, c := range []struct{ root, dir, file os.FileMode }{
		{0o755, 0o700, 0o600},
		{0o775, 0o770, 0o640},
		{0o777, 0o777, 0o644},
		{0o777 | os.ModeSticky, 0o777 | os.ModeSticky, 0o644},
		{0o770 | os.ModeSetgid, 0o770 | os.ModeSetgid, 0o640},
	} {
		dir := t.TempDir()
		os.Chmod(dir, c.root)
		d := founded(t, dir, "a")
		mustLink(t, d, 1)
		if err := d.WriteRecord([]byte("x")); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{
			Name: c.dir, viewsDir: c.dir, peersDir: c.dir,
			Name + "/cluster": c.file, Name + "/secret": 0o600,
			viewsDir + "/00000000000000000001": c.file, peersDir + "/a": c.file,
		} {
			st, err := os.Stat(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			if got := st.Mode() & (os.ModePerm | os.ModeSticky | os.ModeSetgid); got != want {
				t.Errorf("root %v: %s has mode %v, want %v", c.root, path, got, want)
			}
		}
	}
}

func TestReadOnlyStorage(t *testing.T) {
	inNamespace(t, func() {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
			t.Error(err)
			return
		}
		_, err := newDir(t, dir, "a").Init(Expect{})
		if !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "/mnt/shared") {
			t.Errorf("error %v, want %v that names the source", err, ErrReadOnly)
		}
	})
}

func TestFullStorage(t *testing.T) {
	inNamespace(t, func() {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Error(err)
			return
		}
		d := founded(t, dir, "a")
		os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 64<<10), 0o600) // as much as fits
		v, file := testView(d, 1, "a")
		err := d.Link(v, file)
		if !errors.Is(err, ErrFull) {
			t.Errorf("error %v, want %v", err, ErrFull)
		}
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("left behind on a full disk: %v", left)
		}
		os.Remove(filepath.Join(dir, "filler"))
		if err := d.Link(v, file); err != nil {
			t.Errorf("with room again: %v", err)
		}
	})
}

func TestPermissionDenied(t *testing.T) {
	dir := t.TempDir()
	d := newDir(t, dir, "a")
	asUser(t, 65534, func() {
		if _, err := d.Init(Expect{}); !errors.Is(err, ErrPermission) {
			t.Errorf("error %v, want %v", err, ErrPermission)
		}
	})
}

// Another user who may write to the shared directory takes part with a copy of
// the secret, and cannot read that of the founder.
func TestSecondUser(t *testing.T) {
	dir := t.TempDir()
	os.Chmod(dir, 0o777)
	c, err := newDir(t, dir, "a").Init(Expect{})
	if err != nil {
		t.Fatal(err)
	}
	d := newDir(t, dir, "b")
	asUser(t, 65534, func() {
		if _, err := d.Init(Expect{}); !errors.Is(err, ErrSecret) {
			t.Errorf("error %v, want %v", err, ErrSecret)
		}
		if _, err := d.Init(Expect{Secret: c.Secret}); err != nil {
			t.Errorf("with the secret: %v", err)
			return
		}
		mustLink(t, d, 1)
		if l := mustLook(t, d, testLook); l.Newest != 1 {
			t.Errorf("newest %d, want 1", l.Newest)
		}
	})
}

// Whose file of the cluster is damaged is told what helps.
func TestDamagedClusterFile(t *testing.T) {
	dir := t.TempDir()
	founded(t, dir, "a")
	path := filepath.Join(dir, Name, ClusterFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{nil, whole[:len(whole)/2], bytes.Repeat(whole, 100), []byte("{}"), []byte("\x00\x00\x00")} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := newDir(t, dir, "b").Init(Expect{})
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), Name+"/"+ClusterFile) || !strings.Contains(err.Error(), "dmxfs cluster restore") {
			t.Errorf("with %.20q: %v", b, err)
		}
	}
	// What a newer version has made is whole.
	if err := os.WriteFile(path, []byte(`{"format":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newDir(t, dir, "b").Init(Expect{}); !errors.Is(err, ErrFormat) || strings.Contains(err.Error(), "restore") {
		t.Errorf("of another format: %v", err)
	}
}
