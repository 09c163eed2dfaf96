package member

import (
	"slices"
	"strings"
)

// maxLives is how many incarnations of a peer are remembered.
const maxLives = 64

// isFormer reports whether y is a former life of this node, and not one of
// another machine that was cloned with its memory. Clones have the boot ID, and
// the same inode of the lock file; those of one template that joined on their
// own have other peer IDs or incarnations, and one that was cloned as a member
// runs at another address.
func (m *Machine) isFormer(y *Member) bool {
	if m.bug.cloneProof {
		return true
	}
	return y.Peer == m.me.Peer && slices.Contains(m.lives, y.Inc) && subset(hosts(y.Addrs), hosts(m.cfg.Self.Addrs))
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
