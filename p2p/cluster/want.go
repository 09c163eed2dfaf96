package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/dmxfs/dmxfs/p2p/member"
)

const (
	// wantEvery is how often the transport is told whom to look for, also
	// when nothing has changed here: the static contacts may have.
	wantEvery = 5 * time.Second
	// meetFor is how long a peer that is not in the view is looked for.
	meetFor = time.Hour
)

// met is a contact that the machine told of, and when.
type met struct {
	member.Contact
	at int64
}

// want tells the transport with whom this node should be connected: the
// members, those whom the machine has told of, and the static contacts.
func (n *Node) want() {
	n.wantAt = 0
	v, self, now := n.o.Machine.View(), n.o.Machine.Self().Peer, n.o.Now()
	n.wantFor = v
	var list []member.Contact
	for i := range v.Members {
		list = append(list, member.Contact{Peer: v.Members[i].Peer, Addrs: v.Members[i].Addrs})
	}
	for peer, m := range n.meet {
		if now-m.at > meetFor.Milliseconds() {
			delete(n.meet, peer)
			continue
		}
		list = append(list, m.Contact)
	}
	if !n.online {
		list = nil
	}
	online := n.online
	n.clerk.put(func() {
		if n.o.Static != nil && online {
			list = append(list, n.o.Static()...)
		}
		n.o.Transport.Want(merge(list, func(peer string) bool { return peer == self || v.IsRevoked(peer) }), v.Revoked)
		if n.unsaved != nil {
			n.save(n.unsaved)
		}
	})
}

// setOnline tells the transport whether it may have connections. It is told
// whom to look for anew.
func (n *Node) setOnline(on bool) {
	if on == n.online {
		return
	}
	n.online = on
	n.clerk.put(func() { n.o.Transport.Online(on) })
	n.wantFor = nil
}

// merge makes one contact of all with the same peer, in the order of the
// peers, without those to leave out.
func merge(list []member.Contact, leaveOut func(peer string) bool) []member.Contact {
	list = slices.DeleteFunc(list, func(c member.Contact) bool { return leaveOut(c.Peer) })
	slices.SortStableFunc(list, func(a, b member.Contact) int { return cmp.Compare(a.Peer, b.Peer) })
	var out []member.Contact
	for _, c := range list {
		if len(out) == 0 || out[len(out)-1].Peer != c.Peer {
			out = append(out, member.Contact{Peer: c.Peer})
		}
		last := &out[len(out)-1]
		for _, a := range c.Addrs {
			if !slices.Contains(last.Addrs, a) {
				last.Addrs = append(last.Addrs, a)
			}
		}
	}
	return out
}
