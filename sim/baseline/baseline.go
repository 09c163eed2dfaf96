package baseline

import (
	"cmp"
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// Machine is the part of [locks.Machine] that a world without failures needs.
type Machine interface {
	Acquire(t locks.Ticket, out *locks.Turn)
	Replace(old []locks.TicketID, parts []locks.Part, out *locks.Turn)
	// Expire does nothing: what a baseline keeps, it keeps always.
	Expire(out *locks.Turn)
	Receive(from locks.NodeID, m locks.Message, out *locks.Turn) error
}

// Algorithm makes machines.
type Algorithm struct {
	Name string
	// Shared: tickets of mode Read can be held together. Without it every
	// ticket excludes all others. Ranges mean nothing here.
	Shared bool
	New    func(*locks.View) Machine
}

// group is who takes part. Nodes are numbered in the order of the view.
type group struct {
	members []locks.NodeID
	self    int
	index   map[locks.NodeID]int
}

func newGroup(v *locks.View) group {
	g := group{members: v.Members, self: v.Index(v.Self), index: make(map[locks.NodeID]int, len(v.Members))}
	for i, id := range v.Members {
		g.index[id] = i
	}
	return g
}

func (g *group) n() int { return len(g.members) }

// peer is the number of a sender, which is another member.
func (g *group) peer(id locks.NodeID) (int, error) {
	i, ok := g.index[id]
	if !ok || i == g.self {
		return 0, fmt.Errorf("message from %s, which is no peer", id)
	}
	return i, nil
}

func (g *group) send(to int, m locks.Message, out *locks.Turn) {
	out.Send = append(out.Send, locks.Envelope{To: g.members[to], Msg: m})
}

// sendAll sends m to all others.
func (g *group) sendAll(m locks.Message, out *locks.Turn) {
	for k := range g.members {
		if k != g.self {
			g.send(k, m, out)
		}
	}
}

func grant(id locks.TicketID, out *locks.Turn) {
	out.Done = append(out.Done, locks.Outcome{Ticket: id, Granted: true})
}

// mustRelease panics unless the caller gives up what is held, whole: that is
// all that the baselines know.
func mustRelease(old []locks.TicketID, parts []locks.Part, held bool, ticket locks.TicketID) {
	if len(old) != 1 || len(parts) != 0 || !held || old[0] != ticket {
		panic(fmt.Sprintf("baseline: Replace %v by %v while ticket %d is held: %v", old, parts, ticket, held))
	}
}

// stamp orders requests: smaller first. Zero is none; the clocks begin at 1.
type stamp struct {
	sn uint64
	id int
	r  uint64 // Liu: tells the requests of one node and SN apart
}

func (s stamp) compare(o stamp) int {
	return cmp.Or(cmp.Compare(s.sn, o.sn), cmp.Compare(s.id, o.id), cmp.Compare(s.r, o.r))
}

func (s stamp) before(o stamp) bool { return s.compare(o) < 0 }

func (s stamp) none() bool { return s.sn == 0 }

// over reports whether s is a request that is over when floor is.
func (s stamp) over(floor stamp) bool { return !floor.before(s) }

func later(a, b stamp) stamp {
	if a.before(b) {
		return b
	}
	return a
}

func (s stamp) String() string {
	if s.none() {
		return "-"
	}
	return fmt.Sprintf("%d.%d.%d", s.sn, s.id, s.r)
}

func (s stamp) append(b []byte) []byte {
	return wire.Uint(wire.Uint(wire.Uint(b, s.sn), uint(s.id)), s.r)
}
