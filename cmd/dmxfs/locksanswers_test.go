package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
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

// What daemons tell each other of locks has all bytes of names, and a bound.
func TestRowsOnTheWay(t *testing.T) {
	t.Parallel()
	rows := []row{}
	for _, name := range []string{"a", "b\xff\xfe/<c>", "\ufffd", ""} {
		l := lockJSON{Path: name, File: "p" + name, Request: 7}
		rows = append(rows, row{lockJSON: l.toSend(), Owner: 1})
	}
	b, err := marshalRows(slices.Values(rows), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := json.Marshal(rows); err != nil || string(b) != string(want) {
		t.Errorf("%v, %s, want %s", err, b, want)
	}
	var got []row
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].received()
	}
	if !reflect.DeepEqual(got, rows) {
		t.Errorf("got %+v, want %+v", got, rows)
	}
	if strings.Count(string(b), "path_bytes") != 1 || strings.Count(string(b), "file_bytes") != 1 {
		t.Errorf("names that are UTF-8 are told twice: %s", b)
	}
	if _, err := marshalRows(slices.Values(rows), len(b)-1); err == nil {
		t.Error("an answer that is too long is made")
	}
	if b, err := marshalRows(slices.Values[[]row](nil), 10); err != nil || string(b) != "[]" {
		t.Errorf("no locks: %v, %s", err, b)
	}
}
