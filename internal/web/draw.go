package web

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// drawing is the graph of who waits for whom, from left to right: who waits,
// for which file, who is in the way.
type drawing struct {
	Width, Height int
	Nodes         []*node
	Edges         []*edge
	Cycles        int
	Shown, Hidden int // waits
}

// node is a process, a file, or a member that is in the way as such.
type node struct {
	id              string
	Kind            string // process, file, member, more
	Head, Sub, Tip  string
	URL             string
	Cycle, Long     bool
	X, Y, W, H      int
	TextX           int
	HeadY, SubY     int
	layer           int
	place           float64 // in the layer
	onStack, placed bool
	out             []*edge
}

// edge goes from who waits to what for, or from a file to who is in the way.
type edge struct {
	From, To           *node
	Kind               string // waits, holds, ahead, silent, keeps
	Label              string
	Cycle, Long        bool
	Path               string
	LabelX, LabelY     int
	back               bool
	waiting            time.Duration
	Since              time.Time
	HasSince, Reversed bool
}

const (
	mostWaits   = 80 // drawn, beyond those in cycles
	mostPerFile = 6  // of one file; the others are one node
	nodeWidth   = 196
	nodeHeight  = 46
	columnWidth = 286
	rowHeight   = 66
	margin      = 36 // edges that lead back have room in it
)

// sketch is a drawing in the making.
type sketch struct {
	d     drawing
	nodes map[string]*node
	edges map[[3]string]*edge
	cycle map[string]int // of a process, from 1
}

func draw(g *waitgraph.Graph, long time.Duration) drawing {
	s := &sketch{nodes: map[string]*node{}, edges: map[[3]string]*edge{}, cycle: map[string]int{}}
	s.d.Cycles = len(g.Cycles)
	for i, c := range g.Cycles {
		for _, id := range c {
			s.cycle[id] = i + 1
		}
	}
	waits := slices.Clone(g.Waits)
	slices.SortStableFunc(waits, func(a, b waitgraph.Wait) int {
		return cmp.Compare(b2i(b.InCycle), b2i(a.InCycle)) // those in cycles first
	})
	perFile, hidden := map[string]int{}, map[string]int{}
	for i := range waits {
		w := &waits[i]
		file := w.Class + "\x00" + w.File
		if !w.InCycle && (s.d.Shown >= mostWaits || perFile[file] >= mostPerFile) {
			s.d.Hidden++
			hidden[file]++
			continue
		}
		perFile[file]++
		s.d.Shown++
		s.wait(g, w, file, long)
	}
	s.more(hidden)
	s.layout()
	return s.d
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wait adds a wait, its file, and who is in the way.
func (s *sketch) wait(g *waitgraph.Graph, w *waitgraph.Wait, file string, long time.Duration) {
	name := w.Path
	if name == "" {
		name = w.File
	}
	p := s.process(w.Process, w.Command, w.PID, w.Host)
	p.URL = lockURL(key{w.Node, w.File, w.Class, w.Request, w.PID, w.Start})
	f := s.node("f\x00"+file, "file", short(snapshot.Printable(name), 30), w.Class)
	f.Tip = snapshot.Printable(name)
	f.URL = "locks?" + "state=all&file=" + queryEscape(w.File)
	e := s.edge(p, f, "waits")
	e.waiting, e.Since, e.HasSince = g.At.Sub(w.Since), w.Since, true
	e.Label = w.Mode + " " + snapshot.Span(w.Start, w.End)
	e.Long = e.waiting >= long
	e.Cycle = w.InCycle
	p.Long = p.Long || e.Long
	for i := range w.For {
		b := &w.For[i]
		inCycle := w.InCycle && b.Process != "" && s.cycle[b.Process] == s.cycle[w.Process]
		if b.Kind == waitgraph.Ahead && !inCycle {
			continue // it is drawn as one that waits
		}
		var to *node
		if b.Process != "" {
			to = s.process(b.Process, b.Command, b.PID, b.Host)
		} else {
			sub := "keeps it still"
			if b.Kind == waitgraph.Silent {
				sub = "does not answer"
			}
			to = s.node("m\x00"+b.Node, "member", "host "+short(snapshot.Printable(b.Host), 22), sub)
			to.URL = "member?id=" + queryEscape(b.Node)
		}
		x := s.edge(f, to, string(b.Kind))
		x.Label = map[waitgraph.Kind]string{waitgraph.Holds: "held by", waitgraph.Ahead: "first in line", waitgraph.Silent: "not known", waitgraph.Keeps: "kept by"}[b.Kind]
		x.Cycle = x.Cycle || inCycle
	}
}

func (s *sketch) process(id, command string, pid int, host string) *node {
	n := s.node("p\x00"+id, "process", short(snapshot.Printable(command), 18)+fmt.Sprintf(" %d", pid), "on "+short(snapshot.Printable(host), 24))
	n.Cycle = s.cycle[id] != 0
	if n.URL == "" {
		n.URL = "locks?q=" + queryEscape(fmt.Sprintf("%d %s", pid, host))
	}
	return n
}

// more adds a node for the waits of each file that are not drawn one by one.
func (s *sketch) more(hidden map[string]int) {
	for _, file := range sorted(hidden) {
		f := s.nodes["f\x00"+file]
		if f == nil { // nothing of it is drawn
			continue
		}
		n := s.node("+\x00"+file, "more", fmt.Sprintf("%d more", hidden[file]), "wait for the same file")
		n.URL = f.URL
		s.edge(n, f, "waits")
	}
}

func (s *sketch) node(id, kind, head, sub string) *node {
	n := s.nodes[id]
	if n == nil {
		n = &node{id: id, Kind: kind, Head: head, Sub: sub, place: float64(len(s.d.Nodes))}
		s.nodes[id] = n
		s.d.Nodes = append(s.d.Nodes, n)
	}
	return n
}

func (s *sketch) edge(from, to *node, kind string) *edge {
	k := [3]string{from.id, to.id, kind}
	e := s.edges[k]
	if e == nil {
		e = &edge{From: from, To: to, Kind: kind}
		s.edges[k] = e
		s.d.Edges = append(s.d.Edges, e)
		from.out = append(from.out, e)
	}
	return e
}

// short is text with at most n characters.
func short(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:n/2]) + "…" + string(r[len(r)-(n-n/2-1):])
}
