package member

import "maps"

// fences keep members from the storage before they are dropped.
type fences struct {
	*position
	all map[Node]*fence
}

// fence is how far a node is with being kept from the storage. While it is
// asked for, and for good once it is done, the node is promised nothing.
type fence struct {
	dead    bool // by syncfs, not by the fence command
	asked   bool
	done    bool
	retryAt int64
}

// stand reports whether all nodes are fenced, and has that done where it is
// not. A node is promised nothing from the moment that it is asked for.
func (f *fences) stand(nodes []Node, dead bool) bool {
	all := true
	for _, n := range nodes {
		x := f.all[n]
		if x == nil || x.dead != dead && !x.done && !x.asked {
			x = &fence{dead: dead, retryAt: f.now}
			f.all[n] = x
		}
		if !x.done {
			all = false
		}
		if !x.done && !x.asked && f.now >= x.retryAt {
			x.asked = true
			f.out.Fence = append(f.out.Fence, Fence{Node: n, Member: f.view.Members[f.view.Index(n)], Dead: dead})
		}
	}
	return all
}

func (f *fences) has(n Node) bool {
	x := f.all[n]
	return x != nil && (x.asked || x.done)
}

// answered notes what came of a fence. One that failed leaves the node in the
// view: what it may still write must not meet the next holder's.
func (f *fences) answered(in Fenced) {
	x := f.all[in.Node]
	if x == nil || !x.asked {
		return
	}
	x.asked = false
	if in.Err == nil {
		x.done = true
		return
	}
	x.retryAt = f.now + f.p.Tenure
	i := f.view.Index(in.Node)
	if i < 0 {
		return
	}
	f.note(Fencing, in.Node, f.view.Members[i].Host, "%s cannot be fenced, so its locks stay: %v", f.view.Members[i].Name(), in.Err)
}

// forget drops what is about nodes that are not in w.
func (f *fences) forget(w *View) {
	maps.DeleteFunc(f.all, func(n Node, _ *fence) bool { return !w.Has(n) })
}
