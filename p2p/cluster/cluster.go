package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"dmxfs/locks"
	"dmxfs/p2p/member"
)

// Engine is what the driver asks of the lock engine. Its methods return at
// once, but for State.
type Engine interface {
	Freeze()
	// State returns what the others need to know, after a write-out.
	State() []byte
	Install(*locks.View)
	Sync(from locks.NodeID, e locks.Epoch, state []byte) error
	Expelled(reason string)
	Resume()
}

// Transport is what the driver asks of the network. Only SendSync blocks.
type Transport interface {
	SetView(e locks.Epoch, self locks.NodeID, members []locks.NodeID) error
	DropView()
	// Member sends a message of the membership protocol, or drops it.
	Member(peer string, msg []byte)
	SendSync(ctx context.Context, to locks.NodeID, e locks.Epoch, state []byte) error
	// Want names the peers to be connected with and where they may be, and
	// those that must not be.
	Want(peers []member.Contact, revoked []string)
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
	// Save keeps what must survive the process.
	Save func(member.Saved) error
	// Notice gets what admins should know. It must not block.
	Notice func(member.Notice)
	// Installed is told of each view of which this node is a member, when its
	// engine has the states of all. It must not block. May be nil.
	Installed func(*member.View)
	// Static are contacts to look for beside those that the storage and the
	// members tell of. May be nil.
	Static func() []member.Contact
	Log    *slog.Logger
}

// Ended is why a node is no member any more, and will not be again.
type Ended struct{ member.End }

func (e *Ended) Error() string { return e.Text }

// Node drives one membership machine. Its methods are safe for concurrent use.
type Node struct {
	o      Options
	engine Engine
	inputs chan item
	calls  chan func() // to be run by Run

	liveUntil atomic.Int64 // CLOCK_BOOTTIME in ms

	work sync.WaitGroup // goroutines that a step has started
	done chan struct{}  // closed when Run has returned

	mu     sync.Mutex
	status member.Status // after the last step
	nextID uint64
	wishes map[uint64]chan error

	// Owned by Run.
	ctx      context.Context
	out      member.Output
	own      state // the engine's state for the present epoch
	granting bool
	meet     map[string]member.Contact
	end      *member.End
}

// item is an input, with the state that came with it if it is a SyncArrived.
type item struct {
	in    member.Input
	state []byte
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
		o:      o,
		inputs: make(chan item, 1024),
		calls:  make(chan func()),
		done:   make(chan struct{}),
		wishes: map[uint64]chan error{},
		meet:   map[string]member.Contact{},
	}
}

// Bind gives the node its engine. They need each other, so one is made first.
func (n *Node) Bind(e Engine) { n.engine = e }

// Live reports whether this node's tenure lasts longer than guard. It reads
// the clock: call it at the place where the answer is used.
func (n *Node) Live(guard time.Duration) bool {
	return n.o.Now()+guard.Milliseconds() < n.liveUntil.Load()
}

// Run joins the cluster and stays in it, until ctx ends (then without leaving)
// or the machine ends, which returns an *Ended.
func (n *Node) Run(ctx context.Context) error {
	defer close(n.done)
	ctx, cancel := context.WithCancel(ctx)
	n.ctx = ctx
	defer n.work.Wait()
	defer cancel()
	defer n.liveUntil.Store(0)
	defer n.refuseWishes()
	ticker := time.NewTicker(time.Duration(n.o.Params.Tick) * time.Millisecond)
	defer ticker.Stop()
	n.step(item{in: member.Start{Saved: n.o.Saved}})
	for n.end == nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			n.step(item{in: member.Tick{}})
		case it := <-n.inputs:
			n.step(it)
		case f := <-n.calls:
			f()
		}
	}
	return &Ended{*n.end}
}

// step gives the machine one input, and those that follow from it at once.
func (n *Node) step(it item) {
	for more := []item{it}; len(more) > 0 && n.end == nil; more = more[1:] {
		m := n.o.Machine
		m.Step(n.o.Now(), more[0].in, &n.out)
		more = append(more, n.obey(more[0])...)
		n.mu.Lock()
		n.status = m.Status()
		n.mu.Unlock()
	}
}

// obey does what n.out asks for, in the order of its fields. It returns the
// inputs that follow.
func (n *Node) obey(it item) (more []item) {
	o := &n.out
	n.liveUntil.Store(o.LiveUntil)
	if x := o.Expelled; x != nil {
		n.own = state{}
		n.o.Transport.DropView()
		n.engine.Expelled(x.Why)
	}
	if f := o.Freeze; f != nil {
		n.engine.Freeze()
		if f.View != nil {
			n.begin(f.View)
		}
		more = append(more, item{in: member.Frozen{Seq: f.Seq}})
	}
	if a, ok := it.in.(member.SyncArrived); ok && o.TakeSync {
		n.tell(a.From.ID(), a.Epoch, it.state)
	}
	if o.Synced != 0 && n.o.Installed != nil {
		n.o.Installed(n.o.Machine.View())
	}
	if o.Granting && !n.granting {
		n.engine.Resume()
	}
	n.granting = o.Granting
	for _, e := range o.Send {
		b, err := member.Encode(e)
		if err != nil {
			n.o.Log.Error("a membership message cannot be sent", "to", e.To.String(), "err", err)
			continue
		}
		n.o.Transport.Member(e.To.Peer, b)
	}
	for _, to := range o.SendSync {
		n.sendState(to)
	}
	if op := o.Storage; op != nil {
		n.spawn(func() item {
			look, err := n.o.Storage.Do(op)
			return item{in: member.Done{Op: op, Err: err, Look: look}}
		})
	}
	for _, f := range o.Fence {
		n.spawn(func() item { return item{in: member.Fenced{Node: f.Node, Err: n.o.Fence(n.ctx, f)}} })
	}
	for _, c := range o.Meet {
		n.meet[c.Peer] = c
	}
	if len(o.Meet) > 0 || o.Freeze != nil || o.Expelled != nil {
		n.want()
	}
	if o.Save != nil {
		if err := n.o.Save(*o.Save); err != nil {
			n.o.Log.Warn("the state directory cannot be written", "err", err)
		}
	}
	for _, a := range o.Answers {
		n.answer(a)
	}
	for _, x := range o.Notices {
		n.o.Notice(x)
	}
	n.end = o.End
	return more
}

// spawn runs f, which may block for long, and gives its result to the machine.
func (n *Node) spawn(f func() item) {
	n.work.Go(func() {
		it := f()
		select {
		case n.inputs <- it:
		case <-n.ctx.Done():
		}
	})
}

// begin makes v the present epoch: the engine collects states from now on.
func (n *Node) begin(v *member.View) {
	self := n.o.Machine.Self()
	lv := v.Locks(self)
	n.own = state{epoch: v.Epoch, sending: map[member.Node]bool{}}
	if err := n.o.Transport.SetView(v.Epoch, self.ID(), lv.Members); err != nil {
		// Without the channels no state arrives, so nothing is granted.
		n.o.Log.Error("the network does not take a view", "epoch", v.Epoch, "err", err)
	}
	n.engine.Install(lv)
	n.work.Go(func() {
		b := n.engine.State()
		n.call(func() { n.ownReady(v.Epoch, b) })
	})
}

// call runs f in the goroutine of Run, if it still runs.
func (n *Node) call(f func()) {
	select {
	case n.calls <- f:
	case <-n.ctx.Done():
	}
}
