package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dmxfs/dmxfs/locks"
)

// genRecord draws any record that can be stored as it is.
func genRecord(t *rapid.T) Record {
	str := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.Just(strings.Repeat("é", MaxString/2)),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) string { return string(b) }))
	var s [8]string
	for i := range s {
		s[i] = rapid.Custom(func(t *rapid.T) string { return cut(str.Draw(t, "")) }).Draw(t, "string")
	}
	end := rapid.OneOf(rapid.Just(locks.MaxOffset), rapid.Uint64Range(0, locks.MaxOffset))
	return Record{
		Seq:       rapid.Uint64Range(1, 1<<62).Draw(t, "seq"),
		Time:      time.Unix(0, rapid.Int64Range(-1<<60, 1<<62).Draw(t, "time")),
		Epoch:     locks.Epoch(rapid.Uint64().Draw(t, "epoch")),
		Event:     Event(rapid.IntRange(1, 255).Draw(t, "event")),
		Final:     rapid.Bool().Draw(t, "final"),
		Request:   rapid.Uint64().Draw(t, "request"),
		Key:       locks.Key{File: s[0], Class: locks.Class(rapid.Byte().Draw(t, "class"))},
		Path:      s[1],
		Mode:      locks.Mode(rapid.Byte().Draw(t, "mode")),
		Range:     locks.Range{Start: rapid.Uint64().Draw(t, "start"), End: end.Draw(t, "end")},
		Algorithm: s[2],
		Node:      locks.NodeID(s[3]),
		Peer:      locks.NodeID(s[4]),
		PID:       rapid.Int().Draw(t, "pid"),
		UID:       rapid.Uint32().Draw(t, "uid"),
		Command:   s[5],
		Wait:      time.Duration(rapid.Int64Min(0).Draw(t, "wait")),
		Messages:  rapid.IntMin(0).Draw(t, "messages"),
		Reason:    s[6],
		Stamp:     locks.Stamp{SN: rapid.Uint64().Draw(t, "sn"), Site: locks.NodeID(s[7]), N: rapid.Uint64().Draw(t, "n")},
		Token:     locks.Token(rapid.Uint64().Draw(t, "token")),
	}
}

// same compares records; the location of the times does not matter.
func same(a, b Record) bool {
	ok := a.Time.Equal(b.Time)
	a.Time, b.Time = time.Time{}, time.Time{}
	return ok && a == b
}

func TestEveryRecordSurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord(t)
		c := blockContext{
			seq:  rapid.Uint64Range(0, r.Seq).Draw(t, "base seq"),
			time: rapid.Int64Range(-1<<60, 1<<62).Draw(t, "base time"),
			node: locks.NodeID(rapid.SampledFrom([]string{"", "n1", string(r.Node)}).Draw(t, "node")),
		}
		if r.Node == "" {
			r.Node = c.node // Append fills it in
		}
		d := decoder{blockContext: c}
		if err := d.decode(appendRecord(nil, &r, &c)); err != nil {
			t.Fatal(err)
		}
		if !same(d.rec, r) {
			t.Fatalf("%+v\nbecame\n%+v", r, d.rec)
		}
	})
}

func TestLongStringsAreCut(t *testing.T) {
	long := strings.Repeat("x", MaxString+1)
	r := Record{Seq: 1, Time: time.Unix(0, 0), Event: Note, Reason: long, Path: long}
	var d decoder
	if err := d.decode(appendRecord(nil, &r, &blockContext{})); err != nil {
		t.Fatal(err)
	}
	if len(d.rec.Reason) != MaxString || len(d.rec.Path) != MaxString {
		t.Errorf("lengths %d and %d", len(d.rec.Reason), len(d.rec.Path))
	}
}

// FuzzRecord: a decoder never panics, and what it accepts is encoded to the
// same bytes again.
func FuzzRecord(f *testing.F) {
	c := blockContext{seq: 7, time: 1e18, node: "n1"}
	for i := range 3 {
		r := sample(i, 1)
		r.Seq, r.Time, r.Node = 9, time.Unix(1e9, 5), "n2"
		f.Add(appendRecord(nil, &r, &c))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{blockContext: c}
		if d.decode(b) != nil {
			return
		}
		if again := appendRecord(nil, &d.rec, &c); !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func TestJSONHasTheContractsKeysInOrder(t *testing.T) {
	r := Record{
		Seq: 42, Time: time.Date(2026, 11, 21, 23, 59, 58, 7000, time.FixedZone("", 3600)),
		Epoch: 17, Event: Granted, Request: 5,
		Key: locks.Key{File: "8:1234", Class: locks.Posix}, Path: "db/main.sqlite",
		Mode: locks.Write, Range: locks.Range{Start: 1024, End: 2048}, Algorithm: "rw",
		Node: "n1", PID: 99, Command: "sqlite3", UID: 1000,
		Wait: 12345678 * time.Nanosecond, Messages: 2,
		Reason: "", Token: locks.TokenFloor(17) + 3, Peer: "n2",
		Stamp: locks.Stamp{SN: 9, Site: "n1", N: 1},
	}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"seq":42,"time":"2026-11-21T22:59:58.000007000Z","epoch":17,"event":"granted","request":5,` +
		`"path":"db/main.sqlite","class":"posix","mode":"W","start":1024,"end":2048,"algorithm":"rw","node":"n1",` +
		`"pid":99,"command":"sqlite3","uid":1000,"wait_ms":12.345678,"messages":2,"reason":"",` +
		`"final":false,"token":18691697672195,"peer":"n2","stamp":{"sn":9,"site":"n1","n":1},"file":"8:1234"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	// A record about nothing has all keys, too.
	got, err = json.Marshal(Record{Seq: 1, Time: time.Unix(0, 0), Event: View, Range: locks.Range{}})
	if err != nil {
		t.Fatal(err)
	}
	want = `{"seq":1,"time":"1970-01-01T00:00:00.000000000Z","epoch":0,"event":"view","request":0,` +
		`"path":"","class":"","mode":"","start":0,"end":0,"algorithm":"","node":"",` +
		`"pid":0,"command":"","uid":0,"wait_ms":0,"messages":0,"reason":"","final":false}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestJSONKeepsWhatItIsHardToSay(t *testing.T) {
	for _, r := range []Record{
		{Event: Requested, Range: locks.Whole},
		{Event: Requested, Range: locks.Range{Start: 5, End: locks.MaxOffset}},
		{Event: Requested, Path: "caf\xe9/\xff"}, // Latin-1
		{Event: Requested, Path: "caf\u00e9\n\"\\"},
		{Event: 200},
		{Event: Requested, Wait: 1},
		{Event: Requested, Wait: 1<<63 - 1},
	} {
		r.Seq, r.Time = 3, time.Unix(1, 1)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(b, '\n') {
			t.Errorf("%s is more than one line", b)
		}
		var got Record
		if err := json.Unmarshal(b, &got); err != nil {
			t.Errorf("%s: %v", b, err)
		} else if !same(got, r) {
			t.Errorf("%s was read as %+v", b, got)
		}
	}
	b, _ := json.Marshal(Record{Event: Requested, Range: locks.Whole})
	if !strings.Contains(string(b), `"start":0,"end":-1`) {
		t.Errorf("the whole file is %s", b)
	}
}

func TestEventNamesAreUniqueAndParse(t *testing.T) {
	for e := Event(1); e < 255; e++ {
		got, err := ParseEvent(e.String())
		if err != nil || got != e {
			t.Errorf("%v is parsed as %v, %v", e, got, err)
		}
	}
	for _, s := range []string{"", "Granted", "event_", "event_0", "event_3", "event_300"} {
		if e, err := ParseEvent(s); err == nil {
			t.Errorf("%q is parsed as %v", s, e)
		}
	}
}

// Each event that ends a request ends it, and no other does.
func TestWhatEndsARequest(t *testing.T) {
	for _, e := range Events() {
		plain := e == Denied || e == Withdrawn || e == Lost
		if e.ends(false) != plain || e.ends(true) != (plain || e == Released) {
			t.Errorf("%v: %v, %v", e, e.ends(false), e.ends(true))
		}
	}
}

// blockOf makes one block of records.
func blockOf(tb testing.TB, recs ...Record) (blockKey, []byte) {
	tb.Helper()
	w := blockWriter{node: "n1", age: 77, floor: 1, next: 1}
	for i := range recs {
		w.add(&recs[i])
	}
	w.finish()
	p := w.pairs(nil)
	if len(p) != 1 {
		tb.Fatalf("%d blocks", len(p))
	}
	k, err := parseKey(p[0].key)
	if err != nil {
		tb.Fatal(err)
	}
	return k, p[0].value
}

func samples(n int) []Record {
	recs := make([]Record, n)
	for i := range recs {
		recs[i] = sample(i, 10)
		recs[i].Seq = uint64(i + 1)
		recs[i].Time = time.Unix(1e9, int64(i)*1e6)
		recs[i].Node = "n1"
	}
	return recs
}

// readBlock returns the records before an error.
func readBlock(v []byte) ([]Record, error) {
	b, err := parseBlock(v)
	if err != nil {
		return nil, err
	}
	var recs []Record
	var d decoder
	var buf []byte
	err = b.records(&d, &buf, func(r *Record) bool { recs = append(recs, *r); return true })
	return recs, err
}

func TestBlockHoldsItsRecords(t *testing.T) {
	recs := samples(50)
	recs[20].Time = time.Unix(1e9-1000, 0) // the clock was set back
	k, v := blockOf(t, recs...)
	if k != (blockKey{seq: 1, kind: kindRecords}) {
		t.Errorf("key %+v", k)
	}
	b, err := parseBlock(v)
	if err != nil {
		t.Fatal(err)
	}
	if b.first != 1 || b.last != 50 || b.count != 50 || b.age != 77 || b.floor != 1 || b.gap != 0 || b.node != "n1" {
		t.Errorf("head %+v", b)
	}
	if b.oldest != recs[20].Time.UnixNano() || b.newest != recs[49].Time.UnixNano() {
		t.Errorf("from %d to %d", b.oldest, b.newest)
	}
	got, err := readBlock(v)
	if err != nil || !slices.EqualFunc(got, recs, same) {
		t.Errorf("%d records, %v", len(got), err)
	}
	if per := len(v) / 50; per > 45 {
		t.Errorf("%d bytes for a record", per)
	}
}

// A flipped bit anywhere is found, and nothing false is read.
func TestEveryFlippedBitIsFound(t *testing.T) {
	_, v := blockOf(t, samples(20)...)
	for i := range v {
		for bit := range 8 {
			v[i] ^= 1 << bit
			if recs, err := readBlock(v); err == nil {
				t.Fatalf("bit %d of byte %d: %d records", bit, i, len(recs))
			}
			v[i] ^= 1 << bit
		}
	}
	for n := range v {
		if _, err := readBlock(v[:n]); err == nil {
			t.Fatalf("cut to %d bytes, it is a block", n)
		}
	}
}

func TestBlockOfANewerVersion(t *testing.T) {
	_, v := blockOf(t, samples(1)...)
	v[2] = blockVersion + 1
	binary.BigEndian.PutUint32(v[4:], checksum(v))
	if _, err := readBlock(v); !errors.Is(err, errVersion) {
		t.Error(err)
	}
}

func TestBlocksAreBounded(t *testing.T) {
	w := blockWriter{next: 1}
	long := strings.Repeat("x", MaxString)
	for i := range 1000 {
		r := Record{Seq: uint64(i + 1), Time: time.Unix(0, 0), Event: Note}
		if i%3 == 0 {
			r = Record{Seq: r.Seq, Time: r.Time, Event: Note, Path: long, Reason: long, Command: long, Algorithm: long,
				Key: locks.Key{File: long}, Node: locks.NodeID(long), Peer: locks.NodeID(long), Stamp: locks.Stamp{Site: locks.NodeID(long)}}
		}
		w.add(&r)
	}
	w.finish()
	next := uint64(1)
	for _, p := range w.pairs(nil) {
		b, err := parseBlock(p.value)
		if err != nil {
			t.Fatal(err)
		}
		recs, err := readBlock(p.value)
		if err != nil {
			t.Fatal(err)
		}
		if b.first != next || len(recs) != b.count || b.count > blockRecords {
			t.Errorf("block %d-%d of %d, after %d", b.first, b.last, b.count, next-1)
		}
		next = b.last + 1
	}
	if next != 1001 {
		t.Errorf("ends at %d", next)
	}
}

// FuzzBlock: bytes with a right checksum, as an enemy makes them, never crash
// the reader, nor cost more memory than a block may have.
func FuzzBlock(f *testing.F) {
	_, v := blockOf(f, samples(5)...)
	seed := func(v []byte) {
		n, k := binary.Uvarint(v[blockHeader:])
		f.Add(v[2], v[3], n, v[blockHeader+k:])
	}
	seed(v)
	w := blockWriter{}
	r := samples(1)
	w.state(9, true, 0, 1, func(i int) *Record { return &r[i] })
	seed(w.pairs(nil)[0].value)
	f.Add(byte(1), byte(0), uint64(0), []byte{})
	f.Fuzz(func(t *testing.T, version, flags byte, size uint64, rest []byte) {
		v := append([]byte(blockMagic), version, flags, 0, 0, 0, 0)
		v = append(binary.AppendUvarint(v, size), rest...)
		binary.BigEndian.PutUint32(v[4:], checksum(v))
		b, err := parseBlock(v)
		if err != nil {
			return
		}
		if b.last < b.first || b.oldest > b.newest || b.gap > b.first {
			t.Fatalf("head %+v", b)
		}
		recs, err := readBlock(v)
		if err == nil && len(recs) != b.count {
			t.Fatalf("%d records of %d", len(recs), b.count)
		}
	})
}
