package chronicle

import (
	"slices"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// MemberName is what a view calls a peer; ok is false if it is no member.
func MemberName(v *member.View, id string) (name string, ok bool) {
	if v == nil {
		return "", false
	}
	i := slices.IndexFunc(v.Members, func(m member.Member) bool { return m.Peer == id })
	if i < 0 {
		return "", false
	}
	return v.Members[i].Name(), true
}

// HostName is the name of a member's host, empty if that is not known.
func HostName(v *member.View, id string) string {
	if v == nil {
		return ""
	}
	for _, m := range v.Members {
		if m.Peer == id {
			return m.Host
		}
	}
	return ""
}

// StateName is the state of a node in one word.
func StateName(s member.Status) string {
	switch {
	case s.State == member.StateMember && s.Granting:
		return "live"
	case s.State == member.StateMember && s.Live:
		return "synchronizing"
	case s.State == member.StateMember:
		return "suspended"
	case s.State == member.StateLeaving:
		return "leaving"
	}
	return "joining"
}
