package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/history"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
)

// serveJournal streams the records that pass the filter in the query, one
// JSON object a line.
func (d onlooker) serveJournal(w http.ResponseWriter, r *http.Request) {
	f, err := journalFilter(r.URL.Query())
	if err != nil {
		admin.Reply(w, nil, err)
		return
	}
	// What somebody was shown is there still when the daemon is killed next.
	sync, cancel := context.WithTimeout(r.Context(), history.ShownTime)
	_ = d.journal.Sync(sync) // status tells of a disk that fails
	cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	last := time.Now()
	err = d.journal.Query(r.Context(), f, func(rec journal.Record) error {
		if err := e.Encode(rec); err != nil {
			return err
		}
		if f.Follow || time.Since(last) > time.Second {
			last = time.Now()
			return flush.Flush()
		}
		return nil
	})
	if err != nil && r.Context().Err() == nil {
		d.log.Warn("a query of the journal ended early", "err", err)
		panic(http.ErrAbortHandler) // or who asked would take what is there for all of it
	}
}

// journalFilter reads a filter from the query of a URL, and journalQuery
// writes it.
func journalFilter(q url.Values) (journal.Filter, error) {
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

func journalQuery(f journal.Filter) url.Values {
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
