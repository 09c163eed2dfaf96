package member

// mail is what is said to other nodes.
type mail struct {
	*position
	twins *twins
	talk  map[Node]int64 // when a view or a HELLO went to a node at another epoch
}

// send sends to a node of another peer; there is no way to another incarnation
// of the own peer.
func (m *mail) send(to Node, msg Message) {
	if to.Peer == m.me.Peer || m.twins.offline() {
		return
	}
	m.out.Send = append(m.out.Send, Envelope{From: m.me, To: to, Epoch: m.view.Epoch, Msg: msg})
}

// sendSync sends the state of the engine.
func (m *mail) sendSync(to Node) { m.out.SendSync = append(m.out.SendSync, to) }

// sendView sends w itself, whose epoch may be above that of the own view still.
func (m *mail) sendView(to Node, w *View) {
	if to.Peer != m.me.Peer {
		m.out.Send = append(m.out.Send, Envelope{From: m.me, To: to, Epoch: w.Epoch, Msg: ViewMsg{w}})
	}
}

// announce sends w to the members of both views.
func (m *mail) announce(w, old, now *View) {
	for i := range now.Members {
		m.sendView(now.Members[i].Node, w)
	}
	for i := range old.Members {
		if !now.Has(old.Members[i].Node) {
			m.sendView(old.Members[i].Node, w)
		}
	}
}

// inform sends to a node that is at another epoch, at most once in a while:
// two that ask and answer each other must not make a storm.
func (m *mail) inform(n Node, every int64, msg Message) {
	if v, ok := msg.(ViewMsg); ok && v.View.Epoch == 0 {
		return
	}
	if last, ok := m.talk[n]; ok && m.now-last < every {
		return
	}
	if len(m.talk) >= 4*MaxMembers {
		clear(m.talk)
	}
	m.talk[n] = m.now
	m.send(n, msg)
}

// meet tells the transport where a peer may be reached.
func (m *mail) meet(peer string, addrs []string) {
	m.out.Meet = append(m.out.Meet, Contact{peer, addrs})
}

func (m *mail) meetAll(w *View) {
	for i := range w.Members {
		if y := &w.Members[i]; y.Peer != m.me.Peer {
			m.meet(y.Peer, y.Addrs)
		}
	}
}
