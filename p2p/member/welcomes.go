package member

import "strings"

// welcomes are those of the members for this node, which is outside.
type welcomes struct {
	*position
	mail  *mail
	terms *terms

	helloAt int64          // when the last HELLO went out
	since   int64          // when the first one at this base did
	wordAt  int64          // when a member of the view spoke last
	from    map[Node]int64 // when each of them welcomed this node
	ready   bool           // the last HELLO said that all do
	partly  int64          // since when some welcome and others do not
}

// rebase begins again at a new base.
func (w *welcomes) rebase() {
	w.helloAt, w.since = never, never
	w.wordAt, w.partly = never, never
	w.from, w.ready = map[Node]int64{}, false
}

// heard: a member of the view has spoken.
func (w *welcomes) heard() { w.wordAt = w.now }

// silent reports whether none has for long.
func (w *welcomes) silent() bool { return w.now-w.wordAt > w.p.Hears }

// ask asks all members for a welcome, and says when all have given one.
func (w *welcomes) ask() {
	ready := w.all()
	if ready == w.ready && w.now < w.helloAt+w.p.Heartbeat {
		return
	}
	if w.since == never {
		w.since = w.now
	}
	w.ready, w.helloAt = ready, w.now
	w.hello(ready)
}

// takeBack: this node does not want in any more.
func (w *welcomes) takeBack() { w.hello(false) }

func (w *welcomes) hello(ready bool) {
	for i := range w.view.Members {
		w.mail.send(w.view.Members[i].Node, w.terms.hello(ready))
	}
}

func (w *welcomes) take(from Node) {
	if w.view.Has(from) {
		w.from[from] = w.now
	}
}

// has reports whether a member has welcomed this node lately.
func (w *welcomes) has(n Node) bool {
	at, ok := w.from[n]
	return ok && w.now-at <= w.p.Hears
}

// count counts those that have.
func (w *welcomes) count() int {
	n := 0
	for i := range w.view.Members {
		if w.has(w.view.Members[i].Node) {
			n++
		}
	}
	return n
}

func (w *welcomes) all() bool {
	return w.count() == len(w.view.Members)
}

// partial are the members that have not welcomed this node, if others have and
// that has been so for long; and a text that says so.
func (w *welcomes) partial() (missing []Member, text string) {
	n := w.count()
	switch {
	case n == len(w.view.Members):
		w.partly = never
		return nil, ""
	case n > 0 && w.partly == never:
		w.partly = w.now
	}
	if w.partly == never || w.now-w.partly < w.p.Partial {
		return nil, ""
	}
	var names []string
	for _, y := range w.view.Members {
		if w.has(y.Node) {
			continue
		}
		missing = append(missing, y)
		name := y.Name() + " at " + strings.Join(y.Addrs, " ")
		if y.Peer == w.me.Peer {
			name = y.Name() + ", which has the identity of this node (a copied state directory?)"
		}
		names = append(names, name)
	}
	return missing, "some members can be reached, but not all: no welcome from " + strings.Join(names, "; ")
}
