package journalquery

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
)

// A part of a cluster's journal is bounded, whatever files are called, and has the
// latest records.
func TestPartsOfAClustersJournalAreBounded(t *testing.T) {
	t.Parallel()
	const most = 100_000
	for _, name := range []string{"x", "<", "\x01", "\xff", "\u2028", "\U0001f512"} {
		path := strings.Repeat(name, 2000/len(name))
		p := Part{}
		for i := range 300 {
			p.Records = append(p.Records, journal.Record{
				Seq: uint64(i + 1), Event: journal.Granted, Path: path, Key: locks.Key{File: "p" + path, Class: locks.Flock}, Mode: locks.Write,
				Node: "12D3KooWQmXnBfpzUkfTqZZoJp5RkFCYXGrYGEb31zSRjWLuJBXo", PID: 4194304, Command: "a command",
			})
		}
		p.bound(most)
		b, err := json.Marshal(p)
		if n := len(p.Records); err != nil || len(b) > most || n == 0 || p.Records[n-1].Seq != 300 || !p.Cut {
			t.Errorf("%q: %v, %d records, the last one %d, cut %t, in %d bytes", name, err, n, p.Records[max(n, 1)-1].Seq, p.Cut, len(b))
		}
		before := len(p.Records)
		p.Cut = false
		p.bound(most)
		if len(p.Records) != before || p.Cut {
			t.Errorf("%q: what is short enough is cut", name)
		}
	}
}
