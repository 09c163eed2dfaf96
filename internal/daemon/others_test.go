package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// viewOf is a view with these peers.
func viewOf(e locks.Epoch, peers ...string) *member.View {
	v := &member.View{Epoch: e}
	for _, p := range peers {
		v.Members = append(v.Members, member.Member{Node: member.Node{Peer: p, Inc: 1}})
	}
	return v
}

func dropping(v *member.View, reason string, peers ...string) *member.View {
	v.Reason = reason
	for _, p := range peers {
		d := member.Dropped{Node: member.Node{Peer: p, Inc: 1}, Why: "silent for 6000 ms"}
		if reason == member.ReasonLeave {
			d.Why = "left"
		}
		v.Dropped = append(v.Dropped, d)
	}
	return v
}

func straysOf(t *testing.T, views ...*member.View) *strays {
	t.Helper()
	m, err := recent.New()
	if err != nil {
		t.Fatal(err)
	}
	s := newStrays(m, slog.New(slog.DiscardHandler))
	for _, v := range views {
		s.begin(v)
	}
	return s
}

// Who was a member, and is none, may be cut off, until it is back. Who has said that it leaves,
// and has removed its record, is gone.
func TestStrays(t *testing.T) {
	t.Parallel()
	own := recent.Own(&recent.Answer{})
	for _, c := range []struct {
		what    string
		views   []*member.View
		since   bool // after all that
		records string
		clear   bool
	}{
		{"none was ever there", []*member.View{viewOf(1, "A")}, true, "", true},
		{"not known for long", []*member.View{viewOf(1, "A")}, false, "", false},
		{"all are there", []*member.View{viewOf(1, "A", "B")}, true, "A B", true},
		{"dropped", []*member.View{viewOf(1, "A", "B"), dropping(viewOf(2, "A"), member.ReasonDrop, "B")}, true, "", false},
		{"dropped as dead", []*member.View{viewOf(1, "A", "B"), dropping(viewOf(2, "A"), member.ReasonReplace, "B")}, true, "", false},
		{"dropped, and back", []*member.View{viewOf(1, "A", "B"), dropping(viewOf(2, "A"), member.ReasonDrop, "B"), viewOf(3, "A", "B")}, true, "A B", true},
		{"left", []*member.View{viewOf(1, "A", "B"), dropping(viewOf(2, "A"), member.ReasonLeave, "B")}, true, "A", true},
		{"left, and has its record", []*member.View{viewOf(1, "A", "B"), dropping(viewOf(2, "A"), member.ReasonLeave, "B")}, true, "A B", false},
		{"left meanwhile", []*member.View{viewOf(1, "A", "B"), dropping(viewOf(2, "A"), member.ReasonLeave, "B")}, false, "A", false},
		{"dropped, left never", []*member.View{viewOf(1, "A", "B", "C"), dropping(viewOf(2, "A", "C"), member.ReasonDrop, "B"), dropping(viewOf(3, "A"), member.ReasonLeave, "C")}, true, "", false},
		{"nobody knows how", []*member.View{viewOf(1, "A", "B"), viewOf(3, "A")}, true, "", false},
		{"nobody knows how, it may have left", []*member.View{viewOf(1, "A", "B"), dropping(viewOf(3, "A"), member.ReasonLeave, "B")}, true, "", false},
		{"another was dropped before the first view", []*member.View{dropping(viewOf(7, "A"), member.ReasonDrop, "B")}, true, "", false},
		{"another had left before the first view", []*member.View{dropping(viewOf(7, "A"), member.ReasonLeave, "B")}, true, "", true},
		{"an older view", []*member.View{viewOf(1, "A"), viewOf(2, "A", "B")}, true, "", true},
	} {
		before := recent.Now()
		s := straysOf(t, c.views...)
		since := before
		if c.since {
			since = recent.Now() + 1
		}
		records := map[string]bool{}
		for _, p := range strings.Fields(c.records) {
			records[p] = true
		}
		v := c.views[len(c.views)-1]
		check := func(s *strays) error {
			k := s.now()
			return k.check(v, &own, since, records)
		}
		if err := check(s); (err == nil) != c.clear {
			t.Errorf("%s: %v", c.what, err)
		}
		// The next daemon knows it, too.
		if err := check(newStrays(s.memory, s.log)); (err == nil) != c.clear {
			t.Errorf("%s, and another daemon: %v", c.what, err)
		}
		v = viewOf(v.Epoch+1, "A", "B", "C")
		if check(s) == nil {
			t.Errorf("%s: it knows of a view that it was not told of", c.what)
		}
	}
	var many []string
	for i := range mostStrays + 1 {
		many = append(many, "P"+strings.Repeat("x", i))
	}
	s := straysOf(t, viewOf(1, append(many, "A")...))
	since := recent.Now()
	s.begin(dropping(viewOf(2, "A"), member.ReasonDrop, many...))
	k := s.now()
	if err := k.check(viewOf(2, "A"), &own, since, nil); err == nil {
		t.Error("more than are remembered")
	}
	if newStrays(s.memory, s.log).now().Epoch != 2 {
		t.Error("what is known does not fit into the memory")
	}
}

// A host that an admin has said is gone is no stray, for the next daemon either.
func TestStraysAreForgotten(t *testing.T) {
	t.Parallel()
	own := recent.Own(&recent.Answer{})
	s := straysOf(t, viewOf(1, "A", "B", "C"), dropping(viewOf(2, "A", "C"), member.ReasonDrop, "B"))
	if s.forget("C") == nil {
		t.Error("a member is forgotten")
	}
	if err := s.forget("B"); err != nil {
		t.Error(err)
	}
	for _, s := range []*strays{s, newStrays(s.memory, s.log)} {
		k := s.now()
		if err := k.check(viewOf(2, "A", "C"), &own, recent.Now()+1, map[string]bool{"A": true, "C": true}); err != nil {
			t.Errorf("one that was forgotten: %v", err)
		}
	}
}

// It is known what others have changed if all members say so, at one view, and nobody else may
// have.
func TestOthers(t *testing.T) {
	t.Parallel()
	memory, err := recent.New()
	if err != nil {
		t.Fatal(err)
	}
	v, self := viewOf(4, "A", "B", "C"), member.Node{Peer: "A", Inc: 1}
	strays := straysOf(t, v)
	strays.k.Since -= 1e9 // longer than it takes to ask
	since := recent.Now()
	name := recent.NameOf(1, "name")
	answers := func(ctx context.Context, q *recent.Question) (changesAnswer, error) {
		a, err := memory.Answer(ctx, q)
		return changesAnswer{a, strays.now()}, err
	}
	try := func(edit func(o *others), here bool) error {
		o := &others{
			view:     func() (*member.View, member.Node, error) { return v, self, nil },
			recorded: func() ([]string, error) { return []string{"A", "B", "C"}, nil },
			askOf: func(ctx context.Context, _ string, q *recent.Question) (changesAnswer, error) {
				return answers(ctx, q)
			},
			strays: strays, drift: 100,
		}
		edit(o)
		q := recent.Question{Version: recent.Version, Name: name, Back: recent.Back(since, recent.Now()), Since: since}
		hosts, err := o.ask(t.Context(), &q, here)
		if err == nil && len(hosts) != 2 {
			t.Errorf("%d hosts", len(hosts))
		}
		return err
	}
	if err := try(func(*others) {}, false); err != nil {
		t.Errorf("all say so: %v", err)
	}
	if err := try(func(*others) {}, true); !errors.Is(err, recent.ErrNever) {
		t.Errorf("by path: %v", err)
	}
	byB := func(f func(a *changesAnswer, err *error)) func(*others) {
		return func(o *others) {
			o.askOf = func(ctx context.Context, peer string, q *recent.Question) (changesAnswer, error) {
				a, err := answers(ctx, q)
				if peer == "B" {
					f(&a, &err)
				}
				return a, err
			}
		}
	}
	views := 0
	for what, edit := range map[string]func(*others){
		"no live member": func(o *others) {
			o.view = func() (*member.View, member.Node, error) { return nil, self, errors.New("no") }
		},
		"the view has changed": func(o *others) {
			o.view = func() (*member.View, member.Node, error) {
				views++
				return viewOf(3+locks.Epoch(views), "A", "B", "C"), self, nil
			}
		},
		"records cannot be read":        func(o *others) { o.recorded = func() ([]string, error) { return nil, errors.New("no") } },
		"one with a record is missed":   func(o *others) { o.recorded = func() ([]string, error) { return []string{"A", "B", "C", "D"}, nil } },
		"one misses one":                byB(func(a *changesAnswer, _ *error) { a.Strays.Gone = map[string]stray{"D": {}} }),
		"one has just begun":            byB(func(a *changesAnswer, _ *error) { a.Strays.Since = a.Changes.Sent }),
		"one is at another view":        byB(func(a *changesAnswer, _ *error) { a.Strays.Epoch++ }),
		"one does not answer":           byB(func(_ *changesAnswer, err *error) { *err = context.DeadlineExceeded }),
		"one says nothing":              byB(func(a *changesAnswer, _ *error) { *a = changesAnswer{} }),
		"one says what cannot be":       byB(func(a *changesAnswer, _ *error) { a.Changes.Received = 0 }),
		"one says that it took a while": byB(func(a *changesAnswer, _ *error) { a.Changes.Received -= 1e12 }),
	} {
		if try(edit, false) == nil {
			t.Errorf("%s: it is sure", what)
		}
	}
	// An older version answers nothing, and is not asked again.
	err = try(byB(func(_ *changesAnswer, err *error) { *err = &p2p.AskError{Text: `unknown question "changes"`} }), false)
	if !errors.Is(err, recent.ErrNever) {
		t.Errorf("one of an older version: %v", err)
	}
}

// What a daemon is asked is answered, whatever it is asked.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := straysOf(t, viewOf(1, "A"))
	o := &others{memory: s.memory, strays: s}
	for _, q := range []*recent.Question{nil, {Version: recent.Version + 1}, {Version: recent.Version, Back: -1}} {
		if b, err := o.answer(t.Context(), q); err == nil {
			t.Errorf("%+v: %s", q, b)
		}
	}
	n := recent.NameOf(1, "n")
	s.memory.End(s.memory.Begin(&n, recent.Gains), recent.Changed)
	b, err := o.answer(t.Context(), &recent.Question{Version: recent.Version, Name: n, Back: 1e9})
	var a changesAnswer
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil || a.Changes == nil || len(a.Changes.Seen) != 1 || a.Strays.Epoch != 1 {
		t.Errorf("%s: %v", b, err)
	}
}
