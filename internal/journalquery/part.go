package journalquery

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/internal/waitgraph"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/story"
)

// MostRecords bounds the records of one member in an answer about the cluster; the
// latest count.
const MostRecords = 20_000

// MostBytes bounds the bytes that they take on the way. Names of files are anybody's and
// may be long: no daemon may run out of memory, or go over [p2p.MaxAnswer], for them.
const MostBytes = 32 << 20

// surroundings are the events that a file's story is told with.
var surroundings = []journal.Event{journal.Fenced, journal.View, journal.Recovered, journal.Join, journal.Leave}

// Part is what one member's journal has for a query.
type Part struct {
	Records []journal.Record `json:"records"`
	// Cut: there are earlier ones.
	Cut bool `json:"cut"`
}

// Cluster is the answer to `dmxfs journal --cluster`.
type Cluster struct {
	Entries []story.Entry `json:"entries"`
	// Silent are the members that did not answer, and those that were expelled.
	Silent []waitgraph.Member `json:"silent"`
	// Cut are the hosts that have earlier records than are shown.
	Cut   []string          `json:"cut"`
	Hosts map[string]string `json:"hosts"` // by peer ID
}

// Journal is a journal that can be asked.
type Journal interface {
	Query(ctx context.Context, f journal.Filter, then func(journal.Record) error) error
}

// Own is what the journal of a node has for a query, for the cluster.
func Own(ctx context.Context, j Journal, q url.Values) (Part, error) {
	f, err := Filter(q)
	if err != nil {
		return Part{}, err
	}
	f.Follow = false
	if f.Last <= 0 || f.Last > MostRecords {
		f.Last = MostRecords + 1
	}
	p := Part{Records: []journal.Record{}}
	add := func(r journal.Record) error {
		p.Records = append(p.Records, r)
		return nil
	}
	if err := j.Query(ctx, f, add); err != nil {
		return p, err
	}
	if p.Cut = len(p.Records) > MostRecords; p.Cut {
		p.Records = p.Records[1:]
	}
	if q.Get("around") != "" {
		f.Path, f.PID, f.Events, f.Last = "", 0, surroundings, MostRecords
		if err := j.Query(ctx, f, add); err != nil {
			return p, err
		}
	}
	slices.SortStableFunc(p.Records, func(x, y journal.Record) int { return int(min(max(int64(x.Seq)-int64(y.Seq), -1), 1)) })
	p.bound(MostBytes)
	return p, nil
}

// bound leaves out the earliest records, so that the others take most bytes as JSON.
func (p *Part) bound(most int) {
	i := len(p.Records)
	for i > 0 {
		r := &p.Records[i-1]
		most -= 600 + 2*jsonLen(r.Path) + jsonLen(r.Key.File) + jsonLen(r.Command) + jsonLen(r.Reason)
		if most < 0 {
			break
		}
		i--
	}
	if i > 0 {
		p.Records, p.Cut = p.Records[i:], true
	}
}

// jsonLen is at least how many bytes s takes in JSON, where <, for one, is \u003c.
func jsonLen(s string) int {
	n := 0
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x80 || strings.IndexByte(`<>&"\`, c) >= 0 { // what is not UTF-8 becomes \ufffd
			n += 6
		} else {
			n++
		}
	}
	return n
}
