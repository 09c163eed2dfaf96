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
	s := Status{Self: m.me, State: m.st, View: m.v, LookAge: since(m.now, m.lookAt), Disk: m.disk.trouble(), Wishes: len(m.wishes)}
	until := m.liveUntil()
	s.Live = m.now < until
	s.Left = max(until-m.now, 0)
	s.Granting = s.Live && m.synced
	if m.prop != nil {
		s.Proposal = m.prop.view
	}
	switch {
	case m.st == StateMember && !s.Live && m.next == nil:
		s.Why = m.whySuspended()
	case m.st == StateMember && !s.Granting:
		s.Why = "waiting for what the other members hold"
	case m.st == StateOut:
		s.Why = m.whyOutside()
	}
	for i := range m.v.Members {
		x := m.v.Members[i]
		if x.Node == m.me {
			continue
		}
		p := PeerStatus{Member: x, LastHeard: -1, RTT: -1, Silent: -1, Welcomed: -1, State: "unknown"}
		if y := m.peers[x.Node]; y != nil {
			p.LastHeard, p.RTT, p.Silent = since(m.now, y.lastAt), y.rtt, y.silent
			p.Promised = max(y.ten+m.p.Tenure-m.now, 0)
			p.State = m.peerState(y)
		}
		if at, ok := m.join.welcome[x.Node]; ok && m.st == StateOut {
			p.Welcomed = m.now - at
		}
		s.Peers = append(s.Peers, p)
	}
	for _, n := range m.joinerNodes() {
		j := m.joiners[n]
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
	case m.fencing(y.Node):
		return "being fenced"
	case y.refuse:
		return "being removed"
	case m.prop != nil && !m.prop.view.Has(y.Node):
		return "being dropped"
	case y.silent >= m.p.Hears && m.now-y.lastAt <= m.p.Hears:
		return "does not hear this node"
	case y.silent >= m.p.Hears:
		return "silent"
	case !y.got || !y.has:
		return "synchronizing"
	}
	return "alive"
}

func (m *Machine) whyOutside() string {
	j := &m.join
	switch {
	case !m.disk.seen:
		return "waiting for a first look at the shared storage"
	case m.disk.bad != nil:
		return m.disk.bad.Error()
	case m.now < j.at:
		return "pausing before it joins again"
	case m.prop != nil:
		return "waiting for the shared storage to take its view"
	case m.offline() && m.twin() != nil:
		return m.twin().Name() + " has the identity of this node: waiting for its answer, or until the others have dropped it"
	case j.ask != nil:
		return "no member can be reached: asking on the shared storage"
	case m.welcomes() == len(m.v.Members):
		return "all members welcome this node: waiting to be added"
	case m.welcomes() > 0:
		return "waiting for the welcome of the other members"
	}
	return "looking for the members"
}
