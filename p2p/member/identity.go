package member

import (
	"slices"
	"strings"
)

// maxLives is how many incarnations of a peer are remembered.
const maxLives = 64

// identity is who this node is.
type identity struct {
	*base
	me    Node
	lives []Inc    // incarnations of Config.Former and of this process, the newest last
	addrs []string // where others reach it
}

// draw draws an incarnation on top of v. What was said to the former one is not
// heard any more, and no view that is based on an older one can add this one.
func (i *identity) draw(v *View) {
	i.me = Node{Peer: i.cfg.Self.Peer, Inc: Inc(i.cfg.Random())}
	for i.me.Inc == 0 || v.Has(i.me) {
		i.me.Inc = Inc(i.cfg.Random())
	}
	i.lives = append(i.lives, i.me.Inc)
	if len(i.lives) > maxLives {
		i.lives = slices.Delete(i.lives, 0, len(i.lives)-maxLives)
	}
	i.out.Inc = i.me.Inc
}

func (i *identity) setAddrs(addrs []string) { i.addrs = ClipAddrs(addrs) }

// record is the record of this incarnation.
func (i *identity) record() Member {
	s := i.cfg.Self
	s.Node, s.Addrs = i.me, i.addrs
	return s
}

// isTwin reports whether n is of this peer and not of this process.
func (i *identity) isTwin(n Node) bool {
	return n.Peer == i.me.Peer && n != i.me
}

// isFormer reports whether y is a former life of this node, and not one of
// another machine that was cloned with its memory. Clones have the boot ID, and
// the same inode of the lock file; those of one template that joined on their
// own have other peer IDs or incarnations, and one that was cloned as a member
// runs at another address.
func (i *identity) isFormer(y *Member) bool {
	return y.Peer == i.me.Peer && slices.Contains(i.lives, y.Inc) && subset(hosts(y.Addrs), hosts(i.addrs))
}

// alone reports whether all members of v are this node's peer. When they are
// former selves, there is nobody with whom it would have to agree.
func (i *identity) alone(v *View) bool {
	return !slices.ContainsFunc(v.Members, func(y Member) bool { return y.Peer != i.me.Peer })
}

// hosts are the first two parts of multiaddrs, as in /ip4/192.0.2.1.
func hosts(addrs []string) map[string]bool {
	set := make(map[string]bool, len(addrs))
	for _, a := range addrs {
		if parts := strings.SplitN(a, "/", 4); len(parts) >= 3 {
			set[parts[1]+"/"+parts[2]] = true
		}
	}
	return set
}

func subset(a, b map[string]bool) bool {
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}
