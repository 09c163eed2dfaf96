package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"
)

// The answer that is sent row after row is the one that it would be in one piece.
func TestLocksAreSentRowAfterRow(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		a := locksAnswer{}
		for i := range n {
			a.Locks = append(a.Locks, lockJSON{Path: "<a>\n", Start: uint64(i), WaitsFor: []waitFor{{PID: i}}})
		}
		if n > 2 {
			a.Missing = []string{"b", "c"}
		}
		w := httptest.NewRecorder()
		a.send(w)
		want, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Compact(&got, w.Body.Bytes()); err != nil || got.String() != string(want) {
			t.Errorf("%d rows: %v, %s, want %s", n, err, &got, want)
		}
		if h := w.Header().Get("Content-Type"); h != "application/json" {
			t.Errorf("%d rows: Content-Type %q", n, h)
		}
	}
}
