package ask

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/journal"
)

// TestThePageReadsTheJournal: the page's records have keys of the journal's only.
func TestThePageReadsTheJournal(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(journal.Record{Event: journal.Granted})
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(b, &record); err != nil {
		t.Fatal(err)
	}
	for key := range keysOf(reflect.TypeFor[snapshot.Record]()) {
		if _, ok := record[key]; !ok && key != "final" && key != "token" && key != "peer" && key != "file" { // left out when empty
			t.Errorf("records of the journal have no %q", key)
		}
	}
}

func keysOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
			out[key] = f.Type
		}
	}
	return out
}
