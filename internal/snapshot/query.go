package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Query says which locks are wanted, and in which order.
type Query struct {
	// Words must all be in a lock's path, host, command, class, state, number of
	// the process, node, algorithm or file, in whatever case.
	Words string
	State string // held, waiting or cached; empty: held and waiting; all: all
	File  string // identity of the file
	Sort  string // path, host, pid, command, since, state, class; empty: as the daemon has them
	Down  bool   // in descending order
}

// Find is the locks that a query is for. They are those of the snapshot: do not
// change them.
func (s *Snapshot) Find(q Query) []*Lock {
	words := strings.Fields(strings.ToLower(q.Words))
	var out []*Lock
next:
	for i := range s.Locks {
		l := &s.Locks[i]
		switch {
		case q.State == "" && l.State == Cached, q.State != "" && q.State != "all" && l.State != q.State, q.File != "" && l.File != q.File:
			continue
		}
		for _, w := range words {
			if !strings.Contains(s.search[i], w) {
				continue next
			}
		}
		out = append(out, l)
	}
	if by := orders[q.Sort]; by != nil {
		slices.SortStableFunc(out, func(a, b *Lock) int {
			if q.Down {
				a, b = b, a
			}
			return by(a, b)
		})
	}
	return out
}

var orders = map[string]func(a, b *Lock) int{
	"path":    func(a, b *Lock) int { return cmp.Compare(a.Name(), b.Name()) },
	"host":    func(a, b *Lock) int { return cmp.Compare(a.Host, b.Host) },
	"pid":     func(a, b *Lock) int { return cmp.Compare(a.PID, b.PID) },
	"command": func(a, b *Lock) int { return cmp.Compare(a.Command, b.Command) },
	"since":   func(a, b *Lock) int { return a.Since.Compare(b.Since) },
	"state":   func(a, b *Lock) int { return cmp.Compare(a.State, b.State) },
	"class":   func(a, b *Lock) int { return cmp.Compare(a.Class, b.Class) },
}

// HostSum is what the programs of a host hold and wait for.
type HostSum struct {
	Node    string `json:"node"`
	Host    string `json:"host"`
	Held    int    `json:"held"`
	Waiting int    `json:"waiting"`
	// Longest is the wait that is the longest now.
	Longest time.Duration `json:"longest_ns"`
	// Blocks is how many requests of the cluster wait for a program of this host,
	// or for the host.
	Blocks int `json:"blocks"`
}

// Hosts are the hosts of the cluster, those that others wait for most first.
func (s *Snapshot) Hosts() []HostSum {
	at := map[string]*HostSum{}
	host := func(node, name string) *HostSum {
		h := at[node]
		if h == nil {
			h = &HostSum{Node: node, Host: name}
			at[node] = h
		}
		return h
	}
	for _, m := range s.Peers.Members {
		host(m.ID, m.Host)
	}
	for i := range s.Locks {
		l := &s.Locks[i]
		h := host(l.Node, l.Host)
		switch l.State {
		case Held:
			h.Held++
		case Waiting:
			h.Waiting++
			h.Longest = max(h.Longest, s.At.Sub(l.Since))
			seen := map[string]bool{}
			for _, w := range l.WaitsFor {
				if !seen[w.Node] {
					seen[w.Node] = true
					host(w.Node, w.Host).Blocks++
				}
			}
		}
	}
	out := make([]HostSum, 0, len(at))
	for _, h := range at {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b HostSum) int {
		return cmp.Or(cmp.Compare(b.Blocks, a.Blocks), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Held, a.Held), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// HostName is the name of a node's host, with the end of the node's ID if another
// member's host, or another mount of it, is called the same.
func (s *Snapshot) HostName(node, host string) string {
	for _, m := range s.Peers.Members {
		if m.Host == host && m.ID != node {
			return fmt.Sprintf("%s (…%s)", host, node[max(0, len(node)-6):])
		}
	}
	return host
}
