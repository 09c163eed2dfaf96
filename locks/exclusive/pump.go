package exclusive

import (
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// pump does all that can be done, one thing after the other.
func (m *machine) pump() {
	if m.frozen {
		return
	}
	m.barred = false
	for m.deny() || m.grant() || m.give() || m.ask() {
	}
}

// deny ends the tries that met a held ticket, here or elsewhere.
func (m *machine) deny() bool {
	i := slices.IndexFunc(m.tries(), m.denied)
	if i < 0 {
		return false
	}
	t := m.waiting[i]
	m.forget(t)
	m.site.out.Done = append(m.site.out.Done, locks.Outcome{Ticket: t.ID})
	return true
}

func (m *machine) denied(t *ticket) bool {
	return t.Try && (m.held > 0 && t.Owner != m.owner || t.ask > 0 && t.ask <= m.site.deny)
}

// grant lets a ticket in. While one is held it is one of the same owner, which
// conflicts with nothing, so it waits for nobody.
func (m *machine) grant() bool {
	t := m.next()
	if t == nil {
		return false
	}
	if !m.site.out.MayEnter {
		m.barred = true
		return false
	}
	m.leave(t)
	m.hold(t)
	m.owner, m.served, m.open = t.Owner, true, false
	token := locks.Token(m.site.Tick())
	m.site.out.Done = append(m.site.out.Done, locks.Outcome{Ticket: t.ID, Granted: true, Token: token})
	if !m.site.used {
		m.site.used = true
		m.core.Used()
	}
	return true
}

// next is the ticket that can be let in now, or nil.
func (m *machine) next() *ticket {
	if !m.core.Has() {
		return nil
	}
	if m.core.Wanted() && m.last == 0 {
		m.last = m.arrived
	}
	if m.held > 0 && m.waits[m.owner] == 0 {
		return nil
	}
	for _, t := range m.waiting {
		if m.held > 0 && t.Owner == m.owner || m.held == 0 && m.serves(t) {
			return t
		}
	}
	return nil
}

// serves reports whether t has its turn before the lock is given away: those
// that waited when a member was first heard of, so that neither the programs of
// one node nor the other members wait for ever.
func (m *machine) serves(t *ticket) bool {
	if m.opt.Eager && m.served {
		return false
	}
	return m.last == 0 || t.arrival <= m.last
}

// give gives the lock to a member, when no ticket here has a turn before it.
func (m *machine) give() bool {
	if m.held > 0 || m.barred || !m.core.Has() || !m.core.Wanted() && !(m.opt.Eager && (m.served || len(m.waiting) == 0)) {
		return false
	}
	m.core.Release()
	m.last, m.served = 0, false
	return true
}

// ask makes the core's request what the waiting tickets need.
func (m *machine) ask() bool {
	switch has := m.core.Has(); {
	case has:
		m.open = false
		return false
	case m.open && len(m.waiting) == 0:
		m.core.Withdraw()
		m.open = false
		return true
	case len(m.waiting) == 0:
		return false
	case !m.open:
		m.request(m.site.Tick())
		return true
	case m.number():
		m.core.Ask(m.asks)
		return true
	}
	return false
}

// request opens a request with the stamp sn.
func (m *machine) request(sn uint64) {
	ask := uint64(0)
	if m.number() {
		ask = m.asks
	}
	m.open, m.last, m.served = true, 0, false
	m.core.Request(sn, ask)
}

// number gives the tries that nobody has been asked about a number, and
// reports whether there are any.
func (m *machine) number() bool {
	any := false
	for _, t := range m.tries() {
		if t.ask == 0 {
			if !any {
				m.asks++
			}
			any, t.ask = true, m.asks
		}
	}
	return any
}
