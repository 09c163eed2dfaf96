package member

// Status is what an admin sees of the membership, at one moment.
type Status struct {
	Self  Node
	State State
	View  *View
	// Live: this node has tenure, for Left more milliseconds. Granting: and
	// the state of all members.
	Live, Granting bool
	Left           int64
	// Why is what keeps a member from having tenure, or a node outside from
	// joining; empty if nothing does.
	Why string
	// Proposal is the view that this node tries to link, if any.
	Proposal *View
	// LookAge is how long ago, in milliseconds, the last look that counts
	// began; -1: none has. Disk is what is wrong with the storage.
	LookAge int64
	Disk    string
	// Wishes is how many changes that admins want are waiting.
	Wishes  int
	Peers   []PeerStatus
	Joiners []JoinerStatus
}

// PeerStatus is another member of the view. Times are in milliseconds; -1 is
// never, or not known.
type PeerStatus struct {
	Member
	LastHeard int64 // since its last heartbeat
	RTT       int64 // of heartbeats
	Silent    int64 // waking time since this node could promise it something
	Promised  int64 // how much longer its promise to this node holds; 0: not at all
	State     string
	// Welcomed is, while this node is outside, the time since it was welcomed.
	Welcomed int64
}

// JoinerStatus is a newcomer that is known here.
type JoinerStatus struct {
	Member
	Ready   bool // all members have welcomed it
	Refused Refusal
}

// Status is for `peers`; it is valid after Start.
func (m *Machine) Status() Status {
	s := Status{Self: m.me, State: m.state, View: m.view, LookAge: since(m.now, m.scans.at), Disk: m.troubles.String(), Wishes: len(m.changes.waiting)}
	until := m.lease.until()
	s.Live = m.now < until
	s.Left = max(until-m.now, 0)
	s.Granting = s.Live && m.engine.synced
	if m.proposer.open != nil {
		s.Proposal = m.proposer.open.view
	}
	switch {
	case m.state == StateMember && !s.Live && m.next == nil:
		s.Why = m.lease.missing()
	case m.state == StateMember && !s.Granting:
		s.Why = "waiting for what the other members hold"
	case m.state == StateOut:
		s.Why = m.whyOutside()
	}
	for i := range m.view.Members {
		x := m.view.Members[i]
		if x.Node == m.me {
			continue
		}
		p := PeerStatus{Member: x, LastHeard: -1, RTT: -1, Silent: -1, Welcomed: -1, State: "unknown"}
		if y := m.heartbeats.peers[x.Node]; y != nil {
			p.LastHeard, p.RTT, p.Silent = since(m.now, y.lastAt), y.rtt, y.silent.ms
			p.Promised = max(y.ten+m.p.Tenure-m.now, 0)
			p.State = m.peerState(y)
		}
		if at, ok := m.welcomes.from[x.Node]; ok && m.state == StateOut {
			p.Welcomed = m.now - at
		}
		s.Peers = append(s.Peers, p)
	}
	for _, n := range m.sponsor.nodes() {
		j := m.sponsor.joiners[n]
		s.Joiners = append(s.Joiners, JoinerStatus{j.member, j.ready != never, j.refused})
	}
	return s
}

func since(now, at int64) int64 {
	if at == never {
		return -1
	}
	return now - at
}

func (m *Machine) peerState(y *peer) string {
	switch {
	case m.fences.has(y.Node):
		return "being fenced"
	case y.refuse:
		return "being removed"
	case m.proposer.leavesOut(y.Node):
		return "being dropped"
	case y.silent.ms >= m.p.Hears && m.now-y.lastAt <= m.p.Hears:
		return "does not hear this node"
	case y.silent.ms >= m.p.Hears:
		return "silent"
	case !y.got || !y.has:
		return "synchronizing"
	}
	return "alive"
}

func (m *Machine) whyOutside() string {
	twin := m.twins.present()
	switch {
	case !m.scans.seen:
		return "waiting for a first look at the shared storage"
	case m.scans.bad != nil:
		return m.scans.bad.Error()
	case m.now < m.joining.at:
		return "pausing before it joins again"
	case m.proposer.open != nil:
		return "waiting for the shared storage to take its view"
	case m.twins.offline() && twin != nil:
		return twin.Name() + " has the identity of this node: waiting for its answer, or until the others have dropped it"
	case m.asking.ask != nil:
		return "no member can be reached: asking on the shared storage"
	case m.welcomes.count() == len(m.view.Members):
		return "all members welcome this node: waiting to be added"
	case m.welcomes.count() > 0:
		return "waiting for the welcome of the other members"
	}
	return "looking for the members"
}
