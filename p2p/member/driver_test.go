package member_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

// driver drives a machine by the duties of the package comment, as plainly as
// possible: goroutines, channels and a clock, but a network and a storage in
// memory. It shows that the duties are enough.
type driver struct {
	m        *member.Machine
	inputs   chan member.Input
	net      *network
	reg      register.Register
	live     atomic.Int64 // LiveUntil
	epoch    atomic.Uint64
	granting atomic.Bool
	engine   chan *member.Freeze
	tasks    sync.WaitGroup
}

// network carries what fits into the receiver's queue, and drops the rest.
type network struct {
	mu    sync.Mutex
	nodes map[string]*driver
}

func (n *network) send(to string, in member.Input) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.nodes[to]; d != nil {
		select {
		case d.inputs <- in:
		default:
		}
	}
}

// boottime is the clock of the bubble, which began in the year 2000.
func boottime() int64 {
	return 1000 + time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds()
}

// run is the one goroutine that steps the machine. It returns how it ended.
func (d *driver) run(ctx context.Context) error {
	defer d.tasks.Wait()
	tick := time.NewTicker(time.Duration(member.Default().Tick) * time.Millisecond)
	defer tick.Stop()
	done := make(chan struct{})
	defer close(done)
	// The engine is a loop of its own: it obeys freezes in their order.
	d.tasks.Go(func() {
		for {
			select {
			case f := <-d.engine:
				if f.View != nil {
					d.epoch.Store(uint64(f.View.Epoch))
				}
				select {
				case d.inputs <- member.Frozen{Seq: f.Seq}:
				case <-done:
					return
				}
			case <-done:
				return
			}
		}
	})
	var out member.Output
	in := member.Input(member.Start{})
	for {
		d.m.Step(boottime(), in, &out)
		d.live.Store(out.LiveUntil)
		d.granting.Store(out.Granting)
		if out.Freeze != nil {
			d.engine <- out.Freeze
		}
		for _, e := range out.Send {
			b, err := member.Encode(e)
			if err != nil {
				return err
			}
			if e, err = member.Decode(e.From.Peer, e.To.Peer, testCluster, b); err != nil {
				return err
			}
			d.net.send(e.To.Peer, member.Received{Envelope: e})
		}
		for _, to := range out.SendSync {
			d.net.send(to.Peer, member.SyncArrived{From: d.m.Self(), Epoch: d.m.Epoch()})
		}
		if op := out.Storage; op != nil {
			d.tasks.Go(func() {
				res := register.Do(d.reg, op, boottime)
				select {
				case d.inputs <- res:
				case <-done:
				}
			})
		}
		for _, f := range out.Fence {
			d.tasks.Go(func() {
				select {
				case d.inputs <- member.Fenced{Node: f.Node}:
				case <-done:
				}
			})
		}
		if out.End != nil {
			if out.End.Code == member.EndLeft {
				return nil
			}
			return errors.New(out.End.Text)
		}
		select {
		case in = <-d.inputs:
		case <-tick.C:
			in = member.Tick{}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestADriverByTheDuties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := registertest.NewShared()
		net := &network{nodes: map[string]*driver{}}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		results := map[string]chan error{}
		start := func(name string, seed uint64) *driver {
			cfg := testConfig(name)
			cfg.Random = func() uint64 { seed = seed*6364136223846793005 + 1; return seed }
			m, err := member.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			d := &driver{
				m: m, net: net, inputs: make(chan member.Input, 100), engine: make(chan *member.Freeze, 100),
				reg: &registertest.Register{Shared: shared, Fault: func(member.Op) registertest.Fault {
					return registertest.Fault{Before: time.Millisecond, After: time.Millisecond}
				}},
			}
			net.mu.Lock()
			net.nodes[name] = d
			net.mu.Unlock()
			ended := make(chan error, 1)
			results[name] = ended
			running.Go(func() { ended <- d.run(ctx) })
			return d
		}
		wait := func(what string, limit time.Duration, done func() bool) {
			t.Helper()
			for end := time.Now().Add(limit); !done(); {
				if time.Now().After(end) {
					t.Fatalf("%s: not within %v", what, limit)
				}
				time.Sleep(10 * time.Millisecond) // virtual time
			}
		}
		together := func(ds ...*driver) func() bool {
			return func() bool {
				for _, d := range ds {
					if !d.granting.Load() || boottime() >= d.live.Load() || d.epoch.Load() != ds[0].epoch.Load() {
						return false
					}
				}
				return true
			}
		}
		var ds []*driver
		for i := range 3 {
			ds = append(ds, start(fmt.Sprintf("n%d", i), uint64(i)+1))
		}
		wait("three nodes together", 3*time.Second, func() bool { return together(ds...)() && ds[0].epoch.Load() >= 2 })
		// One leaves, and the others go on without it.
		ds[2].inputs <- member.Leave{}
		if err := <-results["n2"]; err != nil {
			t.Errorf("leaving: %v", err)
		}
		e := ds[0].epoch.Load()
		wait("two nodes together", time.Second, together(ds[:2]...))
		// They are cut off from each other: one goes on, and one only.
		net.mu.Lock()
		clear(net.nodes)
		net.mu.Unlock()
		wait("one node alone", 7*time.Second, func() bool {
			return together(ds[0])() != together(ds[1])() && max(ds[0].epoch.Load(), ds[1].epoch.Load()) > e
		})
		cancel()
		running.Wait()
		shared.Wait()
	})
}
