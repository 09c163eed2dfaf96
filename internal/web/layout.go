package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
)

// layout places the nodes: in columns, each to the right of what leads to it but
// for edges that close a cycle, and near what they are joined to.
func (s *sketch) layout() {
	var order []*node // each before what it leads to
	for _, n := range s.d.Nodes {
		s.visit(n, &order)
	}
	slices.Reverse(order)
	columns := 0
	for _, n := range order {
		for _, e := range n.out {
			if !e.back {
				e.To.layer = max(e.To.layer, n.layer+1)
			}
		}
		columns = max(columns, n.layer+1)
	}
	layers := make([][]*node, columns)
	for _, n := range s.d.Nodes {
		layers[n.layer] = append(layers[n.layer], n)
	}
	s.arrange(layers)
	tallest := 0
	for _, l := range layers {
		tallest = max(tallest, len(l))
	}
	s.d.Width = max(columns, 1)*columnWidth - (columnWidth - nodeWidth) + 2*margin
	s.d.Height = tallest*rowHeight + 2*margin
	for i, l := range layers {
		top := margin + (tallest-len(l))*rowHeight/2
		for j, n := range l {
			n.X, n.Y, n.W, n.H = margin+i*columnWidth, top+j*rowHeight, nodeWidth, nodeHeight
			n.TextX, n.HeadY, n.SubY = n.X+12, n.Y+19, n.Y+36
		}
	}
	deepest := s.d.Height
	for _, e := range s.d.Edges {
		e.trace(s.d.Height, &deepest)
	}
	s.d.Height = deepest
}

// visit appends n behind all that it leads to, and finds the edges that lead
// back. A chain is as deep as there are processes in it, of which few are drawn.
func (s *sketch) visit(n *node, order *[]*node) {
	if n.placed {
		return
	}
	n.placed, n.onStack = true, true
	for _, e := range n.out {
		if e.To.onStack {
			e.back = true
			continue
		}
		s.visit(e.To, order)
	}
	n.onStack = false
	*order = append(*order, n)
}

// arrange orders each column by where the neighbours of its nodes are.
func (s *sketch) arrange(layers [][]*node) {
	near := map[*node][]*node{}
	for _, e := range s.d.Edges {
		near[e.To] = append(near[e.To], e.From)
		near[e.From] = append(near[e.From], e.To)
	}
	number := func(l []*node) {
		for i, n := range l {
			n.place = float64(i) - float64(len(l))/2
		}
	}
	for _, l := range layers {
		number(l)
	}
	for range 4 {
		for _, l := range layers {
			for _, n := range l {
				if len(near[n]) == 0 {
					continue
				}
				sum := 0.0
				for _, m := range near[n] {
					sum += m.place
				}
				n.place = sum / float64(len(near[n]))
			}
			slices.SortStableFunc(l, func(a, b *node) int { return cmp.Compare(a.place, b.place) })
			number(l)
		}
	}
}

// trace draws an edge. One that leads back goes below everything.
func (e *edge) trace(height int, deepest *int) {
	x1, y1 := e.From.X+e.From.W, e.From.Y+e.From.H/2
	x2, y2 := e.To.X-7, e.To.Y+e.To.H/2
	if !e.back {
		half := (x2 - x1) / 2
		e.Path = fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x1, y1, x1+half, y1, x2-half, y2, x2, y2)
		e.LabelX, e.LabelY = (x1+x2)/2, (y1+y2)/2-6
		return
	}
	low := height + 12
	*deepest = max(*deepest, low+margin+8)
	e.Path = fmt.Sprintf("M%d %d C%d %d %d %d %d %d L%d %d C%d %d %d %d %d %d", x1, y1, x1+70, y1, x1+70, low, x1, low,
		e.To.X, low, e.To.X-36, low, e.To.X-36, y2, x2, y2)
	e.LabelX, e.LabelY = (x1+e.To.X)/2, low-6
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func queryEscape(s string) string { return url.QueryEscape(s) }
