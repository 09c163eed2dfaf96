package daemon

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/admin"
)

// What daemons tell each other of locks has all bytes of names, and a bound.
func TestRowsOnTheWay(t *testing.T) {
	t.Parallel()
	rows := []row{}
	for _, name := range []string{"a", "b\xff\xfe/<c>", "\ufffd", ""} {
		l := admin.Lock{Path: name, File: "p" + name, Request: 7}
		rows = append(rows, row{Lock: l.ToSend(), Owner: 1})
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
		got[i].Received()
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
