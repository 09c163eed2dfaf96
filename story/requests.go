package story

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/journal"
)

// Request is a request for a lock that has not ended, or that was ended by the end of
// its daemon.
type Request struct {
	Request uint64    `json:"request"`
	State   string    `json:"state"` // requested, waiting or held; lost or withdrawn at the last end
	Since   time.Time `json:"since"` // of the state
	Asked   time.Time `json:"asked"`
	Path    string    `json:"path"`
	Class   string    `json:"class"`
	Mode    string    `json:"mode"`
	PID     int       `json:"pid"`
	Command string    `json:"command"`
	Token   uint64    `json:"token"`
	Reason  string    `json:"reason"`
}

// Requests finds the requests that are open at the end of a journal. The zero value
// is ready.
type Requests struct {
	open map[uint64]*Request
	// ended are those that the last run that was not ended in order left open.
	ended     []Request
	recovered bool // the list is whole
}

// Add takes the next record.
func (q *Requests) Add(r *journal.Record) {
	if q.open == nil {
		q.open = map[uint64]*Request{}
	}
	if r.Event == journal.Recovered {
		q.recovered = true
		return
	}
	if r.Request == 0 {
		return
	}
	x := q.open[r.Request]
	if x == nil {
		x = &Request{
			Request: r.Request, Asked: r.Time.Add(-r.Wait), Path: r.Path, Class: r.Key.Class.String(), Mode: r.Mode.String(), PID: r.PID, Command: r.Command,
		}
		q.open[r.Request] = x
	}
	state := func(s string) { x.State, x.Since, x.Reason = s, r.Time, r.Reason }
	switch r.Event {
	case journal.Requested:
		x.Asked = r.Time
		state("requested")
	case journal.Waiting:
		state("waiting")
	case journal.Resumed:
		if x.State == "" { // what came before is not known any more
			state("requested")
		}
	case journal.Granted:
		state("held")
		x.Token = uint64(r.Token)
	case journal.Denied, journal.Withdrawn, journal.Lost, journal.Released:
		if r.Event == journal.Released && !r.Final {
			return
		}
		delete(q.open, r.Request)
		if strings.HasPrefix(r.Reason, atEnd) {
			state(r.Event.String())
			if q.recovered {
				q.ended, q.recovered = nil, false
			}
			q.ended = append(q.ended, *x)
		}
	}
}

// atEnd begins the reason of records that a journal adds when it is opened, for what
// the last run left open.
const atEnd = "the daemon ended"

// Open are the requests that are open, the oldest first, and behind them those that
// the last end of the daemon ended.
func (q *Requests) Open() []Request {
	out := make([]Request, 0, len(q.open)+len(q.ended))
	for _, x := range q.open {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b Request) int { return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.Request, b.Request)) })
	return append(out, q.ended...)
}
