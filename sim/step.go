package sim

import (
	"github.com/dmxfs/dmxfs/locks"
)

// happen does what an event says.
func (w *world) happen(e event) {
	n := &w.nodes[e.node]
	switch e.kind {
	case arrival:
		if w.cfg.Load == Poisson {
			w.scheduleArrival(e.node)
		}
		if n.state == idle {
			w.request(n)
		} else {
			n.backlog++
		}
	case deliver:
		w.moving--
		w.do(n, func(out *locks.Turn) {
			if err := n.machine.Receive(w.nodes[e.from].id, e.msg, out); err != nil {
				w.fail("%s does not take %v from %s: %w", n.id, e.msg, w.nodes[e.from].id, err)
			}
		})
	case exit:
		w.moving--
		w.leave(e.node)
	case expire:
		if n.state == idle && n.uses == e.use {
			w.do(n, n.machine.Expire)
		}
	}
}

// request is the program of n asking for the CS.
func (w *world) request(n *node) {
	n.ticket++
	n.mode = locks.Write
	if w.cfg.Reads > 0 && n.modes.Float64() < w.cfg.Reads {
		n.mode = locks.Read
	}
	n.state, n.issued = waits, w.now
	w.waiting++
	w.do(n, func(out *locks.Turn) {
		n.machine.Acquire(locks.Ticket{ID: n.ticket, Owner: 1, Mode: n.mode, Range: locks.Whole}, out)
	})
}

// do is one turn of n's machine and what it brings.
func (w *world) do(n *node, f func(out *locks.Turn)) {
	w.turn.Reset(true)
	f(&w.turn)
	if w.cfg.Paranoid {
		if m, ok := n.machine.(interface{ Check() error }); ok {
			if err := m.Check(); err != nil {
				w.fail("%s: %w", n.id, err)
			}
		}
	}
	for _, e := range w.turn.Send {
		w.send(n, e)
	}
	for _, o := range w.turn.Done {
		w.enter(n, o)
	}
}

func (w *world) send(n *node, e locks.Envelope) {
	from, to := n.index, nodeIndex(e.To)
	if to < 0 || to >= len(w.nodes) || to == from {
		w.fail("%s sends to %s, which is not another member", n.id, e.To)
		return
	}
	msg := e.Msg
	if w.cfg.Bytes || w.cfg.Paranoid {
		w.buf = msg.Append(w.buf[:0])
		if w.cfg.Paranoid && w.cfg.Algorithm.Decode != nil {
			var err error
			if msg, err = w.cfg.Algorithm.Decode(w.buf); err != nil {
				w.fail("%s sends %v, which cannot be read: %w", n.id, e.Msg, err)
				return
			}
		}
	}
	w.obs.sent(len(w.buf))
	l := &w.links[from*len(w.nodes)+to]
	at, tie := w.now+w.around(w.delay), w.tie()
	switch { // behind the message before it
	case at < l.at:
		at, tie = l.at, l.tie
	case at == l.at:
		tie = max(tie, l.tie)
	}
	*l = link{at, tie}
	w.schedule(at-w.now, tie, event{kind: deliver, node: to, from: from, msg: msg})
}

// enter is the outcome of a request: the program of n is in the CS.
func (w *world) enter(n *node, o locks.Outcome) {
	if n.state != waits || o.Ticket != n.ticket || !o.Granted {
		w.fail("%s: outcome %v, and no such ticket waits", n.id, o)
		return
	}
	w.waiting--
	n.state = inCS
	n.uses++
	if err := w.obs.enter(w, n, o.Token); err != nil {
		w.fail("%w", err)
	}
	w.schedule(w.around(w.cs), w.tie(), event{kind: exit, node: n.index})
}

// leave ends a CS, and begins the node's next request if it has one.
func (w *world) leave(i int) {
	n := &w.nodes[i]
	n.state = idle
	w.obs.leave(w, i)
	w.do(n, func(out *locks.Turn) { n.machine.Replace([]locks.TicketID{n.ticket}, nil, out) })
	switch {
	case w.keep == 0:
		w.do(n, n.machine.Expire)
	case w.keep < endOfTime && n.backlog == 0:
		w.schedule(w.keep, w.tie(), event{kind: expire, node: i, use: n.uses})
	}
	switch {
	case w.cfg.Load == Closed:
		w.scheduleArrival(i)
	case n.backlog > 0:
		n.backlog--
		w.request(n)
	}
}
