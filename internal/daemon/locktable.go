package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/rules"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// row is a lock with what is needed to find out who waits for whom.
type row struct {
	admin.Lock
	Owner  uint64   `json:"owner"`
	Shared bool     `json:"shared"` // the algorithm lets readers and ranges be apart
	Remote []string `json:"remote"` // members whose answer is missing
}

var lockStates = map[engine.LockState]string{engine.Held: "held", engine.Waits: "waiting", engine.Cached: "cached"}

// lockTable tells which locks there are, on this host and on the others.
type lockTable struct {
	asker
	node   *atomic.Pointer[cluster.Node]
	server *atomic.Pointer[fusefs.Server]
	engine *engine.Engine
	self   string // peer ID
}

// rows are the locks of this node, one after the other: all at once they can be
// a hundred megabytes.
func (t *lockTable) rows() iter.Seq[row] {
	return func(yield func(row) bool) {
		host, _ := os.Hostname()
		for l := range t.engine.List() {
			if !yield(t.row(&l, host)) {
				return
			}
		}
	}
}

// row is a lock of this node, which is host.
func (t *lockTable) row(l *engine.LockInfo, host string) row {
	self := t.self
	r := row{
		Lock: admin.Lock{
			Path: l.Path, Class: l.Key.Class.String(), Mode: l.Mode.String(), Start: l.Range.Start, End: rangeEnd(l.Range),
			State: lockStates[l.State],
			Node:  self, Host: host, PID: l.Program.PID, Command: l.Program.Command, UID: l.Program.UID, Since: l.Since.UTC(),
			Epoch: uint64(l.Epoch), Algorithm: l.Algorithm, Token: uint64(l.Token), WaitsFor: []admin.Blocker{},
			File: l.Key.File, Request: l.Request,
		},
		Owner: uint64(l.Owner), Shared: rules.Algorithms[l.Algorithm].Shared,
	}
	r.Lock = r.ToSend()
	if l.Key.Class == locks.Open && l.State == engine.Held {
		t.tellUse(&r.Lock, l.Handle)
	}
	for _, p := range l.Local {
		r.WaitsFor = append(r.WaitsFor, admin.Blocker{Node: self, Host: host, PID: p.PID, Command: p.Command})
	}
	for _, n := range l.Remote {
		if node, err := member.ParseNode(n); err == nil {
			r.Remote = append(r.Remote, node.Peer)
		}
	}
	return r
}

// tellUse fills in how the open lock of a handle of this mount is used.
func (t *lockTable) tellUse(l *admin.Lock, h locks.HandleID) {
	s := t.server.Load()
	if s == nil {
		return
	}
	o, ok := s.OpenLock(h)
	if !ok {
		return
	}
	switch {
	case o.Shared:
		l.Use = "shared"
	case o.Stream:
		l.Use = "stream"
	case o.Used:
		l.Use = "section"
	default:
		l.Use = "unused"
	}
	since := time.Now().Add(-o.Idle).UTC().Round(time.Millisecond)
	l.IdleSince = &since
}

func rangeEnd(r locks.Range) int64 {
	if r.End >= locks.MaxOffset {
		return -1
	}
	return int64(r.End)
}

// lockedBelow reports whether a member has a lock on a file below dir, where
// locks go by path.
func (t *lockTable) lockedBelow(dir string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	a := t.all(ctx, false)
	if len(a.Missing) > 0 {
		return false, fmt.Errorf("no answer from %s", strings.Join(a.Missing, ", "))
	}
	for _, l := range a.Locks {
		if l.State != "cached" && strings.HasPrefix(l.File, "p"+dir+"/") {
			return true, nil
		}
	}
	return false, nil
}

// all is the table of this node, or of the whole cluster.
func (t *lockTable) all(ctx context.Context, local bool) admin.Locks {
	var a admin.Locks
	held, waiting := t.engine.Count()
	if held+waiting > 0 {
		a.Locks = make([]admin.Lock, 0, held+waiting+16) // some are only kept
	}
	waits := map[int]row{} // those of a.Locks that wait
	add := func(r row) {
		if r.State == "waiting" {
			waits[len(a.Locks)] = r
		}
		a.Locks = append(a.Locks, r.Lock)
	}
	for r := range t.rows() {
		add(r)
	}
	hosts := map[string]string{}
	if v := t.node.Load().Status().View; v != nil && !local {
		limit := askTimeout
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end).Round(100*time.Millisecond))
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var mu sync.Mutex
		var wg sync.WaitGroup
		self := t.self
		for _, m := range v.Members {
			hosts[m.Peer] = m.Host
			if m.Peer == self {
				continue
			}
			wg.Go(func() {
				rows, err := t.askRows(ctx, m.Peer)
				mu.Lock()
				defer mu.Unlock()
				for _, r := range rows {
					add(r)
				}
				if err != nil {
					a.Missing = append(a.Missing, fmt.Sprintf("%s (%s): %s", m.Host, m.Peer, silence(err, limit)))
				}
			})
		}
		wg.Wait()
	}
	for i, r := range waits {
		a.Locks[i].WaitsFor = append(a.Locks[i].WaitsFor, remoteBlockers(&r, a.Locks, hosts)...)
	}
	slices.SortStableFunc(a.Locks, func(x, y admin.Lock) int {
		if c := strings.Compare(x.Path, y.Path); c != 0 {
			return c
		}
		if c := strings.Compare(x.Class, y.Class); c != 0 {
			return c
		}
		if c := strings.Compare(order[x.State], order[y.State]); c != 0 {
			return c
		}
		return x.Since.Compare(y.Since)
	})
	slices.Sort(a.Missing)
	return a
}

// marshalRows is rows as JSON of at most so many bytes. One program can have very many
// locks of a file with a long name: the daemon must not run out of memory to tell that
// they are too many to be told.
func marshalRows(rows iter.Seq[row], most int) ([]byte, error) {
	out := []byte("[")
	n := 0
	for r := range rows {
		if n++; n > 1 {
			out = append(out, ',')
		}
		b, err := json.Marshal(&r)
		if err != nil {
			return nil, err
		}
		if out = append(out, b...); len(out) >= most {
			return nil, fmt.Errorf("its locks are more than can be told, %d already", n)
		}
	}
	return append(out, ']'), nil
}

// order is that of the states of one file's locks in the table.
var order = map[string]string{"held": "1", "waiting": "2", "cached": "3"}

// askRows asks a member for its locks, again and again until ctx ends: it may be
// about to be dropped, upon which it has none, or to be replaced.
func (t *lockTable) askRows(ctx context.Context, to string) (rows []row, err error) {
	tick := time.NewTicker(askPause)
	defer tick.Stop()
	for {
		rows = nil
		if err = t.ask(ctx, to, askTimeout, question{What: "locks"}, &rows); err == nil {
			for i := range rows {
				rows[i].Received()
			}
			return rows, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
		v := t.node.Load().Status().View
		if v == nil || !slices.ContainsFunc(v.Members, func(m member.Member) bool { return m.Peer == to }) {
			return nil, nil
		}
	}
}

// askPause is the time between two tries to ask a member.
const askPause = 100 * time.Millisecond

// remoteBlockers finds what a waiting lock waits for on other nodes: the locks
// there that conflict, and then the nodes that have not answered. A node that
// waits for an exclusive lock does not know which of the others has it; when
// the holder is found, those others are of no interest.
func remoteBlockers(w *row, all []admin.Lock, hosts map[string]string) []admin.Blocker {
	var holders, nodes []admin.Blocker
	for _, n := range w.Remote {
		found := false
		for i := range all {
			h := &all[i]
			if h.Node == n && h.State == "held" && h.File == w.File && h.Class == w.Class && (!w.Shared || conflict(h, &w.Lock)) {
				holders = append(holders, admin.Blocker{Node: n, Host: h.Host, PID: h.PID, Command: h.Command})
				found = true
			}
		}
		if !found {
			nodes = append(nodes, admin.Blocker{Node: n, Host: hosts[n]})
		}
	}
	if !w.Shared && len(holders) > 0 {
		return holders
	}
	return append(holders, nodes...)
}

func conflict(a, b *admin.Lock) bool {
	end := func(l *admin.Lock) uint64 {
		if l.End < 0 {
			return locks.MaxOffset
		}
		return uint64(l.End)
	}
	return (a.Mode == "W" || b.Mode == "W") && max(a.Start, b.Start) < min(end(a), end(b))
}
