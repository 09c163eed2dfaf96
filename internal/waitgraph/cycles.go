package waitgraph

import (
	"cmp"
	"slices"
)

// markCycles finds the processes that wait for one another: the strongly connected
// components with an edge in them, by Tarjan (1972), with a stack of its own, since
// chains can be as long as there are processes.
func (g *Graph) markCycles() {
	index := make(map[string]int, len(g.Processes))
	for i, p := range g.Processes {
		index[p.ID] = i
	}
	next := make([][]int, len(g.Processes))
	for _, w := range g.Waits {
		from := index[w.Process]
		for _, b := range w.For {
			if b.Process != "" {
				next[from] = append(next[from], index[b.Process])
			}
		}
	}
	for _, set := range components(next) {
		if len(set) == 1 && !slices.Contains(next[set[0]], set[0]) {
			continue
		}
		slices.Sort(set)
		ids := make([]string, len(set))
		for i, p := range set {
			g.Processes[p].InCycle, ids[i] = true, g.Processes[p].ID
		}
		g.Cycles = append(g.Cycles, ids)
	}
	slices.SortFunc(g.Cycles, func(a, b []string) int { return cmp.Compare(index[a[0]], index[b[0]]) })
	in := map[string]int{}
	for i, c := range g.Cycles {
		for _, id := range c {
			in[id] = i + 1
		}
	}
	for i := range g.Waits {
		w := &g.Waits[i]
		w.InCycle = in[w.Process] > 0 && slices.ContainsFunc(w.For, func(b Blocker) bool { return in[b.Process] == in[w.Process] })
	}
}

// components are the strongly connected components of a graph, given by the
// successors of each vertex.
func components(next [][]int) (out [][]int) {
	const unseen = -1
	type frame struct{ at, edge int }
	number, low := make([]int, len(next)), make([]int, len(next))
	on := make([]bool, len(next))
	for i := range number {
		number[i] = unseen
	}
	count := 0
	var stack []int
	for root := range next {
		if number[root] != unseen {
			continue
		}
		calls := []frame{{root, 0}}
		for len(calls) > 0 {
			f := &calls[len(calls)-1]
			v := f.at
			if f.edge == 0 && number[v] == unseen {
				number[v], low[v] = count, count
				count++
				stack, on[v] = append(stack, v), true
			}
			if f.edge < len(next[v]) {
				w := next[v][f.edge]
				f.edge++
				if number[w] == unseen {
					calls = append(calls, frame{w, 0})
				} else if on[w] {
					low[v] = min(low[v], number[w])
				}
				continue
			}
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				up := calls[len(calls)-1].at
				low[up] = min(low[up], low[v])
			}
			if low[v] == number[v] {
				i := len(stack) - 1
				for stack[i] != v {
					i--
				}
				set := slices.Clone(stack[i:])
				for _, w := range set {
					on[w] = false
				}
				stack = stack[:i]
				out = append(out, set)
			}
		}
	}
	return out
}
