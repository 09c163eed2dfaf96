package journalquery

import (
	"net/url"
	"strconv"
	"time"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
)

// Filter reads a filter from the query of a URL, which [Values] writes.
func Filter(q url.Values) (journal.Filter, error) {
	f := journal.Filter{Path: q.Get("path"), Node: locks.NodeID(q.Get("node")), Follow: q.Get("follow") != ""}
	var err error
	for key, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if v := q.Get(key); v != "" {
			if *t, err = time.Parse(time.RFC3339Nano, v); err != nil {
				return f, exitcode.With(exitcode.Usage, err)
			}
		}
	}
	for key, n := range map[string]*int{"pid": &f.PID, "last": &f.Last} {
		if v := q.Get(key); v != "" {
			if *n, err = strconv.Atoi(v); err != nil {
				return f, exitcode.With(exitcode.Usage, err)
			}
		}
	}
	for _, name := range q["event"] {
		ev, err := journal.ParseEvent(name)
		if err != nil {
			return f, exitcode.With(exitcode.Usage, err)
		}
		f.Events = append(f.Events, ev)
	}
	if err := f.Check(); err != nil {
		return f, exitcode.With(exitcode.Usage, err)
	}
	return f, nil
}

// Values is the query of a URL that [Filter] reads f from.
func Values(f journal.Filter) url.Values {
	q := url.Values{}
	set := func(key, v string) {
		if v != "" && v != "0" {
			q.Set(key, v)
		}
	}
	set("path", f.Path)
	set("node", string(f.Node))
	set("pid", strconv.Itoa(f.PID))
	set("last", strconv.Itoa(f.Last))
	if !f.Since.IsZero() {
		set("since", f.Since.Format(time.RFC3339Nano))
	}
	if !f.Until.IsZero() {
		set("until", f.Until.Format(time.RFC3339Nano))
	}
	if f.Follow {
		set("follow", "1")
	}
	for _, e := range f.Events {
		q.Add("event", e.String())
	}
	return q
}
