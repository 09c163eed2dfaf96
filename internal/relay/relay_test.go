package relay

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

var example = Parts{Head: []byte(`{"a":1}`), Mount: bytes.Repeat([]byte("mount"), 1000), Locks: []byte{}}

func same(a, b *Parts) bool {
	return bytes.Equal(a.Head, b.Head) && bytes.Equal(a.Mount, b.Mount) && bytes.Equal(a.Locks, b.Locks)
}

func TestPutAndGet(t *testing.T) {
	fd, err := Put(&example)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 2 { // the former program reads it again if the next one cannot go on
		got, err := Get(fd)
		if err != nil || !same(got, &example) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if _, err := unix.Pwrite(fd, []byte("x"), 20); err == nil {
		t.Error("it can be changed")
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it outlives any execve: %d, %v", flags, err)
	}
}

// A descriptor that has become another file is not taken.
func TestGetOfAnotherFile(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(encode(&example)); err != nil {
		t.Fatal(err)
	}
	if _, err := Get(int(f.Fd())); err == nil {
		t.Error("a file that anybody can change is taken")
	}
	if _, err := Get(1 << 20); err == nil {
		t.Error("no file is taken")
	}
}

func TestDamage(t *testing.T) {
	good := encode(&example)
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1
		if _, err := decode(b); err == nil {
			t.Fatalf("byte %d is another one, and nobody notices", i)
		}
		if _, err := decode(good[:i]); err == nil {
			t.Fatalf("it is cut after %d bytes, and nobody notices", i)
		}
	}
	other := bytes.Clone(good)
	other[len(magic)]++
	if _, err := decode(other); !errors.Is(err, ErrVersion) {
		t.Errorf("of another version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(&example))
	f.Add(encode(&Parts{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decode(b)
		if err == nil && !bytes.Equal(encode(p), b) {
			t.Error("it says something else when it is written again")
		}
	})
}
