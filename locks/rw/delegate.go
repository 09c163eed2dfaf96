package rw

import (
	"slices"

	"dmxfs/locks"
)

// A node can leave all that it knows nothing of to another one beforehand: see
// [locks.Delegable]. The machines then begin where they would come to if the
// delegate had asked for everything, had it, and had released it.

// Delegated makes this node one that may write everywhere.
func (m *machine) Delegated() {
	m.mustBeUntouched()
	for _, p := range m.others() {
		p.auth.Insert(locks.Whole)
	}
}

// Delegate lets p write everywhere.
func (m *machine) Delegate(id locks.NodeID) {
	m.mustBeUntouched()
	m.peer(id).given.Insert(locks.Whole)
}

// Keeps reports whether p would lose sight of something if it forgot what it
// gave this node: a permission, or one that may be on its way.
func (m *machine) Keeps(id locks.NodeID) bool {
	for _, p := range m.peers {
		if p.id == id {
			return !p.auth.Empty() || len(p.asks) > 0
		}
	}
	return false
}

// Returned takes back what was given to p, as a RELEASE of it does.
func (m *machine) Returned(id locks.NodeID, token locks.Token, out *locks.Turn) error {
	for _, p := range m.peers {
		if p.id == id && !p.given.Empty() {
			return m.Receive(id, &release{slices.Clone(p.given), token}, out)
		}
	}
	return m.learn(token)
}

// Redundant reports whether one that is made anew with Delegated, or with
// Delegate(to) if to is not empty, does as well.
func (m *machine) Redundant(to locks.NodeID) bool {
	if m.frozen || len(m.tickets) > 0 {
		return false
	}
	for _, p := range m.peers {
		if len(p.asks) > 0 || !p.given.Empty() && p.id != to || !p.auth.Empty() && to != "" {
			return false
		}
	}
	return true
}
