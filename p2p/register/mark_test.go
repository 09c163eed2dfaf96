package register

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// A process and its clones, which know all that it knew: when each has renewed its
// mark often enough one is left, in whatever order they do so.
func TestOneOfTheClonesIsLeft(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := founded(t, t.TempDir(), "p1")
		first := d.NewMarker()
		for range rng.IntN(3) { // it may not have written one yet
			if err := first.Renew(7); err != nil {
				t.Fatal(err)
			}
		}
		var all []*Marker
		for range 1 + rng.IntN(4) {
			c := *first
			c.own = slices.Clone(first.own)
			all = append(all, &c)
		}
		for range 30 {
			i := rng.IntN(len(all))
			err := all[i].Renew(7)
			if err != nil && (!errors.Is(err, ErrCloned) || len(all) == 1) {
				t.Fatalf("seed %d: with %d left: %v", seed, len(all), err)
			}
			if err != nil {
				all = slices.Delete(all, i, i+1)
			}
		}
		if len(all) != 1 {
			t.Errorf("seed %d: %d are left", seed, len(all))
		}
	}
}

// What is no mark of this incarnation by another process is none of a clone.
func TestMarksOfOthers(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "p1")
	file := dir + "/" + peersDir + "/p1" + markSuffix
	k := d.NewMarker()
	renew := func(what string, inc member.Inc) {
		t.Helper()
		if err := k.Renew(inc); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	renew("the first", 7)
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	renew("the second", 7)
	put := func(b string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(string(old))
	renew("an old one of its own, as from a cache", 7)
	put("")
	renew("an empty one", 7)
	put("rubbish " + string(old))
	renew("rubbish", 7)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	renew("none", 7)
	renew("the one of the incarnation before", 8)
	if err := d.NewMarker().Renew(8); !errors.Is(err, ErrCloned) {
		t.Errorf("of another process: %v", err)
	}
	if r, err := d.Records(); err != nil || len(r) != 0 {
		t.Errorf("a mark is taken for a record: %v %v", r, err)
	}
}
