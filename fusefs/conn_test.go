package fusefs

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	tests "github.com/dmxfs/dmxfs/internal/long"
)

// A storage that takes long for one file does not hold up the others, although
// it does not say so before. Here it takes long as long as somebody has a lease
// on the file (fcntl(2)) that the daemon has to break.
func TestSlowStorageHoldsUpOneRequest(t *testing.T) {
	m := mount(t)
	const files = 4
	leases := make([]*os.File, files)
	opened := make(chan error, files)
	for i := range leases {
		name := fmt.Sprintf("slow%d", i)
		writeFile(t, m.backing(name), "")
		f, err := os.Open(m.backing(name))
		must(t, err)
		defer f.Close()
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
			t.Skipf("no leases here: %v", err)
		}
		leases[i] = f
	}
	writeFile(t, m.backing("quick"), "content")
	for i := range leases {
		go func() {
			f, err := os.OpenFile(m.path(fmt.Sprintf("slow%d", i)), os.O_RDWR, 0)
			if err == nil {
				err = f.Close()
			}
			opened <- err
		}()
		await(t, "the daemon breaks the lease", func() bool {
			l, err := unix.FcntlInt(leases[i].Fd(), unix.F_GETLEASE, 0)
			return err == nil && l != unix.F_RDLCK
		})
	}
	for range 20 {
		if got := readFile(t, m.path("quick")); got != "content" {
			t.Fatalf("read %q", got)
		}
	}
	if n := len(opened); n > 0 {
		t.Fatalf("%d of the files are open: %v", n, <-opened)
	}
	for _, f := range leases {
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		must(t, err)
	}
	for range leases {
		must(t, <-opened)
	}
}

// Data goes straight between the program's memory and the storage where the
// program asks for that, so it has to lie as the storage wants it.
func TestDirectIO(t *testing.T) {
	m := mount(t)
	writeFile(t, m.backing("f"), "")
	raw, err := unix.Open(m.backing("f"), unix.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("the storage has no O_DIRECT: %v", err)
	}
	unix.Close(raw)
	fd, err := unix.Open(m.path("f"), unix.O_RDWR|unix.O_DIRECT, 0)
	must(t, err)
	defer unix.Close(fd)
	for _, size := range []int{4096, 64 << 10, 2 * maxPiece} {
		out, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		must(t, err)
		defer unix.Munmap(out)
		for i := range out {
			out[i] = byte(i / 512)
		}
		if n, err := unix.Pwrite(fd, out, 0); n != size || err != nil {
			t.Fatalf("write %d bytes: %d, %v", size, n, err)
		}
		clear(out)
		if n, err := unix.Pread(fd, out, 0); n != size || err != nil {
			t.Fatalf("read %d bytes: %d, %v", size, n, err)
		}
		for i := range out {
			if out[i] != byte(i/512) {
				t.Fatalf("%d bytes: byte %d is %d", size, i, out[i])
			}
		}
	}
}

// Direct I/O wants whole blocks, and not everything that comes through a handle
// which was opened so is direct.
func TestDirectIOBesideOther(t *testing.T) {
	tests.OnDisk(t) // memory takes writes of any size
	m := mount(t)
	writeFile(t, m.backing("f"), "")
	if raw, err := unix.Open(m.backing("f"), unix.O_RDWR|unix.O_DIRECT, 0); err != nil {
		t.Skipf("the storage has no O_DIRECT: %v", err)
	} else {
		unix.Close(raw)
	}
	const odd = 2*maxPiece + 1234
	text := bytes.Repeat([]byte("direct "), odd/7+1)[:odd]
	open := func(name string, flags int) int {
		fd, err := unix.Open(m.path(name), unix.O_RDWR|unix.O_CREAT|flags, 0o644)
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	mapped := func(fd int) []byte {
		must(t, unix.Ftruncate(fd, odd))
		b, err := unix.Mmap(fd, 0, odd, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		t.Cleanup(func() { unix.Munmap(b) })
		return b
	}
	want := func(name string) {
		t.Helper()
		if b, err := os.ReadFile(m.backing(name)); err != nil || !bytes.Equal(b, text) {
			t.Errorf("%s: %d bytes of %d arrived, %v", name, len(b), odd, err)
		}
	}

	b := mapped(open("mapped", unix.O_DIRECT))
	copy(b, text)
	must(t, unix.Msync(b, unix.MS_SYNC))
	want("mapped")

	// The kernel writes pages back through any handle.
	b = mapped(open("beside", 0))
	copy(b, text)
	_ = mapped(open("beside", unix.O_DIRECT))
	must(t, unix.Msync(b, unix.MS_SYNC))
	want("beside")

	// As dd oflag=direct does.
	fd := open("cleared", unix.O_DIRECT)
	block, err := unix.Mmap(-1, 0, 2*maxPiece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	defer unix.Munmap(block)
	copy(block, text)
	_, err = unix.Write(fd, block)
	must(t, err)
	if _, err := unix.Write(fd, text[len(block):]); err != unix.EINVAL {
		t.Errorf("1234 bytes, directly: %v", err)
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
	must(t, err)
	_, err = unix.Write(fd, text[len(block):])
	must(t, err)
	want("cleared")
	end := make([]byte, 1000)
	if n, err := unix.Pread(fd, end, odd-999); n != 999 || err != nil || !bytes.Equal(end[:n], text[odd-999:]) {
		t.Errorf("read: %d, %v", n, err)
	}
}
