package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/story"
)

// mostRecords bounds the records of one member in an answer about the cluster; the
// latest count.
const mostRecords = 20_000

// mostJSON bounds the bytes that they take on the way. Names of files are anybody's and
// may be long: no daemon may run out of memory, or go over [p2p.MaxAnswer], for them.
const mostJSON = 32 << 20

// surroundings are the events that a file's story is told with.
var surroundings = []journal.Event{journal.Fenced, journal.View, journal.Recovered, journal.Join, journal.Leave}

// journalPart is what one member's journal has for a query.
type journalPart struct {
	Records []journal.Record `json:"records"`
	// Cut: there are earlier ones.
	Cut bool `json:"cut"`
}

// clusterJournal is the answer to `dmxfs journal --cluster`.
type clusterJournal struct {
	Entries []story.Entry `json:"entries"`
	// Silent are the members that did not answer, and those that were expelled.
	Silent []waitgraph.Member `json:"silent"`
	// Cut are the hosts that have earlier records than are shown.
	Cut   []string          `json:"cut"`
	Hosts map[string]string `json:"hosts"` // by peer ID
}

// serveClusterJournal answers with all members' journals, merged.
func (d onlooker) serveClusterJournal(w http.ResponseWriter, r *http.Request) {
	limit, err := answerLimit(r, graphTime)
	if err == nil {
		_, err = journalFilter(r.Form)
	}
	if err != nil {
		admin.Reply(w, nil, err)
		return
	}
	admin.Reply(w, d.clusterJournal(r.Context(), r.Form, limit), nil)
}

// clusterJournal asks all members. What one says, and whether, does not depend on the
// others.
func (d onlooker) clusterJournal(ctx context.Context, q url.Values, limit time.Duration) *clusterJournal {
	s := d.node.Load().Status()
	self := d.identity.ID().String()
	a := &clusterJournal{Silent: []waitgraph.Member{}, Cut: []string{}, Hosts: map[string]string{}}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var members []member.Member
	if s.View != nil {
		members = s.View.Members
	}
	parts := make([]story.Part, len(members))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, m := range members {
		a.Hosts[m.Peer] = m.Host
		wg.Go(func() {
			p, err := d.memberJournal(ctx, m, self, q, limit)
			mu.Lock()
			defer mu.Unlock()
			parts[i] = story.Part{Member: m.Peer, Host: m.Host, Records: p.Records}
			if p.Cut {
				a.Cut = append(a.Cut, m.Host)
			}
			if err != nil {
				a.Silent = append(a.Silent, waitgraph.Member{ID: m.Peer, Host: m.Host, State: "silent", Error: silence(err, limit)})
			}
		})
	}
	wg.Wait()
	for _, m := range d.expelled(s.View) {
		a.Hosts[m.ID] = m.Host
		a.Silent = append(a.Silent, m)
	}
	slices.SortFunc(a.Silent, func(x, y waitgraph.Member) int { return strings.Compare(x.Host+x.ID, y.Host+y.ID) })
	slices.Sort(a.Cut)
	a.Entries = story.Merge(parts)
	return a
}

// memberJournal asks one member, or this node itself.
func (d onlooker) memberJournal(ctx context.Context, m member.Member, self string, q url.Values, limit time.Duration) (p journalPart, err error) {
	if m.Peer == self {
		return d.ownJournal(ctx, q)
	}
	err = d.table.ask(ctx, m.Peer, limit, question{What: "journal", Query: q.Encode()}, &p)
	return p, err
}

// ownJournal is what this node's journal has for a query, also for another member.
func (d onlooker) ownJournal(ctx context.Context, q url.Values) (journalPart, error) {
	f, err := journalFilter(q)
	if err != nil {
		return journalPart{}, err
	}
	f.Follow = false
	if f.Last <= 0 || f.Last > mostRecords {
		f.Last = mostRecords + 1
	}
	p := journalPart{Records: []journal.Record{}}
	add := func(r journal.Record) error {
		p.Records = append(p.Records, r)
		return nil
	}
	if err := d.journal.Query(ctx, f, add); err != nil {
		return p, err
	}
	if p.Cut = len(p.Records) > mostRecords; p.Cut {
		p.Records = p.Records[1:]
	}
	if q.Get("around") != "" {
		f.Path, f.PID, f.Events, f.Last = "", 0, surroundings, mostRecords
		if err := d.journal.Query(ctx, f, add); err != nil {
			return p, err
		}
	}
	slices.SortStableFunc(p.Records, func(x, y journal.Record) int { return int(min(max(int64(x.Seq)-int64(y.Seq), -1), 1)) })
	p.bound(mostJSON)
	return p, nil
}

// bound leaves out the earliest records, so that the others take most bytes as JSON.
func (p *journalPart) bound(most int) {
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

// serveRequests answers which requests are open.
func (d onlooker) serveRequests(w http.ResponseWriter, r *http.Request) {
	var q story.Requests
	err := d.journal.Query(r.Context(), journal.Filter{}, func(x journal.Record) error {
		q.Add(&x)
		return nil
	})
	admin.Reply(w, q.Open(), err)
}

// answerJournal answers another member.
func (d onlooker) answerJournal(ctx context.Context, query string) ([]byte, error) {
	v, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("not a query of a journal that this version understands")
	}
	p, err := d.ownJournal(ctx, v)
	if err != nil {
		return nil, fmt.Errorf("the journal: %w", err)
	}
	return json.Marshal(p)
}

// silence is why a member did not answer, for people.
func silence(err error, limit time.Duration) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within " + limit.String()
	}
	if errors.Is(err, p2p.ErrNotConnected) {
		return "no connection to it"
	}
	return err.Error()
}
