package member

import "fmt"

// liveUntil is when this node's tenure ends; 0 is at once. Others drop this
// node only when they know that this time is over on its clock.
func (m *Machine) liveUntil() int64 {
	if m.st != StateMember || m.next != nil || m.holding() {
		return 0
	}
	until := m.lookAt + m.p.LookTenure
	if m.bug.noLookTenure {
		until = never
		if len(m.order) == 0 {
			until = maxTime
		}
	}
	for i, y := range m.order {
		if t := y.ten + m.p.Tenure; i == 0 && m.bug.noLookTenure || t < until {
			until = t
		}
	}
	return max(until, 0)
}

// holding: this view was built above one that nobody could read, whose members
// may be alive until their looks are too old. See View.Unsure.
func (m *Machine) holding() bool {
	return m.v.Unsure && !m.bug.noHolding && m.known < m.p.LookTenure+m.p.lookMargin()+m.unsureCache()
}

// beatAll sends the heartbeats when they are due, or now.
func (m *Machine) beatAll(now bool) {
	if m.next != nil || !now && m.now < m.beatAt-m.p.Tick/2 {
		return
	}
	m.beatAt = max(m.beatAt, m.now-m.p.Heartbeat) + m.p.Heartbeat
	if now {
		m.beatAt = m.now + m.p.Heartbeat
	}
	for _, y := range m.order {
		y.asked = 0
		m.beat(y)
		if !y.has && m.now-y.syncAt >= m.p.Heartbeat && !m.bug.syncOnce {
			m.sendSync(y)
		}
	}
}

func (m *Machine) beat(y *peer) {
	hb := HB{T: m.now, Heard: y.lastT, Prom: y.prom, GotSync: y.got}
	hb.Ask = m.now-y.ten > 2*m.p.Heartbeat+2*m.p.Tick
	if y.lastT > 0 {
		hb.Delay = m.now - y.lastTAt
	}
	y.said = said{y.lastT, y.prom, y.got}
	m.send(y.Node, hb)
}

func (m *Machine) sendSync(y *peer) {
	if y.Peer == m.me.Peer {
		return
	}
	y.syncAt = m.now
	m.out.SendSync = append(m.out.SendSync, y.Node)
}

// onHB handles a heartbeat of y at this epoch.
func (m *Machine) onHB(y *peer, hb HB) {
	if hb.Heard > m.now || hb.Prom > m.now {
		return // it speaks of heartbeats that were not sent yet
	}
	first := y.lastT == 0
	y.heard = true
	y.lastAt = m.now
	if hb.T > y.lastT {
		y.lastT, y.lastTAt = hb.T, m.now
	}
	if hb.Heard > 0 && hb.Heard > y.two {
		y.two = hb.Heard
		y.rtt = max(m.now-hb.Heard-hb.Delay, 0)
	}
	if hb.Prom > 0 && hb.Prom > y.ten {
		y.ten = hb.Prom
		if m.bug.tenureFromReceipt {
			y.ten = m.now
		}
	}
	y.has = y.has || hb.GotSync
	if y.lastT > y.prom && m.mayPromise(y) {
		y.prom = y.lastT
		y.silent, y.promAt = 0, m.now
	}
	if first && (!m.bug.syncOnce || y.syncAt == never) {
		m.sendSync(y)
	}
	// An answer that says nothing new helps nobody, and two nodes that ask
	// each other must not make a storm: ten in a heartbeat are enough.
	if hb.Ask && y.asked < 10 && y.said != (said{y.lastT, y.prom, y.got}) {
		y.asked++
		m.beat(y)
	}
}

// mayPromise: a promise gives y tenure for L. It is given only to a peer that
// hears this node (two that do not hear each other must not keep each other
// from being dropped), and to nobody that a proposal of this node leaves out,
// from before the link is tried until its outcome is known.
func (m *Machine) mayPromise(y *peer) bool {
	if m.holding() {
		return false
	}
	if m.prop != nil && !m.prop.view.Has(y.Node) && !m.bug.promiseWhileProposing {
		return false
	}
	if m.bug.promiseOneWay {
		return !y.refuse && !m.fencing(y.Node)
	}
	return !y.refuse && !m.fencing(y.Node) && m.now-y.two <= m.p.Hears
}

// syncArrived: the state of a member is here.
func (m *Machine) syncArrived(in SyncArrived) {
	y := m.peers[in.From]
	if m.next != nil || in.Epoch != m.v.Epoch || y == nil {
		return
	}
	if !y.got {
		y.got = true
		m.out.TakeSync = true
		m.checkSynced()
	}
	m.beat(y) // tells it to stop repeating
}

// checkSynced tells the engine, once in an epoch, that it has all states.
func (m *Machine) checkSynced() {
	if m.synced || m.st != StateMember {
		return
	}
	for _, y := range m.order {
		if !y.got && !m.bug.grantWithoutSync {
			return
		}
	}
	m.synced = true
	m.out.Synced = m.v.Epoch
	m.frozen = false
}

// noteTenure reports that this node's tenure ended, or is back. The pause of a
// new view is not worth a line.
func (m *Machine) noteTenure(out *Output) {
	live := m.now < out.LiveUntil
	switch {
	case m.st != StateMember:
		m.suspended = false
	case live && m.suspended:
		m.suspended = false
		m.note(Resumed, Node{}, "", "locks are granted again")
	case !live && !m.suspended && m.next == nil && m.known > 2*m.p.Heartbeat:
		m.suspended = true
		m.note(Suspended, Node{}, "", "no lock can be granted: %s", m.whySuspended())
	}
}

// whySuspended names what tenure is missing.
func (m *Machine) whySuspended() string {
	if m.holding() {
		return "waiting until nobody can be alive in the view that could not be read"
	}
	for _, y := range m.order {
		if m.now >= y.ten+m.p.Tenure {
			if y.ten < 0 {
				return fmt.Sprintf("no promise from %s yet", y.Name())
			}
			return fmt.Sprintf("no promise from %s for %d ms", y.Name(), m.now-y.ten)
		}
	}
	if m.now >= m.lookAt+m.p.LookTenure {
		why := m.disk.trouble()
		switch {
		case why != "":
		case m.disk.missing != 0:
			why = fmt.Sprintf("view %d is missing from the shared storage: was .dmxfs removed, or another directory mounted there?", m.v.Epoch)
		default:
			why = "the storage does not answer"
		}
		return "no look at the views: " + why
	}
	return "nothing is missing"
}
