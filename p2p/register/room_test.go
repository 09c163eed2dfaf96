package register

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// onSmallDisk runs f on a file system of two megabytes.
func onSmallDisk(t *testing.T, f func(dir string)) {
	t.Helper()
	inNamespace(t, func() {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Error(err)
			return
		}
		f(dir)
	})
}

// fillDisk leaves no byte in the file system of dir.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Error(err)
		return func() {}
	}
	defer f.Close()
	for b := make([]byte, 4096); err == nil; {
		_, err = f.Write(b)
	}
	return func() { os.Remove(path) }
}

// rooms counts the files of the room.
func rooms(t *testing.T, dir string) int { return len(list(t, filepath.Join(dir, roomDir))) }

func TestViewsOnAFullStorage(t *testing.T) {
	onSmallDisk(t, func(dir string) {
		d := founded(t, dir, "a")
		if n := rooms(t, dir); n != roomFiles {
			t.Errorf("room of %d files from the start, want %d", n, roomFiles)
		}
		free := fillDisk(t, dir)
		for e := locks.Epoch(1); e <= roomFiles; e++ {
			v, file := testView(d, e, "a")
			if err := d.Link(v, file); err != nil {
				t.Errorf("view %d on a full storage: %v", e, err)
				return
			}
			if l := mustLook(t, d, member.LookOp{Known: e - 1}); l.View == nil || l.View.Epoch != e || l.Bad != nil {
				t.Errorf("look %v, want view %d", l, e)
			}
			fillDisk(t, dir) // what it gave back goes to somebody else
		}
		v, file := testView(d, roomFiles+1, "a")
		if err := d.Link(v, file); !errors.Is(err, ErrFull) {
			t.Errorf("error %v without room, want %v", err, ErrFull)
		}
		if left := leftovers(t, dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if err := d.Prune(0); err != nil || rooms(t, dir) != 0 {
			t.Errorf("%d files of room from a full storage, %v", rooms(t, dir), err)
		}
		free()
		if err := d.Prune(0); err != nil {
			t.Error(err)
		}
		if n := rooms(t, dir); n != roomFiles {
			t.Errorf("room of %d files when the storage is free again, want %d", n, roomFiles)
		}
	})
}

// Members that take from one room at the same time get a file each, or none.
func TestRoomIsTakenOnce(t *testing.T) {
	onSmallDisk(t, func(dir string) {
		var nodes []*Dir
		for i := range 2 * roomFiles {
			nodes = append(nodes, founded(t, dir, "peer"+strconv.Itoa(i)))
		}
		fillDisk(t, dir)
		got := make([]error, len(nodes))
		var wg sync.WaitGroup
		for i, d := range nodes {
			wg.Go(func() {
				v, file := testView(d, locks.Epoch(i+1), d.peer)
				got[i] = d.Link(v, file)
			})
		}
		wg.Wait()
		linked := 0
		for i, d := range nodes {
			if got[i] != nil {
				if !errors.Is(got[i], ErrFull) {
					t.Errorf("view %d: %v", i+1, got[i])
				}
				continue
			}
			linked++
			b, err := os.ReadFile(filepath.Join(dir, viewsDir, member.ViewName(locks.Epoch(i+1))))
			if err != nil {
				t.Error(err)
				continue
			}
			if v, err := member.ParseView(b, d.clusterID()); err != nil || v.By.Peer != d.peer {
				t.Errorf("view %d is %+v, %v", i+1, v, err)
			}
		}
		if linked < roomFiles {
			t.Errorf("%d views were linked with room for %d", linked, roomFiles)
		}
	})
}

// The room grows with the views.
func TestRoomFitsTheLargestView(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	d.views.room.sawView(100 << 10)
	if err := d.Prune(0); err != nil {
		t.Fatal(err)
	}
	for i := range roomFiles {
		st, err := os.Stat(filepath.Join(dir, roomDir, roomName(i)))
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() != 256<<10 {
			t.Errorf("a file of %d bytes, want %d", st.Size(), 256<<10)
		}
	}
}

// Storage that writes elsewhere what is written in place has no room for that,
// either, until the file of the room is gone. And a name can need room, too.
func TestRoomIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	d.link = func(dirf *os.File, from, to string) error {
		if rooms(t, dir) > roomFiles-2 {
			return unix.EDQUOT
		}
		return linkIn(dirf, from, to)
	}
	mustLink(t, d, 1)
	if n := rooms(t, dir); n != roomFiles-2 {
		t.Errorf("%d files of room are left, want %d", n, roomFiles-2)
	}
}

// What others put into the room is not written over.
func TestRoomOfOthers(t *testing.T) {
	onSmallDisk(t, func(dir string) {
		d := founded(t, dir, "a")
		precious := filepath.Join(dir, "precious")
		os.WriteFile(precious, []byte("precious"), 0o600)
		room := filepath.Join(dir, roomDir)
		for i, put := range []func(path string) error{
			func(path string) error { return os.Link(precious, path) },
			func(path string) error { return os.Symlink(precious, path) },
			func(path string) error { return unix.Mkfifo(path, 0o600) },
			func(path string) error { return os.Mkdir(path, 0o700) },
		} {
			os.Remove(filepath.Join(room, roomName(i)))
			if err := put(filepath.Join(room, roomName(i))); err != nil {
				t.Error(err)
			}
		}
		fillDisk(t, dir)
		v, file := testView(d, 1, "a")
		if err := d.Link(v, file); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
			t.Errorf("a file with another name became %q, %v", b, err)
		}
	})
}

// A cluster of a version that kept no room goes on, and gets some.
func TestRoomIsMadeLater(t *testing.T) {
	onSmallDisk(t, func(dir string) {
		d := founded(t, dir, "a")
		os.RemoveAll(filepath.Join(dir, roomDir))
		free := fillDisk(t, dir)
		v, file := testView(d, 1, "a")
		if err := d.Link(v, file); !errors.Is(err, ErrFull) {
			t.Errorf("error %v, want %v", err, ErrFull)
		}
		free()
		mustLink(t, d, 1)
		if err := d.WriteRecord([]byte("x")); err != nil {
			t.Error(err)
		}
		if n := rooms(t, dir); n != roomFiles {
			t.Errorf("room of %d files, want %d", n, roomFiles)
		}
	})
}
