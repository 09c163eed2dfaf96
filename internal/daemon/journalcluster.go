package daemon

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
	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/story"
)

// serveClusterJournal answers with all members' journals, merged.
func (d onlooker) serveClusterJournal(w http.ResponseWriter, r *http.Request) {
	limit, err := answerLimit(r, graphTime)
	if err == nil {
		_, err = journalquery.Filter(r.Form)
	}
	if err != nil {
		admin.Reply(w, nil, err)
		return
	}
	admin.Reply(w, d.clusterJournal(r.Context(), r.Form, limit), nil)
}

// clusterJournal asks all members. What one says, and whether, does not depend on the
// others.
func (d onlooker) clusterJournal(ctx context.Context, q url.Values, limit time.Duration) *journalquery.Cluster {
	s := d.node.Load().Status()
	self := d.identity.ID().String()
	a := &journalquery.Cluster{Silent: []waitgraph.Member{}, Cut: []string{}, Hosts: map[string]string{}}
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
func (d onlooker) memberJournal(ctx context.Context, m member.Member, self string, q url.Values, limit time.Duration) (p journalquery.Part, err error) {
	if m.Peer == self {
		return journalquery.Own(ctx, d.journal, q)
	}
	err = d.table.ask(ctx, m.Peer, limit, question{What: "journal", Query: q.Encode()}, &p)
	return p, err
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
	p, err := journalquery.Own(ctx, d.journal, v)
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
