package fusefs

import (
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// directFile opens a new file of m for direct writing, and says what memory to
// write from. It skips the test where the storage has no O_DIRECT.
func directFile(t *testing.T, m *testMount, flags, size int) (fd int, block []byte) {
	t.Helper()
	writeFile(t, m.backing("f"), "")
	raw, err := unix.Open(m.backing("f"), unix.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("the storage has no O_DIRECT: %v", err)
	}
	unix.Close(raw)
	fd, err = unix.Open(m.path("f"), unix.O_RDWR|unix.O_DIRECT|flags, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	block, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	t.Cleanup(func() { unix.Munmap(block) })
	return fd, block
}

// The kernel cuts what is written directly into requests, which come at once.
// What is appended stays in order all the same.
func TestDirectAppendsInOrder(t *testing.T) {
	m := mount(t)
	const size, rounds = 8 * maxPiece, 4
	fd, block := directFile(t, m, unix.O_APPEND, size)
	for round := range rounds {
		for i := 0; i < size; i += 512 {
			binary.LittleEndian.PutUint64(block[i:], uint64(round*size+i))
		}
		if n, err := unix.Write(fd, block); n != size || err != nil {
			t.Fatalf("%d bytes are appended: %d, %v", size, n, err)
		}
	}
	b, err := os.ReadFile(m.backing("f"))
	if err != nil || len(b) != rounds*size {
		t.Fatalf("%d bytes of %d have arrived, %v", len(b), rounds*size, err)
	}
	for i := 0; i < len(b); i += 512 {
		if at := binary.LittleEndian.Uint64(b[i:]); at != uint64(i) {
			t.Fatalf("what was written at %d is at %d", at, i)
		}
	}
}

// Each piece goes after the one before it, whatever reader comes first; one that
// comes when the next one has been written is refused.
func TestTurnsOfAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a appends
		var mu sync.Mutex
		is, order := int64(0), []int64(nil)
		lengthen := func(by int64) {
			mu.Lock()
			defer mu.Unlock()
			is += by
		}
		size := func() (int64, error) {
			mu.Lock()
			defer mu.Unlock()
			return is, nil
		}
		put := func(off int64) error {
			err := a.turn(nil, off, 10, size, func() {})
			if err == nil {
				lengthen(10)
				mu.Lock()
				order = append(order, off)
				mu.Unlock()
				a.over(off, 10, true, size)
			}
			return err
		}
		want := func(what string, offs ...int64) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(order, offs) {
				t.Fatalf("%s: appended %v, want %v", what, order, offs)
			}
			order = nil
		}
		var pieces sync.WaitGroup
		all := func(offs ...int64) {
			for _, off := range offs {
				pieces.Go(func() {
					if err := put(off); err != nil {
						t.Errorf("the piece at %d: %v", off, err)
					}
				})
				synctest.Wait()
			}
		}
		all(20, 10)
		want("the first one is to come")
		all(0)
		want("as the kernel knows the file", 0, 10, 20)

		lengthen(100) // by another host
		all(50, 40, 30)
		want("the kernel knows of nothing", 30, 40, 50)
		lengthen(100)
		all(80, 70)
		want("this may not be all")
		began := time.Now()
		if pieces.Wait(); time.Since(began) != appendWait {
			t.Errorf("it was all after %v", time.Since(began))
		}
		want("this was all", 70, 80)
		if err := put(60); err != unix.EIO {
			t.Errorf("a piece that comes after the next one: %v", err)
		}
		want("it is refused")

		lengthen(-is)
		all(0, 10)
		want("the file was made empty", 0, 10)
		cancel := make(chan struct{})
		waits := func() { close(cancel) }
		if err := a.turn(cancel, 30, 10, size, waits); err != errLetGo || len(a.waiting) > 0 {
			t.Errorf("the program was killed: %v, %v", err, a.waiting)
		}
	})
}

// Where the storage is full a direct write fails with that, and not with EIO,
// which the kernel makes of a part.
func TestDirectWriteToAFullStorage(t *testing.T) {
	root := tempDir(t)
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("not allowed to mount: %v", err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	m := mount(t, func(c *childConfig) { c.Root = root })
	fd, block := directFile(t, m, 0, maxPiece)
	if n, err := unix.Write(fd, block); err != unix.ENOSPC {
		t.Errorf("%d bytes were written: %v", n, err)
	}
	must(t, unix.Ftruncate(fd, 0))
	if n, err := unix.Write(fd, block[:maxPiece/4]); n != maxPiece/4 || err != nil {
		t.Errorf("what there is room for: %d, %v", n, err)
	}
}
