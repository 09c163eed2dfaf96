package history

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
)

// The journal of a daemon that goes on after an upgrade is in memory at first, and then
// behind what the program before it has written; what is open goes on.
func TestHistoryThatGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := journal.Options{Cluster: "c", Node: "n", Logger: slog.New(slog.DiscardHandler)}
	h, err := Open(dir, o, false)
	if err != nil {
		t.Fatal(err)
	}
	h.Append(journal.Record{Event: journal.Requested, Request: 1, Path: "f"})
	h.Append(journal.Record{Event: journal.Granted, Request: 1, Path: "f"})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if h, err = Resume(dir, o, false); err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Healthy(); err != nil {
		t.Error(err)
	}
	h.Append(journal.Record{Event: journal.Resumed, Request: 1})
	h.Settle()
	<-h.done                                    // a child that another test forks just now may have the former lock for a moment
	if err := h.Sync(t.Context()); err != nil { // waits for the disk
		t.Fatal(err)
	}
	h.Append(journal.Record{Event: journal.Released, Request: 1, Final: true})
	var got []string
	if err := h.Query(t.Context(), journal.Filter{}, func(r journal.Record) error {
		got = append(got, r.Event.String())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"requested", "granted", "resumed", "released"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A process that was killed may have the journal open for a moment longer than the next one
// needs to take over from it: that is no trouble.
func TestTheFormerProcessHasTheJournalOpen(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), new(bytes.Buffer)
	o := journal.Options{Cluster: "c", Node: "n", Logger: slog.New(slog.NewTextHandler(log, nil))}
	former, err := Open(dir, o, false)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Resume(dir, o, false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.Append(journal.Record{Event: journal.Note, Reason: "new"})
	h.Settle()
	time.AfterFunc(10*endsEvery, func() { _ = former.Close() })
	<-h.done
	if err := errors.Join(h.OnDisk(), h.Healthy()); err != nil || strings.Contains(log.String(), "cannot be opened") {
		t.Errorf("%v\n%s", err, log)
	}
}

// What is in memory only would be lost with the program.
func TestHistoryInMemoryIsNotOnDisk(t *testing.T) {
	t.Parallel()
	h, err := Open(t.TempDir(), journal.Options{Cluster: "c", Node: "n", Logger: slog.New(slog.DiscardHandler)}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.OnDisk(); err != nil {
		t.Error(err)
	}
	h.setLate(unix.ENOSPC)
	if err := h.OnDisk(); !errors.Is(err, unix.ENOSPC) || exitcode.Of(err) != exitcode.Sick {
		t.Errorf("%v", err)
	}
	h.setLate(nil)
}
