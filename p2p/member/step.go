package member

import (
	"cmp"
	"errors"
	"fmt"
)

func (m *Machine) step(in Input) {
	switch in := in.(type) {
	case Start:
		m.start(in)
	case Tick:
		m.tick()
	case Received:
		m.received(in.Envelope)
	case SyncArrived:
		m.heartbeats.syncArrived(in)
	case Frozen:
		if m.engine.answered(in) && m.next != nil {
			m.install()
		}
	case Done:
		m.stored(in)
	case Fenced:
		m.fences.answered(in)
	case Dead:
		m.proofs.take(in)
	case Leave:
		m.leave()
	case Remove:
		m.remove(in)
	case Revoke:
		m.changes.revoke(in)
	case SetPolicy:
		m.changes.setPolicy(in)
	case SetAddrs:
		m.setAddrs(in.Addrs)
	default:
		panic(fmt.Sprintf("unknown input %T", in))
	}
	if !m.ended() {
		m.tryUnreadable()
	}
	switch m.state {
	case StateOut:
		m.joining.try()
	case StateLeaving:
		m.leaving.try()
	}
}

func (m *Machine) start(in Start) {
	m.memory.start(in.Saved)
	m.ticked()
	m.position.start()
	m.storage.lookSoon()
	m.joining.start()
	if h := m.cfg.Heir; h != nil {
		m.memory.linked(h.Epoch)
	}
	if m.cfg.SucceedsIn != nil {
		m.learn(m.cfg.SucceedsIn, false)
	}
}

func (m *Machine) tick() {
	m.wake()
	m.changes.expire()
	switch m.state {
	case StateOut:
		m.joining.tick()
	case StateMember:
		m.memory.served(m.since)
		if m.asking.ask != nil && (len(m.heartbeats.order) == 0 || m.heartbeats.heardAny()) && m.twins.present() == nil {
			m.asking.drop()
		}
		m.heartbeats.send(false)
		m.decide()
	case StateLeaving:
		m.heartbeats.send(false)
	}
}

// wake adds the time since the last tick to all counters of waking time.
func (m *Machine) wake() {
	if m.now <= m.lastTick {
		return
	}
	m.position.wake()
	m.heartbeats.wake()
	m.scans.wake()
	m.asking.wake()
	m.leaving.wake()
	m.ticked()
}

// received handles a message.
func (m *Machine) received(e Envelope) {
	if e.To != m.me {
		return // for another incarnation, or another peer
	}
	if m.state == StateOut && m.view.Has(e.From) {
		m.welcomes.heard()
	}
	if v, ok := e.Msg.(ViewMsg); ok {
		m.learn(v.View, false)
		return
	}
	if m.next != nil {
		return // between two epochs: all of it is sent again
	}
	switch c := cmp.Compare(e.Epoch, m.view.Epoch); {
	case c < 0:
		m.mail.inform(e.From, m.p.Heartbeat/2, ViewMsg{m.view})
	case c > 0:
		m.storage.lookSoon()
		m.mail.inform(e.From, m.p.Tick, m.terms.hello(false))
	}
	if e.Epoch != m.view.Epoch {
		return
	}
	switch msg := e.Msg.(type) {
	case HB:
		m.heartbeats.received(e.From, msg)
	case Hello:
		if m.state == StateMember && !m.view.Has(e.From) {
			m.sponsor.hello(msg)
		}
	case Welcome:
		if m.state == StateOut {
			m.welcomes.take(e.From)
		}
	case Refused:
		if m.state == StateOut && m.view.Has(e.From) {
			m.joining.refused(e.From, msg)
		}
	}
}

// leave begins to leave, as an admin or a signal wants it.
func (m *Machine) leave() {
	switch m.state {
	case StateOut:
		m.joining.leave()
	case StateMember:
		m.leaving.begin()
	case StateLeaving:
		m.leaving.forGood()
	}
}

// remove: who is refused has no tenure any more, and is dropped like one that is
// silent. Nothing is faster without a proof of death.
func (m *Machine) remove(in Remove) {
	if !m.changes.remove(in) {
		return
	}
	why := "removed by an admin"
	if in.Why != "" {
		why += ": " + in.Why
	}
	m.heartbeats.refuse(in.Node, why)
}

// stored takes the result of the operation on the storage.
func (m *Machine) stored(in Done) {
	switch op := m.storage.ended().(type) {
	case LookOp:
		m.troubles.tell(reading, "the views cannot be read", in.Err)
		if in.Err != nil {
			m.storage.lookLater()
			m.scans.failed()
			m.proposer.lookFailed()
			return
		}
		m.looked(op, in.Look)
	case LinkOp:
		trouble := in.Err
		if errors.Is(trouble, ErrExists) {
			trouble = nil
		}
		m.troubles.tell(linking, fmt.Sprintf("view %d cannot be linked", op.View.Epoch), trouble)
		m.proposer.linked(op, in.Err)
	case AskOp:
		m.troubles.tell(writing, "the ask of this node cannot be written", in.Err)
		m.asking.posted(op, in.Err)
	case AnswerOp:
		m.troubles.tell(writing, "an answer cannot be written", in.Err)
	case PruneOp, UnaskOp:
		m.troubles.tell(writing, "old files cannot be removed", in.Err)
	}
}

// looked takes what a look saw.
func (m *Machine) looked(op LookOp, l Look) {
	m.scans.saw(l)
	if w, mine := m.proposer.looked(l); w != nil {
		m.learn(w, mine)
	}
	if !m.ended() {
		m.scans.count(op, l)
	}
	if !m.ended() {
		m.answering.saw(l.Asks)
		m.answered(l.Answers)
	}
}

// answered: members answered the ask. They are alive, and this node hears
// none of them.
func (m *Machine) answered(answers []Answer) {
	mine := m.asking.mine(answers)
	if len(mine) == 0 || m.twins.heed(mine) {
		return
	}
	end := End{Code: EndUnreachable, Text: "members answer on the shared storage, but none of them can be reached over the network: " + answersText(mine), Answers: mine}
	switch {
	case m.state == StateMember && m.next == nil && m.proposer.open == nil && len(m.heartbeats.order) > 0 && !m.heartbeats.heardAny():
		// It has added itself because the answer came late. Better it goes
		// than it drops a cluster that is alive.
		if m.asking.ask.first {
			m.leaving.beginFor(&end)
		} else {
			m.leaving.beginBack()
		}
	case m.state == StateOut:
		m.joining.answered(end)
	}
}
