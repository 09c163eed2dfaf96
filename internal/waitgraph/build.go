package waitgraph

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// maxBlockers bounds those that one wait names.
const maxBlockers = 64

// place is where the locks of one file are, on one node.
type place struct{ node, file, class string }

// seen is a row with who told of it.
type seen struct {
	Row
	node, host string
}

// builder makes one graph.
type builder struct {
	g         *Graph
	held      map[place][]*seen
	waiting   map[place][]*seen
	members   map[string]*Member
	processes map[string]*Process
}

// Build makes the graph of what members answered to the node self at about the
// time now.
func Build(now time.Time, self string, answers []Answer) *Graph {
	b := &builder{
		g:    &Graph{At: now.UTC(), Self: self, Members: []Member{}, Waits: []Wait{}, Cycles: [][]string{}},
		held: map[place][]*seen{}, waiting: map[place][]*seen{}, members: map[string]*Member{}, processes: map[string]*Process{},
	}
	var waits []*seen
	for i := range answers {
		a := &answers[i]
		b.g.Members = append(b.g.Members, a.Member)
		b.members[a.Member.ID] = &a.Member
		for _, r := range a.Rows {
			s, at := &seen{r, a.Member.ID, a.Member.Host}, place{a.Member.ID, r.File, r.Class}
			switch r.State {
			case "held":
				b.held[at] = append(b.held[at], s)
				b.g.Held++
			case "waiting":
				b.waiting[at] = append(b.waiting[at], s)
				waits = append(waits, s)
			}
		}
	}
	slices.SortFunc(b.g.Members, func(x, y Member) int {
		return cmp.Or(strings.Compare(x.Host, y.Host), strings.Compare(x.ID, y.ID))
	})
	slices.SortStableFunc(waits, func(x, y *seen) int {
		return cmp.Or(x.Since.Compare(y.Since), strings.Compare(x.node, y.node), cmp.Compare(x.Request, y.Request))
	})
	for _, w := range waits {
		b.wait(w)
	}
	b.files(waits)
	b.g.Processes = make([]Process, 0, len(b.processes))
	for _, p := range b.processes {
		b.g.Processes = append(b.g.Processes, *p)
	}
	slices.SortFunc(b.g.Processes, func(x, y Process) int {
		return cmp.Or(strings.Compare(x.Host, y.Host), cmp.Compare(x.PID, y.PID), strings.Compare(x.ID, y.ID))
	})
	b.g.markCycles()
	return b.g
}

// process is the process of s. Those that a daemon cannot see are told apart by
// the owner of the lock.
func (b *builder) process(s *seen) *Process {
	id := fmt.Sprintf("%s/%d", s.node, s.PID)
	if s.PID == 0 {
		id = fmt.Sprintf("%s/owner-%d", s.node, s.Owner)
	}
	p := b.processes[id]
	if p == nil {
		p = &Process{ID: id, Node: s.node, Host: s.host, PID: s.PID, Command: s.Command, UID: s.UID}
		b.processes[id] = p
	}
	return p
}

// wait adds the edges of a request.
func (b *builder) wait(s *seen) {
	p := b.process(s)
	p.Waits++
	w := Wait{
		Process: p.ID, Node: s.node, Host: s.host, PID: s.PID, Command: s.Command, UID: s.UID, Request: s.Request,
		File: s.File, Path: s.Path, Class: s.Class, Mode: s.Mode, Start: s.Start, End: s.End, Since: s.Since, Algorithm: s.Algorithm,
		For: []Blocker{},
	}
	add := func(x Blocker) {
		switch same := func(y Blocker) bool { return y.Process == x.Process && y.Kind == x.Kind && y.Node == x.Node }; {
		case x.Kind != Holds && slices.ContainsFunc(w.For, same):
		case len(w.For) == maxBlockers:
			w.More++
		default:
			w.For = append(w.For, x)
		}
	}
	b.here(s, add)
	b.elsewhere(s, add)
	if len(w.For) == 0 {
		b.turn(s, add)
	}
	counted := map[string]bool{}
	for _, x := range w.For {
		if x.Process != "" && !counted[x.Process] {
			counted[x.Process] = true
			b.processes[x.Process].WaitedFor++
		}
	}
	b.g.Waits = append(b.g.Waits, w)
}

// blocker is s in the way of somebody.
func (b *builder) blocker(kind Kind, s *seen) Blocker {
	return Blocker{
		Kind: kind, Process: b.process(s).ID, Node: s.node, Host: s.host, PID: s.PID, Command: s.Command,
		Mode: s.Mode, Start: s.Start, End: s.End, Since: s.Since, Token: s.Token, Use: s.Use, IdleSince: s.IdleSince,
	}
}

// here adds the programs of the same node that are in the way of w.
func (b *builder) here(w *seen, add func(Blocker)) {
	for _, p := range unique(w.WaitsFor) {
		found := false
		for _, h := range b.held[place{w.node, w.File, w.Class}] {
			if h.PID == p.PID && h.Owner != w.Owner && conflict(h, w) {
				add(b.blocker(Holds, h))
				found = true
			}
		}
		if !found { // it has let go of it between two looks
			s := &seen{Row: Row{PID: p.PID, Command: p.Command, Mode: w.Mode, Start: w.Start, End: w.End}, node: w.node, host: w.host}
			add(b.blocker(Holds, s))
		}
	}
}

func unique(ps []Program) []Program {
	out := slices.Clone(ps)
	slices.SortFunc(out, func(x, y Program) int {
		return cmp.Or(cmp.Compare(x.PID, y.PID), strings.Compare(x.Command, y.Command))
	})
	return slices.Compact(out)
}

// elsewhere adds what is in the way of w on other nodes. A node that waits for an
// exclusive lock does not know which of the others has it; when the holder is
// found, those others are of no interest.
func (b *builder) elsewhere(w *seen, add func(Blocker)) {
	var members []Blocker
	holder := false
	for _, n := range w.Remote {
		at := place{n, w.File, w.Class}
		found := false
		for _, h := range b.held[at] {
			if conflict(h, w) {
				add(b.blocker(Holds, h))
				found, holder = true, true
			}
		}
		if found {
			continue
		}
		if x := b.ahead(w, b.waiting[at]); x != nil {
			members = append(members, b.blocker(Ahead, x))
			continue
		}
		x := Blocker{Kind: Silent, Node: n, Host: n, End: -1}
		if m := b.members[n]; m != nil {
			x.Host = m.Host
			if m.Answered {
				x.Kind = Keeps
			}
		}
		members = append(members, x)
	}
	if holder && !w.Shared {
		return
	}
	for _, x := range members {
		add(x)
	}
}

// ahead is the first of all, which wait on another node, that w has to wait for:
// that node has not answered w, and does not wait for w's.
func (b *builder) ahead(w *seen, all []*seen) (first *seen) {
	for _, x := range all {
		if !conflict(x, w) || slices.Contains(x.Remote, w.node) && !x.Since.Before(w.Since) {
			continue
		}
		if first == nil || x.Since.Before(first.Since) {
			first = x
		}
	}
	return first
}

// turn adds the request of the same node in front of w, if there is one.
func (b *builder) turn(w *seen, add func(Blocker)) {
	var last *seen
	for _, x := range b.waiting[place{w.node, w.File, w.Class}] {
		if x != w && x.Since.Before(w.Since) && conflict(x, w) && (last == nil || last.Since.Before(x.Since)) {
			last = x
		}
	}
	if last != nil {
		add(b.blocker(Ahead, last))
	}
}

// files lists what is waited for.
func (b *builder) files(waits []*seen) {
	type key struct{ file, class string }
	all := map[key]*File{}
	for _, w := range waits {
		k := key{w.File, w.Class}
		f := all[k]
		if f == nil {
			f = &File{File: w.File, Path: w.Path, Class: w.Class, Since: w.Since}
			all[k] = f
		}
		f.Waiting++
	}
	for at, held := range b.held {
		if f := all[key{at.file, at.class}]; f != nil {
			f.Held += len(held)
		}
	}
	b.g.Files = make([]File, 0, len(all))
	for _, f := range all {
		b.g.Files = append(b.g.Files, *f)
	}
	slices.SortFunc(b.g.Files, func(x, y File) int {
		return cmp.Or(cmp.Compare(y.Waiting, x.Waiting), x.Since.Compare(y.Since), strings.Compare(x.File, y.File), strings.Compare(x.Class, y.Class))
	})
}

// conflict reports whether a and b exclude one another.
func conflict(a, b *seen) bool {
	if !a.Shared || !b.Shared {
		return true
	}
	end := func(r *seen) uint64 {
		if r.End < 0 {
			return math.MaxUint64
		}
		return uint64(r.End)
	}
	return (a.Mode == "W" || b.Mode == "W") && max(a.Start, b.Start) < min(end(a), end(b))
}
