package chronicle

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/history"
	"github.com/dmxfs/dmxfs/internal/metrics"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// What happens is in the journal and in the log, and what is shown of it is
// remembered.
func TestChronicle(t *testing.T) {
	t.Parallel()
	j, err := history.Open(t.TempDir(), journal.Options{Cluster: "c", Node: "n", Logger: slog.New(slog.DiscardHandler)}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	log := new(strings.Builder)
	c := &Chronicle{Log: slog.New(slog.NewTextHandler(log, nil)), Journal: j, Metrics: metrics.New(nil, nil, nil)}
	c.Notice(member.Notice{Kind: member.Removed, Node: member.Node{Peer: "p", Inc: 1}, Host: "h", Text: "h was dropped"})
	c.Damaged(engine.Damage{Key: locks.Key{File: "f"}, Path: "file", Err: errors.New("no space")})
	c.LateWrite(fusefs.LateWrite{Operation: "write", Path: "file", Length: 3})
	c.Note(journal.Note, "p", "an admin wants %s", "it")
	if gone := c.Gone(&member.View{}); len(gone) != 1 || gone[0].Host != "h" || gone[0].State != "expelled" {
		t.Errorf("departed are %+v", gone)
	}
	if p := c.Damage(time.Now()); !strings.Contains(p, "no space") {
		t.Errorf("the problem is %q", p)
	}
	var told []journal.Event
	if err := j.Query(t.Context(), journal.Filter{}, func(r journal.Record) error {
		told = append(told, r.Event)
		return nil
	}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	counts := map[journal.Event]int{}
	for _, e := range told {
		counts[e]++
	}
	if counts[journal.Leave] != 1 || counts[journal.LateWrite] != 1 || counts[journal.Note] != 2 {
		t.Errorf("the journal has %v", told)
	}
	for _, want := range []string{"h was dropped", "lock was lost", "an admin wants it"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
}
