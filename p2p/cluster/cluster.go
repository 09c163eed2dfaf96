package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Engine is what the driver asks of the lock engine. All methods but State are
// called by one goroutine, in the order in which the machine wants them. One
// that takes longer than 10 s ends the node, see [ErrStuck].
type Engine interface {
	Freeze()
	// State returns what the others need to know, after a write-out. It may
	// take as long as the storage does.
	State() []byte
	Install(*locks.View)
	Sync(from locks.NodeID, e locks.Epoch, state []byte) error
	Expelled(reason string)
	// Resume lets go on what waits for this node to be live, grants and I/O.
	Resume()
	// ResumeIO lets go on the I/O alone, when nothing can be granted yet.
	ResumeIO()
	// Ping returns when the engine has made a turn.
	Ping()
}

// Transport is what the driver asks of the network. Member never blocks.
type Transport interface {
	SetView(e locks.Epoch, self locks.NodeID, members []locks.NodeID) error
	DropView()
	// Member sends a message of the membership protocol, or drops it.
	Member(peer string, msg []byte)
	SendSync(ctx context.Context, to locks.NodeID, e locks.Epoch, state []byte) error
	// Want names the peers to be connected with and where they may be, and
	// those that must not be.
	Want(peers []member.Contact, revoked []string)
	// Online ends, or begins, the time in which nobody may be connected, see
	// member.Output.Offline. Until it is called first nobody may.
	Online(on bool)
}

// Storage is the shared directory. Do may take for ever.
type Storage interface {
	Do(op member.Op) (member.Look, error)
}

// Options are what a node is made of. All fields are needed unless noted.
type Options struct {
	// Self is this peer, Cluster the ID of the cluster, as in the machine's
	// configuration.
	Self, Cluster string
	Machine       *member.Machine
	Params        member.Params
	Saved         member.Saved
	Transport     Transport
	Storage       Storage
	// Now is CLOCK_BOOTTIME in milliseconds. It is called from many
	// goroutines.
	Now func() int64
	// Fence keeps a node from writing for good, see member.Fence.
	Fence func(context.Context, member.Fence) error
	// Save keeps what must survive the process. After an error it is called
	// again some seconds later.
	Save func(member.Saved) error
	// Named keeps an incarnation of this node, see member.Output.Inc. It is not
	// called again after an error. May be nil.
	Named func(member.Inc) error
	// Claim keeps, beside the ledger that this process goes on with, who has claimed
	// the place of the one before it: see member.LinkOp.Claim. It takes the place of
	// what was kept, and must outlive this process when it returns. It is called again
	// after an error, and never by two goroutines at once. Nil: a process
	// after this one knows of no claim.
	Claim func(by []member.Node) error
	// Notice gets what admins should know.
	Notice func(member.Notice)
	// Begin is told of each view of which this node is a member, when its
	// engine is frozen and before it is told of the view. It is called like the
	// methods of Engine. May be nil.
	Begin func(*member.View)
	// Installed is told of each view of which this node is a member, when its
	// engine has the states of all. It is called like the methods of Engine.
	// May be nil.
	Installed func(*member.View)
	// Static are contacts to look for beside those that the storage and the
	// members tell of. It is asked every few seconds. May be nil.
	Static func() []member.Contact
	Log    *slog.Logger
}

// Ended is why a node is no member any more, and will not be again.
type Ended struct{ member.End }

// Error tells what has happened, and what to do where the network may be why.
func (e *Ended) Error() string {
	switch e.Code {
	case member.EndUnreachable, member.EndPartial:
		return e.Text + ". Each host must reach the TCP port of every other one: look for a firewall between them, and let it pass; --listen gives the daemon a port that stays the same"
	}
	return e.Text
}

// Node drives one membership machine. Its methods are safe for concurrent use.
type Node struct {
	o      Options
	engine Engine
	inputs chan item

	liveUntil atomic.Int64 // CLOCK_BOOTTIME in ms

	// What may block runs in goroutines of its own: that of the engine, that
	// of state directory, journal, log and address book, and work.
	engineDo *queue
	clerk    *queue
	work     sync.WaitGroup // ends soon after ctx
	done     chan struct{}  // closed when Run has returned
	failed   chan error     // of 1: see Fail

	// stepping is held while the machine makes a step, which never takes long, and while others
	// than Run look at it.
	stepping sync.Mutex
	stepped  bool           // it has made one
	status   *member.Status // after the last one; nil: nobody has asked

	mu     sync.Mutex
	nextID uint64
	wishes map[uint64]chan error

	// Owned by Run.
	ctx      context.Context
	out      member.Output
	own      state // the engine's state for the present epoch
	granting bool
	online   bool                      // as the transport was told
	lapsed   struct{ grants, io bool } // somebody may wait for this node to be sure of itself again
	meet     map[string]met
	wantFor  *member.View // the view for which it was told
	wantAt   int64        // ms of ticks since the transport was told last
	dog      watchdog
	end      *member.End

	unsaved *member.Saved // owned by clerk
}

// item is an input, with the state that came with it if it is a SyncArrived.
// Without an input it is something else to do in the goroutine of Run.
type item struct {
	in    member.Input
	state []byte
	do    func()
}

// state is what the engine says of itself at one epoch.
type state struct {
	epoch   locks.Epoch
	ready   bool
	bytes   []byte
	wanted  []member.Node // who asked for it before it was ready
	sending map[member.Node]bool
}

// New makes a node; Bind must be called before Run.
func New(o Options) *Node {
	return &Node{
		o:        o,
		inputs:   make(chan item, 1024),
		engineDo: newQueue(),
		clerk:    newQueue(),
		done:     make(chan struct{}),
		failed:   make(chan error, 1),
		wishes:   map[uint64]chan error{},
		meet:     map[string]met{},
	}
}

// Bind gives the node its engine. They need each other, so one is made first.
func (n *Node) Bind(e Engine) { n.engine = e }

// Live reports whether this node's tenure lasts longer than guard. It reads
// the clock: call it at the place where the answer is used.
func (n *Node) Live(guard time.Duration) bool {
	return n.o.Now()+guard.Milliseconds() < n.liveUntil.Load()
}

// LiveUntil is when this node's tenure ends, in the time of Options.Now; 0 is
// not live.
func (n *Node) LiveUntil() int64 { return n.liveUntil.Load() }

// Run joins the cluster and stays in it, until ctx ends (then without leaving)
// or the machine ends, which returns an *Ended, or the engine is found stuck,
// which returns ErrStuck, or [Node.Fail] is called. Operations on the storage
// that hang outlive it.
func (n *Node) Run(ctx context.Context) (err error) {
	defer close(n.done)
	ctx, cancel := context.WithCancel(ctx)
	n.ctx = ctx
	go n.engineDo.run()
	go n.clerk.run()
	defer func() {
		n.liveUntil.Store(0)
		n.refuseWishes()
		cancel()
		// What the machine wanted last is done before its end is told.
		n.engineDo.close()
		if err != ErrStuck && !n.engineDo.wait(engineLimit) {
			err = ErrStuck
		}
		n.clerk.close()
		n.clerk.wait(endPatience)
		n.work.Wait()
	}()
	// It is also what ends a stop of the Go runtime that would last a minute, see
	// docs/adr/a-processor-for-the-rest.md.
	ticker := time.NewTicker(time.Duration(n.o.Params.Tick) * time.Millisecond)
	defer ticker.Stop()
	n.step(item{in: member.Start{Saved: n.o.Saved}})
	for n.end == nil {
		// A tick that is due goes first, however many messages wait.
		select {
		case <-ticker.C:
			if err := n.tick(); err != nil {
				return err
			}
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-n.failed:
			return err
		case <-ticker.C:
			if err := n.tick(); err != nil {
				return err
			}
		case it := <-n.inputs:
			if it.do != nil {
				it.do()
			} else {
				n.step(it)
			}
		}
	}
	return &Ended{*n.end}
}

// Fail ends Run with err: something went wrong without which nobody could go on,
// and would wait for ever. The locks of this node are lost, the others go on
// without it, and the process can be started again. It returns at once.
func (n *Node) Fail(err error) {
	select {
	case n.failed <- err:
	default: // it ends already
	}
}

func (n *Node) tick() error {
	n.step(item{in: member.Tick{}})
	if n.dog.watch(n.engineDo, n.o.Params.Tick, n.engine.Ping) {
		return ErrStuck
	}
	if n.wantAt += n.o.Params.Tick; n.wantAt >= wantEvery.Milliseconds() {
		n.want()
	}
	return nil
}
