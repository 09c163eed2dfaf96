package baseline

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

type liuKind uint8

const (
	liuRequest liuKind = iota
	liuReply
	liuCReply
	liuRelease
)

func (k liuKind) String() string { return [...]string{"REQUEST", "REPLY", "CREPLY", "RELEASE"}[k] }

type liuMsg struct {
	kind                liuKind
	allows, floor, last stamp
	// Of a REQUEST, and of a REPLY if its sender has one open.
	s, knew stamp
	reads   bool
}

// tell sends k a message with all that it says of this node now.
func (m *liu) tell(k int, kind liuKind, out *locks.Turn) {
	x := &liuMsg{kind: kind, allows: m.given[k], floor: m.floor, last: m.last}
	if m.writing && (kind == liuRequest || kind == liuReply) {
		x.s, x.knew, x.reads = m.own, m.ownKnew[k], m.ownReads
	}
	m.send(k, x, out)
}

func (m *liuMsg) Append(b []byte) []byte {
	b = wire.Uint(b, m.kind)
	for _, s := range []stamp{m.allows, m.floor, m.last, m.s} {
		b = s.append(b)
	}
	if !m.s.none() {
		b = wire.Bool(m.knew.append(b), m.reads)
	}
	return b
}

func (m *liuMsg) String() string {
	s := fmt.Sprintf("%v allows=%v floor=%v last=%v", m.kind, m.allows, m.floor, m.last)
	if !m.s.none() {
		s += fmt.Sprintf(" %v knew=%v reads=%v", m.s, m.knew, m.reads)
	}
	return s
}
