package fusefs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/recent"
)

// writesWhoseLockHasGone are writes that a server was killed in, of which the lock has gone.
var writesWhoseLockHasGone = []struct {
	names   bool // are kept by the client as well
	what    string
	has     string
	off     int64
	touched bool // by another host
	unheard error
	want    error
	left    string
}{
	{what: "made", has: "0new456789", left: "0new456789"},
	{what: "not made", has: "0123456789", left: "0new456789"},
	{what: "made, and over it another host", has: "0123456789", touched: true, want: unix.EIO, left: "0123456789"},
	{what: "made, as what another host has", has: "0new456789", touched: true, want: unix.EIO, left: "0new456789"},
	{what: "nobody says", has: "0123456789", unheard: recent.ErrNever, want: unix.EIO, left: "0123456789"},
	{what: "over sshfs", names: true, has: "0new456789", want: unix.EIO, left: "0new456789"},
	{what: "half of it made", has: "0123", off: pageSize - 1, want: unix.EIO, left: "0123"},
}

// A server is killed in a write under an explicit lock of the program, another thread of which
// gives that up before the next server has come to the write. That is not made twice, nor over
// what others have written, and it fails only if it cannot be known whether it was made. So it is
// where the client of the storage keeps what it has read.
func TestKilledInAWriteWhoseLockHasGone(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprint(keeps), func(t *testing.T) { testWriteWhoseLockHasGone(t, keeps) })
	}
}

func testWriteWhoseLockHasGone(t *testing.T, keeps bool) {
	other, err := recent.New()
	must(t, err)
	var unheard error
	log := new(bytes.Buffer)
	f := handlersOnly(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(log, nil))
		o.Recent, err = recent.New()
		must(t, err)
		o.Others = func(ctx context.Context, q *recent.Question, here bool) ([]recent.Host, error) {
			if here {
				return nil, recent.ErrNever
			}
			a, err := other.Answer(ctx, q)
			if err = errors.Join(err, unheard); err != nil {
				return nil, err
			}
			return []recent.Host{recent.Own(a)}, nil // by the same clock, so that it does not matter how busy the machine is
		}
	})
	f.storage.ClientCache = keeps
	path := f.opts.Root.Name() + "/f"
	for _, x := range writesWhoseLockHasGone {
		must(t, os.WriteFile(path, []byte(x.has), 0o644))
		f.storage.KeepsNames = false
		h := f.openForTest(t, "f", os.O_RDWR)
		f.storage.KeepsNames = x.names
		if x.off == 0 {
			x.off = 1
		}
		in := header(h.n.id)
		c := &change{in: &in, op: "write", h: h, off: x.off, writes: []byte("new")}
		p := &past{phase: phaseBegun, matched: true, step: step{protected: 1, unlocks: f.records.unlocks.Load() + 1, began: recent.Now()}}
		tr := tracked{slot: slot{slotHead: new(slotHead)}, past: p}
		if unheard = x.unheard; x.touched {
			n := recent.Content(h.n.key.ino)
			other.End(other.Begin(&n, recent.Alters), recent.Changed)
		}
		made := 0
		call := func() error {
			made++
			_, err := unix.Pwrite(h.fd, c.writes, c.off)
			c.length = len(c.writes)
			return err
		}
		err := f.fence.doPast(&tr, c, call)
		if err != errNotHeld {
			t.Fatalf("%s: %v", x.what, err)
		}
		before := h.n.sole.reopened.Load()
		f.fence.findOutWritten(&tr, c)
		if looked := h.n.sole.reopened.Load() > before; looked != (keeps && !x.names) {
			t.Errorf("%s: the client of the storage was made to look: %v", x.what, looked)
		}
		if err = f.fence.doPast(&tr, c, call); err != x.want || err == nil && c.length != len(c.writes) {
			t.Errorf("%s: %v, %d bytes; want %v", x.what, err, c.length, x.want)
		}
		if says := strings.Contains(log.String(), "cannot be known") && strings.Contains(log.String(), "path=f"); says != (x.want == unix.EIO) {
			t.Errorf("%s: the log says %q", x.what, log)
		}
		log.Reset()
		if got := readFile(t, path); got != x.left {
			t.Errorf("%s: the file has %q, want %q", x.what, got, x.left)
		}
		if c.repeated && made > 0 {
			t.Errorf("%s: it was made again", x.what)
		}
		f.Release(nil, &fuse.ReleaseIn{Fh: h.id})
	}
}
