package systemtest

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/p2ptest"
)

var flagWired = flag.Int("system.wired", long.Or(15, 40), "how many random schedules to run over the real transport")

// A world can have the transport of package p2p between its nodes, over a
// network in memory, in the place of what it guarantees: with sessions that are
// resumed on new connections, and states that are sent again. Which of its
// goroutines is first nobody decides, so a seed is not a run there.

// wire is the transport of one process.
type wire struct {
	*p2p.Transport
	endpoint *p2ptest.Endpoint
}

// id is the peer ID of a node with a short name.
func (w *world) id(name string) string {
	if w.opt.wired && len(name) == 1 {
		return p2ptest.PeerID(int(name[0])).String()
	}
	return name
}

// connect gives p a transport. It ends with ctx; then done is closed.
func (p *proc) connect(ctx context.Context) (done chan struct{}) {
	w := p.w
	id, err := peer.Decode(p.name)
	if err != nil {
		panic(err)
	}
	endpoint := w.wires.Endpoint(id)
	p.wire = &wire{endpoint: endpoint}
	p.wire.Transport = p2p.NewTransport(endpoint, p2p.Handlers{
		Member: func(from peer.ID, b []byte) {
			w.from("member "+string(from), 0, func() { p.deliver(func() { p.message(from.String(), b) }) })
		},
		Lock: func(from locks.NodeID, e locks.Epoch, frame []byte) {
			w.from("lock "+string(from), 0, func() { p.deliver(func() { p.engine.Receive(from, e, frame) }) })
		},
		Sync: func(from locks.NodeID, e locks.Epoch, state []byte) {
			p.await("state "+string(from), func(done func(outcome)) {
				p.receiveState(context.Background(), from, e, state)
				done(outcome{})
			})
		},
	}, slog.New(slog.DiscardHandler))
	done = make(chan struct{})
	go func() {
		defer close(done)
		if err := p.wire.Run(ctx); err != nil {
			w.check.failf("%s: the transport ended: %v", p.name, err)
		}
	}()
	return done
}

// wireCut cuts or heals one direction.
func (w *world) wireCut(from, to string, f func(from, to peer.ID)) {
	a, err1 := peer.Decode(from)
	b, err2 := peer.Decode(to)
	if err := errors.Join(err1, err2); err != nil {
		panic(err)
	}
	f(a, b)
}

// known are all peers that were ever started: the shared directory tells of them.
func (p *proc) known() (list []member.Contact) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, name := range p.w.names {
		list = append(list, member.Contact{Peer: name})
	}
	return list
}

func (t *wire) want(list []member.Contact) {
	var infos []peer.AddrInfo
	for _, c := range list {
		if id, err := peer.Decode(c.Peer); err == nil {
			infos = append(infos, peer.AddrInfo{ID: id})
		}
	}
	t.SetWanted(infos)
}

func (t *wire) member(to string, b []byte) {
	if id, err := peer.Decode(to); err == nil {
		t.SendMember(id, b)
	}
}

// resets are connections that end, which the real transport has to bear.
var resets = fault{"resets", func(w *world, p *proc, d time.Duration) time.Duration {
	for at := time.Duration(0); at < d; at += w.between(10*ms, 800*ms) {
		w.after(at, func() {
			if o := w.other(p); o != nil {
				w.wireCut(p.name, o.name, w.wires.Break)
			}
		})
	}
	return d
}}

// wiredFaults are those that do not reach into the links.
func wiredFaults() []fault {
	list := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return f.name == "slow network" || f.name == "loss and duplicates"
	})
	return append(list, resets, resets)
}

func TestOverTheRealTransport(t *testing.T) {
	grants := 0
	schedules(t, *flagWired, func(seed int64) options {
		o := randomOptions(seed)
		o.wired = true
		return o
	}, func(r ran) { grants += r.world.check.grants })
	t.Logf("%d grants", grants)
}
