package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/history"
	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/journal"
)

// serveJournal streams the records that pass the filter in the query, one
// JSON object a line.
func (d onlooker) serveJournal(w http.ResponseWriter, r *http.Request) {
	f, err := journalquery.Filter(r.URL.Query())
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
