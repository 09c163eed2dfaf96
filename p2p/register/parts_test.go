package register

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Of the names in a listing a look reads those that it is for, and not very many.
func TestMailIsWhatALookIsFor(t *testing.T) {
	to := member.Node{Peer: "me", Inc: 7}
	names := []string{
		askName(member.Node{Peer: "new"}, false),
		answersTo(to, false) + "other", answersTo(to, true) + "other",
		answersTo(member.Node{Peer: "them", Inc: 1}, false) + "other",
		newPrefix + "x", member.ViewName(3),
	}
	for _, c := range []struct {
		op            member.LookOp
		asks, answers []string
	}{
		{member.LookOp{}, nil, nil},
		{member.LookOp{Asks: true}, names[:1], nil},
		{member.LookOp{For: to}, nil, names[1:3]},
		{member.LookOp{Asks: true, For: to}, names[:1], names[1:3]},
	} {
		m := mail{op: c.op}
		for _, name := range names {
			m.add(name)
		}
		if !slices.Equal(m.asks, c.asks) || !slices.Equal(m.answers, c.answers) {
			t.Errorf("%+v: %v and %v, want %v and %v", c.op, m.asks, m.answers, c.asks, c.answers)
		}
	}
	m := mail{op: member.LookOp{Asks: true, For: to}}
	for i := range 2 * maxAsks {
		m.add(fmt.Sprint(askPrefix, i))
		m.add(fmt.Sprint(answersTo(to, false), i))
	}
	if len(m.asks) != maxAsks || len(m.answers) != maxAsks {
		t.Errorf("%d asks and %d answers of one look, want %d each", len(m.asks), len(m.answers), maxAsks)
	}
}

// The sources of links go when their outcome is known; one that cannot be removed
// is known as long as it is there.
func TestSourcesOfLinks(t *testing.T) {
	path := t.TempDir()
	d := newDir(t, path, "a")
	dir, err := d.open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var s sources
	for i, name := range []string{"one", "two", "three"} {
		if err := dir.writeTemp(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Store(name, locks.Epoch(i+1))
	}
	os.Remove(filepath.Join(path, "two"))
	if err := os.Mkdir(filepath.Join(path, "two"), 0o700); err != nil { // which unlink does not remove
		t.Fatal(err)
	}
	s.removeTo(dir, 2)
	for name, want := range map[string]bool{"one": false, "two": true, "three": true} {
		if _, ok := s.Load(name); ok != want {
			t.Errorf("%s is a source: %v, want %v", name, !want, want)
		}
	}
	if got := list(t, path); !slices.Equal(got, []string{"three", "two"}) {
		t.Errorf("left are %v", got)
	}
}
