package daemon

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
	"github.com/dmxfs/dmxfs/p2p/member"
)

const (
	// graphTime is how long the members have to tell whom their programs wait for.
	graphTime = 2 * time.Second
	// silentTime is how long those have that have not been heard of for a while.
	silentTime = 500 * time.Millisecond
	// expelledTime is how long a member that was expelled is told of.
	expelledTime = time.Hour
)

// onlooker is a daemon as one sees it who looks at the cluster and changes nothing.
type onlooker struct{ *daemon }

// serveWaits answers who waits for whom in the cluster. The time that members
// have for it is in the query.
func (d onlooker) serveWaits(w http.ResponseWriter, r *http.Request) {
	limit, err := answerLimit(r, graphTime)
	if err != nil {
		admin.Reply(w, nil, err)
		return
	}
	admin.Reply(w, d.waitGraph(r.Context(), limit), nil)
}

// serveLocks answers with the table of locks. The time that members have for it
// is in the query.
func (d onlooker) serveLocks(w http.ResponseWriter, r *http.Request) {
	limit, err := answerLimit(r, askTimeout)
	if err != nil {
		admin.Reply(w, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	a := d.table.all(ctx, r.FormValue("local") != "")
	a.Send(w)
}

// answerLimit is the time that a query gives members to answer.
func answerLimit(r *http.Request, byDefault time.Duration) (time.Duration, error) {
	v := r.FormValue("timeout")
	if v == "" {
		return byDefault, nil
	}
	limit, err := time.ParseDuration(v)
	if err != nil || limit <= 0 {
		return 0, exitcode.With(exitcode.Usage, fmt.Errorf("timeout %q: must be a time such as 2s", v))
	}
	return limit, nil
}

// waitGraph is who waits for whom in the cluster, of members that answer within
// limit.
func (d onlooker) waitGraph(ctx context.Context, limit time.Duration) *waitgraph.Graph {
	s := d.node.Load().Status()
	self := d.identity.ID().String()
	own := waitgraph.Answer{Member: waitgraph.Member{ID: self, State: chronicle.StateName(s), Answered: true, Why: whyOf(s)}, Rows: graphRows(d.table.rows())}
	own.Member.Host, _ = os.Hostname()
	if s.View == nil {
		return waitgraph.Build(time.Now(), self, []waitgraph.Answer{own})
	}
	silent := map[string]string{}
	for _, p := range s.Peers {
		if p.State != "alive" {
			silent[p.Node.Peer] = p.State
		}
	}
	answers := make([]waitgraph.Answer, len(s.View.Members))
	var wg sync.WaitGroup
	for i, m := range s.View.Members {
		if m.Peer == self {
			answers[i] = own
			continue
		}
		wg.Go(func() { answers[i] = d.graphAnswer(ctx, m, silent[m.Peer], limit) })
	}
	wg.Wait()
	// Who was dropped meanwhile is told of by the next lines.
	now := d.node.Load().Status().View
	answers = slices.DeleteFunc(answers, func(a waitgraph.Answer) bool { return now != nil && !now.HasPeer(a.Member.ID) && a.Member.ID != self })
	for _, m := range d.expelled(now) {
		answers = append(answers, waitgraph.Answer{Member: m})
	}
	return waitgraph.Build(time.Now(), self, answers)
}

// expelled are those that were expelled lately and are not in v.
func (d onlooker) expelled(v *member.View) (out []waitgraph.Member) {
	if v == nil {
		return nil
	}
	for _, x := range d.chronicle.Gone(v) {
		if x.State == "expelled" && time.Since(x.At) < expelledTime {
			out = append(out, waitgraph.Member{ID: x.ID, Host: x.Host, State: "expelled", Error: x.Why, Expelled: &x.At})
		}
	}
	return out
}

// graphAnswer asks one member. state is what this node knows of one that it has
// not heard of for a while, else empty.
func (d onlooker) graphAnswer(ctx context.Context, m member.Member, state string, limit time.Duration) waitgraph.Answer {
	a := waitgraph.Answer{Member: waitgraph.Member{ID: m.Peer, Host: m.Host, State: state}}
	if state != "" {
		limit = min(limit, silentTime)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var told memberState
	asked := make(chan error, 1)
	go func() { asked <- d.table.ask(ctx, m.Peer, limit, question{What: "state"}, &told) }()
	rows, err := d.table.askRows(ctx, m.Peer)
	if err == nil {
		err = <-asked
	}
	if err != nil {
		if a.Member.State == "" {
			a.Member.State = "silent"
		}
		a.Member.Error = silence(err, limit)
		return a
	}
	a.Member.Answered, a.Member.State, a.Rows = true, told.State, graphRows(slices.Values(rows))
	return a
}

// whyOf is what keeps a node from granting locks.
func whyOf(s member.Status) string {
	if s.Granting {
		return ""
	}
	return s.Why
}

// graphRows are the locks of a node as the graph wants them.
func graphRows(rows iter.Seq[row]) []waitgraph.Row {
	out := []waitgraph.Row{}
	for r := range rows {
		x := waitgraph.Row{
			Path: r.Path, Class: r.Class, Mode: r.Mode, Start: r.Start, End: r.End, State: r.State, PID: r.PID, Command: r.Command, UID: r.UID,
			Since: r.Since, Algorithm: r.Algorithm, Token: r.Token, File: r.File, Request: r.Request, Owner: r.Owner, Shared: r.Shared, Remote: r.Remote,
			Use: r.Use, IdleSince: r.IdleSince,
		}
		for _, w := range r.WaitsFor {
			x.WaitsFor = append(x.WaitsFor, waitgraph.Program{PID: w.PID, Command: w.Command})
		}
		out = append(out, x)
	}
	return out
}
