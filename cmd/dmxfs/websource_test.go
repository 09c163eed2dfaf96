package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/journal"
)

// TestThePageReadsWhatTheSocketSays: the page's types have keys of the socket's
// JSON only, each with the same type.
func TestThePageReadsWhatTheSocketSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ page, socket any }{
		{snapshot.Status{}, statusJSON{}}, {snapshot.Peers{}, peersJSON{}}, {snapshot.Peer{}, peerJSON{}}, {snapshot.Joiner{}, joinerJSON{}},
		{snapshot.Gone{}, departedJSON{}}, {snapshot.Lock{}, lockJSON{}}, {snapshot.Blocker{}, waitFor{}}, {snapshot.Locks{}, locksAnswer{}},
		{snapshot.Policy{}, policyJSON{}}, {snapshot.Rule{}, ruleJSON{}}, {snapshot.Broken{}, breakAnswer{}},
	} {
		page, socket := keysOf(reflect.TypeOf(c.page)), keysOf(reflect.TypeOf(c.socket))
		for key, typ := range page {
			if got, ok := socket[key]; !ok || got.Kind() != typ.Kind() {
				t.Errorf("%T has %q as %v, the socket's JSON as %v", c.page, key, typ, got)
			}
		}
		// An order to break locks has them whole.
		if _, ok := c.page.(snapshot.Lock); ok && len(page) != len(socket) {
			t.Errorf("%T has %d keys, the socket's JSON %d", c.page, len(page), len(socket))
		}
	}
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
