package fusefs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// opened opens a new file with some text.
func opened(t *testing.T, text []byte) int {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// A file is another one if it is only the beginning of the one before, or that of
// this one, however short they are.
func TestSameText(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdefghi\n"), 8000)
	for _, n := range []int{1, 2, 3, 4, 4096, 4097, 128<<10 - 1, 128 << 10, 128<<10 + 1, 128<<10 + 2} {
		changed := bytes.Clone(text[:n])
		changed[n/2] ^= 1
		for _, row := range []struct {
			what     string
			old, new []byte
			want     bool
		}{
			{"the same", text[:n], text[:n], true},
			{"the beginning of a longer one", text[:n+1], text[:n], false},
			{"the beginning of a much longer one", text[:n+20_000], text[:n], false},
			{"begins like a shorter one", text[:n], text[:n+1], false},
			{"with another byte", text[:n], changed, false},
		} {
			old, now := opened(t, row.old), opened(t, row.new)
			if got := sameText(old, now, int64(len(row.new))); got != row.want {
				t.Errorf("%d bytes, %s: %v", n, row.what, got)
			}
			closeFD(old)
			closeFD(now)
		}
	}
}

// A handle that was reopened while files were compared keeps what it got.
func TestReopenedWhileCompared(t *testing.T) {
	f := handlersOnly(t)
	f.descriptors.most = 1 << 20
	n := &node{}
	h := &handle{n: n, fd: opened(t, []byte("as reopened"))}
	defer func() { closeFD(h.fd) }()
	read := func() string {
		b := make([]byte, 20)
		k, err := pread(h.fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:k])
	}
	before := n.sole.reopened.Load()
	n.sole.reopened.Add(1) // by reopen
	f.client.useInstead(n, []*handle{h}, opened(t, []byte("older")), &unix.Stat_t{}, before)
	if got := read(); got != "as reopened" {
		t.Errorf("after it was reopened it reads %q", got)
	}
	f.client.useInstead(n, []*handle{h}, opened(t, []byte("newer")), &unix.Stat_t{}, n.sole.reopened.Load())
	if got := read(); got != "newer" {
		t.Errorf("it reads %q", got)
	}
}

// Where the client of the storage ends early, because what has taken the place of
// a file is shorter, that is not the end of the file.
func TestCutShort(t *testing.T) {
	n := &node{}
	n.sole.known, n.sole.st.Size = true, 50_000
	for _, row := range []struct {
		off       int64
		got, want int
		short     bool
	}{
		{0, 16384, 16384, false},
		{16384, 0, 16384, true},
		{16384, 1, 16384, true},
		{40_000, 10_000, 16384, false},
		{50_000, 0, 16384, false},
		{60_000, 0, 16384, false},
	} {
		n.replaced.Store(false)
		if n.cutShort(row.off, row.got, row.want) {
			t.Errorf("%+v: cut short, though nothing has taken its place", row)
		}
		n.replaced.Store(true)
		if got := n.cutShort(row.off, row.got, row.want); got != row.short {
			t.Errorf("%+v: %v", row, got)
		}
	}
}
