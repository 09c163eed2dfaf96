package journal

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
)

// Both stores do what the comments of the interface say.
func TestStores(t *testing.T) {
	openers := map[string]func(t *testing.T) store{
		"memory": func(*testing.T) store { return &memStore{} },
		"badger": func(t *testing.T) store {
			s, err := openBadgerStore(t.TempDir(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
	for name, open := range openers {
		t.Run(name, func(t *testing.T) { testStore(t, open(t)) })
	}
}

func testStore(t *testing.T, s store) {
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	r := rand.New(rand.NewPCG(1, 2))
	model := map[blockKey][]byte{}
	check := func(from, to blockKey) {
		t.Helper()
		var want, got []string
		for k, v := range model {
			if bytes.Compare(k.bytes(), from.bytes()) >= 0 && bytes.Compare(k.bytes(), to.bytes()) < 0 {
				want = append(want, string(k.bytes())+string(v))
			}
		}
		slices.Sort(want)
		if err := s.scan(from, to, func(k blockKey, v []byte) bool {
			got = append(got, string(k.bytes())+string(v))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v to %+v: %d entries, want %d", from, to, len(got), len(want))
		}
	}
	if err := s.room(); err != nil {
		t.Skip(err)
	}
	key := func() blockKey {
		return blockKey{seq: uint64(r.IntN(2000)), kind: uint8(r.IntN(2)), part: uint16(r.IntN(2))}
	}
	for round := range 40 {
		var pairs []pair
		for range 1 + r.IntN(50) {
			k, v := key(), make([]byte, r.IntN(9000))
			for i := range v {
				v[i] = byte(r.Uint32())
			}
			model[k] = bytes.Clone(v)
			pairs = append(pairs, pair{k.bytes(), v})
		}
		if err := s.write(pairs); err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			clear(p.key) // the memory is ours again
			clear(p.value)
		}
		if round%7 == 6 {
			seq := uint64(r.IntN(1000))
			if err := s.drop(seq); err != nil {
				t.Fatal(err)
			}
			for k := range model {
				if k.seq < seq {
					delete(model, k)
				}
			}
		}
		if round%5 == 4 {
			if err := s.sync(); err != nil {
				t.Fatal(err)
			}
		}
		check(key(), key())
		check(blockKey{}, endKey)
	}
	n := 0
	if err := s.scan(blockKey{}, endKey, func(blockKey, []byte) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("scan went on to %d, %v", n, err)
	}
}
