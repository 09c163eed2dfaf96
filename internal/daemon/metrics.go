package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/metrics"
	"github.com/dmxfs/dmxfs/internal/rules"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// newMetrics makes the counters of a daemon.
func newMetrics() *metrics.Set {
	var classes []string
	for _, c := range locks.Classes {
		classes = append(classes, c.String())
	}
	return metrics.New(classes, slices.Sorted(maps.Keys(rules.Algorithms)), []string{"look", "link", "ask", "answer", "unask", "prune"})
}

// operationName is the kind of an operation on the storage, in a word.
func operationName(op member.Op) string {
	switch op.(type) {
	case member.LookOp:
		return "look"
	case member.LinkOp:
		return "link"
	case member.AskOp:
		return "ask"
	case member.AnswerOp:
		return "answer"
	case member.UnaskOp:
		return "unask"
	case member.PruneOp:
		return "prune"
	}
	return ""
}

// metricsHandler shows the metrics of this daemon; with paths also, to who asks for
// them, the files that programs wait for.
func (d onlooker) metricsHandler(paths bool) http.Handler {
	h := &metrics.Handler{Set: d.metrics, Look: d.snapshot, Name: fusefs.RequestName}
	if paths {
		h.Paths = d.waitedFor
	}
	return h
}

// snapshot is what is not counted, but asked for. It asks no other node.
func (d onlooker) snapshot() metrics.Snapshot {
	st, s := d.status(), d.node.Load().Status()
	v := metrics.Snapshot{
		Version: version.String(), State: st.State, Granting: s.Granting, Problems: len(st.Problems), Epoch: st.Epoch,
		Held: st.Held, Waiting: st.Waiting, EngineLongest: d.engine.Longest(),
		Members: map[string]int{}, WaitsOn: map[metrics.Peer]int{}, LookAge: -1,
	}
	v.Takeovers, v.TakeoverPause = d.takeover.soFar()
	if s.LookAge >= 0 {
		v.LookAge = time.Duration(s.LookAge) * time.Millisecond
	}
	hosts := map[string]string{}
	if s.View != nil {
		v.Members[st.State]++
		for _, m := range s.View.Members {
			hosts[m.Peer] = m.Host
		}
	}
	d.snapshotPeers(&v, s, hosts)
	if st.Waiting > 0 {
		d.snapshotWaits(&v, hosts)
	}
	j := d.journal.Now().Stats()
	v.Journal = metrics.Journal{
		Healthy: d.journal.Healthy() == nil, Records: j.Records, Next: j.Next, Bytes: j.Bytes, Disk: j.Disk, Pending: j.Pending,
		Damaged: j.Damaged, Dropped: j.Dropped, Oldest: j.Oldest,
	}
	if srv := d.server.Load(); srv != nil {
		c := srv.Stats()
		v.Caches = metrics.Caches{PageDrops: c.PageDrops, AttrDrops: c.AttrDrops, EntryDrops: c.EntryDrops, Yields: c.Yields}
	}
	return v
}

// snapshotPeers fills in what this node knows of the other members.
func (d onlooker) snapshotPeers(v *metrics.Snapshot, s member.Status, hosts map[string]string) {
	known := map[string]metrics.PeerState{}
	for _, p := range d.transport.Peers() {
		known[p.ID.String()] = metrics.PeerState{Connected: p.Connected, Connections: len(p.Conns), RTT: p.RTT}
	}
	for _, p := range s.Peers {
		state := p.State
		if state == "alive" {
			state = "live"
		}
		v.Members[state]++
		x := known[p.Node.Peer]
		x.Peer, x.Heard = metrics.Peer{ID: p.Node.Peer, Host: hosts[p.Node.Peer]}, -1
		if p.LastHeard >= 0 {
			x.Heard = time.Duration(p.LastHeard) * time.Millisecond
		}
		v.Peers = append(v.Peers, x)
	}
}

// snapshotWaits fills in how long programs of this host have waited, and for whom.
func (d onlooker) snapshotWaits(v *metrics.Snapshot, hosts map[string]string) {
	now := time.Now()
	for l := range d.engine.List() {
		if l.State != engine.Waits {
			continue
		}
		v.OldestWait = max(v.OldestWait, now.Sub(l.Since))
		for _, n := range l.Remote {
			if node, err := member.ParseNode(n); err == nil {
				v.WaitsOn[metrics.Peer{ID: node.Peer, Host: hosts[node.Peer]}]++
			}
		}
	}
}

// waitedFor are the files that programs of this host wait for.
func (d onlooker) waitedFor() (out []metrics.PathCount) {
	for _, l := range d.engine.LongWaits(0) {
		out = append(out, metrics.PathCount{Path: l.Path, Class: l.Key.Class.String(), Waiting: 1})
	}
	return out
}

// metricsEvery is how often an address is tried that cannot be listened on.
const metricsEvery = 10 * time.Second

// metricsPage is where metrics are shown on the network, and what is wrong with it.
type metricsPage struct {
	mu  sync.Mutex
	err error
}

func (p *metricsPage) set(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// problem is what is wrong with it, or nil.
func (p *metricsPage) problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// serveMetrics shows metrics on an address until ctx ends. No mount fails for an
// address that is taken: status tells of it, and it is tried again.
func (d onlooker) serveMetrics(ctx context.Context, addr string) {
	for addr != "" && ctx.Err() == nil {
		err := d.listenMetrics(ctx, addr)
		if ctx.Err() != nil {
			return
		}
		if p := d.page.problem(); p == nil || p.Error() != err.Error() {
			d.log.Error("metrics are not shown; tried again every "+metricsEvery.String(), "address", addr, "err", err)
		}
		d.page.set(err)
		select {
		case <-ctx.Done():
		case <-time.After(metricsEvery):
		}
	}
}

func (d onlooker) listenMetrics(ctx context.Context, addr string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("--metrics %s: %w", addr, err)
	}
	d.page.set(nil)
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		d.log.Warn("metrics are shown to everybody who reaches this address, without a password: best is a loopback address", "address", a.String())
	}
	d.log.Info("metrics are shown", "url", "http://"+l.Addr().String()+"/metrics")
	s := metrics.Server(d.metricsHandler(false))
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(metrics.Listener(l)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("--metrics %s: %w", addr, err)
	}
	return nil
}
