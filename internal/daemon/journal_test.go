package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dmxfs/dmxfs/internal/history"
	"github.com/dmxfs/dmxfs/journal"
)

// Who asks for the journal is told when there is no such pattern, and when what was
// sent is not all.
func TestAnAnswerOfTheJournalIsWholeOrFails(t *testing.T) {
	t.Parallel()
	j, err := history.Open(t.TempDir(), journal.Options{Cluster: "c", Node: "n", Logger: slog.New(slog.DiscardHandler)}, true)
	if err != nil {
		t.Fatal(err)
	}
	j.Append(journal.Record{Event: journal.Note, Reason: "one"})
	if err := j.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	d := &daemon{log: slog.New(slog.DiscardHandler), journal: j}
	srv := httptest.NewServer(http.HandlerFunc(onlooker{d}.serveJournal))
	defer srv.Close()
	ask := func(query string) (int, string, error) {
		resp, err := http.Get(srv.URL + "/journal" + query)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), err
	}
	if code, b, err := ask(""); code != http.StatusOK || b == "" || err != nil {
		t.Errorf("the journal: %d %q %v", code, b, err)
	}
	if code, b, err := ask("?path=a%5B"); code != http.StatusUnprocessableEntity || err != nil {
		t.Errorf("a pattern that is none: %d %q %v", code, b, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, b, err := ask(""); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Errorf("a journal that cannot be read: %q %v, want an end before its time", b, err)
	}
}
