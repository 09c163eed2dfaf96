package locktest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// central is the simplest algorithm that is right: the first member of the view
// is a server. It is here to test the harness, with what rw is not: exclusive,
// and safe when messages come late or twice. Each bug breaks one promise.
type bugs struct {
	grantsTwo, keepsGhosts, losesWaiters, oldTokens, noHandover, noStale bool
	deniesAll, deniesTries, grantsTwice, entersSuspended, speaksFrozen   bool
	forgetsHolder, neverIdle, echoes, miscodes, panics, random, refuses  bool
}

func central(b bugs) locks.Algorithm {
	return locks.Algorithm{
		Name:   "central",
		New:    func(c locks.Config) locks.Machine { return newServer(c, b) },
		Decode: decodeCall,
	}
}

type verb byte

const (
	ask verb = iota + 1
	tryAsk
	grant
	deny
	free
	echo
)

func (v verb) String() string {
	return [...]string{"", "ASK", "TRY", "GRANT", "DENY", "FREE", "ECHO"}[v]
}

type call struct {
	verb   verb
	ticket locks.TicketID
	owner  locks.OwnerID
	token  locks.Token
}

func (c call) Append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(c.verb)), uint64(c.ticket))
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.owner)), uint64(c.token))
}

func (c call) String() string {
	return fmt.Sprintf("%v %d o%d %v", c.verb, c.ticket, c.owner, c.token)
}

func decodeCall(b []byte) (locks.Message, error) {
	if len(b) == 0 || b[0] == 0 || verb(b[0]) > echo {
		return nil, fmt.Errorf("no verb")
	}
	c, rest := call{verb: verb(b[0])}, b[1:]
	var n [3]uint64
	for i := range n {
		v, size := binary.Uvarint(rest)
		if size <= 0 || size > 1 && rest[size-1] == 0 {
			return nil, fmt.Errorf("no number")
		}
		n[i], rest = v, rest[size:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("too long")
	}
	c.ticket, c.owner, c.token = locks.TicketID(n[0]), locks.OwnerID(n[1]), locks.Token(n[2])
	return c, nil
}

type client struct {
	node  locks.NodeID
	owner locks.OwnerID
	id    locks.TicketID
}

type server struct {
	bugs
	view    *locks.View
	token   locks.Token
	high    uint64
	tickets map[locks.TicketID]*local
	frozen  bool
	// Of the server: who is in, and who waits.
	in, queue []client
	// ready were granted while the node could not enter.
	ready []call
}

type local struct {
	locks.Ticket
	held  bool
	roots []locks.TicketID // as what it was granted
}

func newServer(c locks.Config, b bugs) *server {
	m := &server{bugs: b, tickets: make(map[locks.TicketID]*local), view: c.View}
	m.token = max(c.Token, locks.TokenFloor(c.View.Epoch))
	return m
}

func (m *server) server() locks.NodeID { return m.view.Members[0] }

func (m *server) tell(to locks.NodeID, c call, out *locks.Turn) {
	if m.frozen && !m.speaksFrozen {
		return
	}
	if to == m.view.Self {
		m.hear(to, c, out)
		return
	}
	if (c.verb == free || c.verb == grant) && !m.noHandover { // the server writes, too
		out.Handover = true
	}
	out.Send = append(out.Send, locks.Envelope{To: to, Msg: c})
	if m.miscodes {
		out.Send[len(out.Send)-1].Msg = miscoded{c}
	}
}

type miscoded struct{ call }

func (c miscoded) Append(b []byte) []byte { return append(c.call.Append(b), 0) }

func (m *server) Acquire(t locks.Ticket, out *locks.Turn) {
	if m.tickets[t.ID] != nil {
		panic("twice")
	}
	if t.Stamp.IsZero() {
		m.high++
		t.Stamp = locks.Stamp{SN: m.high, Site: m.view.Self, N: uint64(t.ID)}
	}
	m.tickets[t.ID] = &local{Ticket: t}
	m.ask(t, out)
}

func (m *server) ask(t locks.Ticket, out *locks.Turn) {
	v := ask
	if t.Try {
		v = tryAsk
	}
	m.tell(m.server(), call{verb: v, ticket: t.ID, owner: t.Owner}, out)
}

func (m *server) Cancel(id locks.TicketID, out *locks.Turn) {
	m.must(id, false)
	delete(m.tickets, id)
	m.ready = slices.DeleteFunc(m.ready, func(c call) bool { return c.ticket == id })
	m.tell(m.server(), call{verb: free, ticket: id, token: m.token}, out)
}

func (m *server) must(id locks.TicketID, held bool) *local {
	t := m.tickets[id]
	if t == nil || t.held != held {
		panic("no such ticket")
	}
	return t
}

// Replace keeps at the server what was granted, until no part of it is left.
func (m *server) Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn) {
	var owner locks.OwnerID
	var roots []locks.TicketID
	for _, id := range old {
		t := m.must(id, true)
		owner, roots = t.Owner, append(roots, t.roots...)
		delete(m.tickets, id)
	}
	for _, p := range parts {
		t := locks.Ticket{ID: p.ID, Owner: owner, Mode: p.Mode, Range: p.Range}
		m.tickets[p.ID] = &local{Ticket: t, held: true, roots: roots}
	}
	m.release(roots, out)
}

func (m *server) release(roots []locks.TicketID, out *locks.Turn) {
	for _, id := range roots {
		if !m.uses(id) {
			m.tell(m.server(), call{verb: free, ticket: id, token: m.token}, out)
		}
	}
}

// uses reports whether a held ticket is part of what was granted as id.
func (m *server) uses(id locks.TicketID) bool {
	for _, t := range m.tickets {
		if slices.Contains(t.roots, id) {
			return true
		}
	}
	return false
}

func (m *server) Overtake(id locks.TicketID, _ *locks.Turn) { m.must(id, false) }
func (m *server) Expire(*locks.Turn)                        {}

func (m *server) Receive(from locks.NodeID, msg locks.Message, out *locks.Turn) error {
	if m.panics && msg.(call).verb == free {
		panic("on purpose")
	}
	if m.refuses && msg.(call).verb == free {
		return fmt.Errorf("not wanted")
	}
	if from == m.view.Self {
		return fmt.Errorf("from itself")
	}
	m.hear(from, msg.(call), out)
	return nil
}

func (m *server) hear(from locks.NodeID, c call, out *locks.Turn) {
	who := client{from, c.owner, c.ticket}
	switch c.verb {
	case ask, tryAsk:
		if slices.Contains(m.in, who) || slices.Contains(m.queue, who) {
			return
		}
		if c.verb == tryAsk && m.deniesTries {
			m.tell(from, call{verb: deny, ticket: c.ticket}, out)
			return
		}
		m.queue = append(m.queue, who)
		m.serve(out)
		if i := slices.Index(m.queue, who); i >= 0 && c.verb == tryAsk || m.deniesAll && i >= 0 {
			m.queue = slices.Delete(m.queue, i, i+1)
			m.tell(from, call{verb: deny, ticket: c.ticket}, out)
		}
	case free:
		if !m.oldTokens {
			m.token = max(m.token, c.token)
		}
		same := func(x client) bool { return x.node == from && x.id == c.ticket }
		m.in = slices.DeleteFunc(m.in, same)
		m.queue = slices.DeleteFunc(m.queue, same)
		m.serve(out)
	case grant:
		m.granted(c, out)
	case deny:
		if t := m.tickets[c.ticket]; t != nil && !t.held {
			delete(m.tickets, c.ticket)
			out.Done = append(out.Done, locks.Outcome{Ticket: c.ticket})
		}
	case echo:
		m.tell(from, c, out)
	}
}

// serve lets in whoever is first, and all of that owner.
func (m *server) serve(out *locks.Turn) {
	for i := 0; i < len(m.queue); i++ {
		who := m.queue[i]
		if len(m.in) > 0 && (m.in[0].node != who.node || m.in[0].owner != who.owner) && !m.grantsTwo {
			continue
		}
		m.queue = slices.Delete(m.queue, i, i+1)
		i--
		m.in = append(m.in, who)
		m.token++
		if m.random {
			for k := range map[locks.Token]bool{1: true, 2: true, 3: true, 4: true} {
				m.token += k
				break
			}
		}
		if m.oldTokens {
			m.token = locks.TokenFloor(m.view.Epoch) + 1
		}
		if !m.losesWaiters || len(m.in) < 2 {
			m.tell(who.node, call{verb: grant, ticket: who.id, token: m.token}, out)
		}
		if m.echoes && who.node != m.view.Self {
			m.tell(who.node, call{verb: echo}, out)
		}
	}
}

func (m *server) granted(c call, out *locks.Turn) {
	t := m.tickets[c.ticket]
	switch {
	case m.uses(c.ticket):
	case t == nil || t.held:
		if !m.keepsGhosts {
			m.tell(m.server(), call{verb: free, ticket: c.ticket, token: m.token}, out)
		}
	case !out.MayEnter && !m.entersSuspended:
		m.ready = append(m.ready, c)
	default:
		t.held, t.roots = true, []locks.TicketID{c.ticket}
		m.token = max(m.token+1, c.token)
		if m.oldTokens {
			m.token = c.token
		}
		out.Stale = !m.noStale
		o := locks.Outcome{Ticket: c.ticket, Granted: true, Token: m.token}
		out.Done = append(out.Done, o)
		if m.grantsTwice {
			out.Done = append(out.Done, o)
		}
	}
}

func (m *server) Resume(out *locks.Turn) {
	ready := m.ready
	m.ready = nil
	for _, c := range ready {
		m.granted(c, out)
	}
}

// State is what was granted and is held here.
func (m *server) State() []byte {
	m.frozen = true
	var b []byte
	for _, id := range slices.Sorted(maps.Keys(m.tickets)) {
		t := m.tickets[id]
		for _, r := range t.roots {
			if !m.forgetsHolder {
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r)), uint64(t.Owner))
			}
		}
	}
	return b
}

func (m *server) Restore(v *locks.View, states map[locks.NodeID][]byte, out *locks.Turn) error {
	m.view, m.in, m.queue, m.ready, m.frozen = v, nil, nil, nil, false
	m.token = max(m.token, locks.TokenFloor(v.Epoch))
	var mine []locks.TicketID
	for _, n := range v.Members {
		for b := states[n]; len(b) > 0; {
			id, i := binary.Uvarint(b)
			owner, j := binary.Uvarint(b[i:])
			b = b[i+j:]
			who := client{n, locks.OwnerID(owner), locks.TicketID(id)}
			if v.Self == m.server() && !slices.Contains(m.in, who) {
				m.in = append(m.in, who)
			}
			if n == v.Self {
				mine = append(mine, who.id)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.tickets)) {
		if t := m.tickets[id]; t != nil && !t.held {
			m.ask(t.Ticket, out)
		}
	}
	m.release(mine, out) // what was released since State
	return nil
}

func (m *server) Blockers(id locks.TicketID, most int) (local []locks.TicketID, remote []locks.NodeID) {
	w := m.must(id, false)
	for _, x := range slices.Sorted(maps.Keys(m.tickets)) {
		if t := m.tickets[x]; t.held && t.Owner != w.Owner && len(local) < most {
			local = append(local, x)
		}
	}
	return local, nil
}

func (m *server) Suspects(locks.Mode, locks.Range) []locks.NodeID {
	return slices.DeleteFunc(slices.Clone(m.view.Members), func(n locks.NodeID) bool { return n == m.view.Self })
}

func (m *server) Stamp(id locks.TicketID) locks.Stamp { return m.must(id, false).Stamp }

// Wanted is known to the server only.
func (m *server) Wanted() locks.Mode {
	if len(m.queue) == 0 {
		return 0
	}
	for _, t := range m.tickets {
		if t.held {
			return locks.Write
		}
	}
	return 0
}

func (m *server) Permitted(uint64, int) (locks.Ranges, uint64) { return nil, locks.MaxOffset }
func (m *server) Token() locks.Token                           { return m.token }
func (m *server) Check() error                                 { return nil }

func (m *server) Idle() bool {
	return len(m.tickets)+len(m.in)+len(m.queue) == 0 && !m.frozen && !m.neverIdle
}

func (m *server) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s token=%v high=%d frozen=%v in=%v queue=%v ready=%v", m.view.Self, m.token, m.high, m.frozen, m.in, m.queue, m.ready)
	for _, id := range slices.Sorted(maps.Keys(m.tickets)) {
		fmt.Fprintf(&b, "; %v held=%v", m.tickets[id].Ticket, m.tickets[id].held)
	}
	return b.String()
}
