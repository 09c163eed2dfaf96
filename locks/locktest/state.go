package locktest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// appendState adds all that the future of a world depends on.
func (w *world) appendState(b []byte) []byte {
	num := func(vs ...uint64) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
	}
	str := func(s string) {
		num(uint64(len(s)))
		b = append(b, s...)
	}
	bit := func(vs ...bool) {
		for _, v := range vs {
			if v {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	num(uint64(w.epoch))
	for _, n := range w.nodes {
		bit(n.dead, n.suspended, n.machine != nil)
		num(uint64(n.floor), uint64(n.epoch), uint64(n.frozen), uint64(n.last))
		if n.dead {
			continue
		}
		if n.machine != nil {
			str(n.machine.String())
		}
		str(string(n.state))
		for _, l := range w.links[n.index] {
			num(uint64(len(l)))
			for _, p := range l {
				num(uint64(p.epoch))
				str(string(p.bytes))
			}
		}
		// Of the data only what is equal to what matters.
		bit(n.data.stale)
		for i := range bytesSeen {
			bit(n.data.value[i] == w.oracle.data.truth[i], n.data.dirty[i])
		}
	}
	or := &w.oracle
	for i := range bytesSeen {
		bit(or.data.stored[i] == or.data.truth[i])
		num(uint64(or.readToken[i]), uint64(or.writeToken[i]))
	}
	tickets := slices.Clone(or.tickets) // their order means nothing
	slices.SortFunc(tickets, func(a, b *ticket) int {
		return cmp.Or(cmp.Compare(a.node.index, b.node.index), cmp.Compare(a.ID, b.ID))
	})
	for _, t := range tickets {
		if t.status <= held || !t.stamp.IsZero() {
			num(uint64(t.node.index), uint64(t.ID), uint64(t.status))
			bit(t.justified)
			num(t.stamp.SN, t.stamp.N)
			str(string(t.stamp.Site))
		}
	}
	return b
}

// fileText is a run as an interaction file.
func fileText(nodes int, ops []Op) string {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes %d\n----\n", nodes)
	for _, o := range ops {
		fmt.Fprintf(&b, "\n%v\n----\n", o)
	}
	return b.String()
}
