package member

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"dmxfs/locks"
)

// Config is what a machine is made of.
type Config struct {
	Params Params
	// Cluster is the ID of the cluster, 32 hexadecimal digits.
	Cluster string
	// Self is this node's record. Its incarnation is drawn by the machine.
	Self Member
	// Former are incarnations of this peer that had Self.Lock, as its state
	// directory says: the last of them, at least. See [Output.Inc].
	Former []Inc
	// Policy is what this node asks for; nil is whatever the cluster has. The
	// first member's is that of the cluster. Others are refused if theirs is
	// not that one, nor one that was changed into it.
	Policy *Policy
	// FileID says how this node tells files apart: [FileIDPath], or "inode" and
	// something that only hosts that see the same inode numbers know. It is the
	// same on all members: locks of one file must not go by two names. The
	// first member's is that of the cluster, and others are refused. TakesPath:
	// it is no more than a default, and FileIDPath will do if the cluster has that.
	FileID    string
	TakesPath bool
	// Restored: an admin says that the storage was restored from a copy, and
	// that no other host uses it at the moment. Then this node makes a view above all that it has known.
	Restored bool
	// HasFence: there is a fence command; members that fell silent are
	// dropped only after it has succeeded for them.
	HasFence bool
	// Bury, if not zero, makes a machine that does not join: it only takes
	// this dead node out of the view, and ends. The driver must hold the
	// node's lock file, as for [Dead], and bound the time that it waits.
	Bury Node
	// Random is the source of incarnations and nonces. It is called in a
	// step, never by another goroutine.
	Random func() uint64
	// Made is the wall clock in RFC 3339, written into views for people.
	Made func() string
}

// State is what a node is.
type State uint8

const (
	StateOut     State = iota // not in the view: about to join, or not to
	StateMember               // in the view
	StateLeaving              // in the view, and about to leave it
	StateEnded                // see Output.End
)

func (s State) String() string {
	switch s {
	case StateOut:
		return "out"
	case StateMember:
		return "member"
	case StateLeaving:
		return "leaving"
	case StateEnded:
		return "ended"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// never is before every time, far enough to be added to and subtracted.
const never = math.MinInt64 / 4

// Machine is one node's part of the membership. It is not safe for concurrent
// use. Two machines that are given the same configuration, the same random
// numbers and the same inputs make the same outputs.
type Machine struct {
	cfg Config
	p   Params
	bug variant

	me     Node
	lives  []Inc // incarnations of Config.Former and of this process, the newest last
	st     State
	joined bool // this process has been a member
	saved  Saved
	began  int64 // when Start came
	now    int64
	out    *Output

	v     *View // the installed view; outside, the newest known one
	index int   // this node's place in v

	// Waking time: what ticks add up to, each counted as Params.Cap at most.
	lastTick  int64
	known     int64 // waking time since v was learned
	knownFrom int64 // when that was, if after lastTick

	peers  map[Node]*peer
	order  []*peer // of peers, as in v
	beatAt int64   // when heartbeats are due

	lookAt int64 // the start of the last look that counts

	next   *install // the view that waits for the engine
	seq    uint64   // of the last Freeze
	frozen bool     // the engine has acknowledged it
	synced bool     // Output.Synced was given at this epoch

	prop    *proposal
	fences  map[Node]*fence
	dead    map[Node]string // how each is known to be dead
	joiners map[Node]*joiner
	wishes  []wish

	disk  disk
	join  join
	leave leave

	talk      map[Node]int64 // when a view or a HELLO went to a node at another epoch
	since     int64          // when this node became a member
	suspended bool           // the notice was given
	away      bool           // Output.Offline
	end       bool
}

// peer is what a member keeps of another one.
type peer struct {
	Member
	lastT     int64 // newest T of its heartbeats at this epoch; 0 is none
	lastTAt   int64 // when that came
	prom      int64 // newest of its T that this node promises at this epoch
	ten       int64 // newest T of this node that it promises at this epoch
	two       int64 // newest T of this node that it has heard, at any epoch
	silent    int64 // waking time since prom last advanced
	promAt    int64 // when that was
	heard     bool  // it spoke to this node at an epoch with both in
	lastAt    int64 // when it spoke last
	got       bool  // its state is here
	has       bool  // it has this node's state
	syncAt    int64 // when that was last sent
	refuse    bool  // an admin wants it out, for the reason refuseWhy
	refuseWhy string
	said      said  // what the last heartbeat to it said
	asked     int   // answers to HB.Ask since the last beat
	rtt       int64 // -1: not known
}

// said is what a heartbeat tells its receiver.
type said struct {
	heard, prom int64
	got         bool
}

// install is a view that this node follows as soon as the engine is frozen.
type install struct {
	view *View
	mine bool // this node made it
}

// proposal is a view that this node tries to link. From its making until a
// view of its epoch or above is known, nobody outside of it is promised anything.
type proposal struct {
	view  *View
	file  []byte
	stage stage
	at    int64 // when the stage may go on
}

type stage uint8

const (
	stageLink    stage = iota // to be linked
	stageLooking              // linked: a look has to show it
	stageUnknown              // the link failed, perhaps: a look has to tell
)

// New makes a machine. Its first input is Start.
func New(cfg Config) (*Machine, error) {
	p := cfg.Params
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if !validHex(cfg.Cluster, 32) {
		return nil, fmt.Errorf("cluster %q is not 32 hexadecimal digits", cfg.Cluster)
	}
	if cfg.Random == nil || cfg.Made == nil {
		return nil, errors.New("no source of random numbers, or no wall clock")
	}
	self := cfg.Self
	self.Inc = 1 // drawn at Start
	self.Addrs = nil
	if err := self.validate(); err != nil {
		return nil, err
	}
	if self.Cache > p.CacheMax {
		return nil, fmt.Errorf("listings of the storage may be %d ms old: the limit is %d ms", self.Cache, p.CacheMax)
	}
	if !validText(cfg.FileID, MaxName) {
		return nil, fmt.Errorf("kind of file IDs is over %d bytes or no plain text", MaxName)
	}
	if cfg.Policy != nil {
		if err := cfg.Policy.validate(); err != nil {
			return nil, err
		}
	}
	cfg.Self.Addrs = ClipAddrs(cfg.Self.Addrs)
	return newMachine(cfg), nil
}

// newMachine is New without the checks, which tests of broken rules leave out.
func newMachine(cfg Config) *Machine {
	return &Machine{
		cfg: cfg, p: cfg.Params, lives: slices.Clone(cfg.Former),
		v:      &View{Cluster: cfg.Cluster},
		lookAt: never,
		peers:  map[Node]*peer{},
		fences: map[Node]*fence{}, dead: map[Node]string{},
		joiners: map[Node]*joiner{}, talk: map[Node]int64{},
	}
}

// Step takes one input that happened at the time now (CLOCK_BOOTTIME in
// milliseconds, read by the driver just before) and sets out, which it resets
// first, to what has to be done. It returns at once.
func (m *Machine) Step(now int64, in Input, out *Output) {
	out.Reset()
	m.out = out
	m.now = max(m.now, now)
	if !m.end {
		m.step(in)
	}
	if !m.end {
		m.storage()
	}
	out.LiveUntil = m.liveUntil()
	if !m.end {
		m.away = m.offline()
	}
	if out.Offline = m.away; m.away {
		clear(out.Send)
		out.Send, out.SendSync = out.Send[:0], out.SendSync[:0]
	}
	out.Granting = m.synced && m.now < out.LiveUntil
	m.noteTenure(out)
	m.out = nil
}

func (m *Machine) step(in Input) {
	switch in := in.(type) {
	case Start:
		m.start(in)
	case Tick:
		m.tick()
	case Received:
		m.received(in.Envelope)
	case SyncArrived:
		m.syncArrived(in)
	case Frozen:
		m.onFrozen(in)
	case Done:
		m.done(in)
	case Fenced:
		m.onFenced(in)
	case Dead:
		m.dead[in.Node] = in.How
	case Leave:
		m.onLeave()
	case Remove:
		m.onRemove(in)
	case Revoke:
		m.onRevoke(in)
	case SetPolicy:
		m.onSetPolicy(in)
	case SetAddrs:
		m.cfg.Self.Addrs = ClipAddrs(in.Addrs)
	default:
		panic(fmt.Sprintf("unknown input %T", in))
	}
	if !m.end {
		m.tryUnreadable()
	}
	switch {
	case m.end:
	case m.st == StateOut:
		m.tryJoin()
	case m.st == StateLeaving:
		m.tryLeave()
	}
}

func (m *Machine) start(in Start) {
	m.saved, m.began = in.Saved, m.now
	m.lastTick, m.knownFrom = m.now, m.now
	// A process that starts does not wait: whoever starts it again and again
	// makes pauses, and where all have died it would be added to the wait for
	// the tenures of the dead.
	m.join.at = m.now
	m.disk.due = m.now
	m.newInc()
	m.join.rebase()
}

func (m *Machine) tick() {
	m.wake()
	m.expireWishes()
	switch m.st {
	case StateOut:
		m.joinTick()
	case StateMember:
		m.served()
		if m.join.ask != nil && (len(m.order) == 0 || m.anyHeard()) && m.twin() == nil {
			m.dropAsk()
		}
		m.beatAll(false)
		m.decide()
	case StateLeaving:
		m.beatAll(false)
	}
}

// wake adds the time since the last tick to all counters of waking time.
func (m *Machine) wake() {
	if m.now <= m.lastTick {
		return
	}
	m.known += m.awake(m.knownFrom)
	for _, y := range m.order {
		y.silent += m.awake(y.promAt)
	}
	m.disk.wake(m)
	m.join.wake(m)
	m.leave.wake(m)
	m.lastTick = m.now
}

// awake is how much of the time since the last tick counts for what began at
// from. Being stopped for any time counts as Cap; a clock that jumps in a tick
// of ordinary length adds at most Cap - Tick to what really passed, and
// Params.Validate has that in the bound of Delta.
func (m *Machine) awake(from int64) int64 {
	if m.bug.sleepIsSilence {
		return m.now - max(from, m.lastTick)
	}
	if from > m.lastTick {
		return min(m.now-from, m.p.Cap-m.p.Tick)
	}
	return min(m.now-m.lastTick, m.p.Cap)
}

// newInc draws an incarnation. What was said to the former one is not heard
// any more, and no view that is based on an older one can add this one.
func (m *Machine) newInc() {
	if m.bug.sameIncarnation && m.me.Inc != 0 {
		return
	}
	m.me = Node{Peer: m.cfg.Self.Peer, Inc: Inc(m.cfg.Random())}
	for m.me.Inc == 0 || m.v.Has(m.me) {
		m.me.Inc = Inc(m.cfg.Random())
	}
	m.lives = append(m.lives, m.me.Inc)
	if len(m.lives) > maxLives {
		m.lives = slices.Delete(m.lives, 0, len(m.lives)-maxLives)
	}
	m.out.Inc = m.me.Inc
}

// self is the record of this incarnation.
func (m *Machine) self() Member {
	s := m.cfg.Self
	s.Node = m.me
	return s
}

// top is the newest view that this node follows, or is about to.
func (m *Machine) top() *View {
	if m.next != nil {
		return m.next.view
	}
	return m.v
}

// send sends to a node of another peer; there is no way to another incarnation
// of the own peer.
func (m *Machine) send(to Node, msg Message) {
	if to.Peer == m.me.Peer || m.offline() {
		return
	}
	m.out.Send = append(m.out.Send, Envelope{From: m.me, To: to, Epoch: m.v.Epoch, Msg: msg})
}

func (m *Machine) note(kind NoticeKind, n Node, host, format string, args ...any) {
	m.out.Notices = append(m.out.Notices, Notice{Kind: kind, Epoch: m.v.Epoch, Node: n, Host: host, Text: fmt.Sprintf(format, args...)})
}

// save keeps s over the end of the process.
func (m *Machine) save(s Saved) {
	if s != m.saved {
		m.saved = s
		m.out.Save = &s
	}
}

// finish ends the machine.
func (m *Machine) finish(e End) {
	if m.st == StateMember {
		m.out.Expelled = &Expelled{Why: e.Text}
	}
	for _, w := range m.wishes {
		m.answer(w, fmt.Errorf("this node is no member any more: %s", e.Text))
	}
	m.wishes = nil
	m.st, m.end = StateEnded, true
	m.next, m.synced = nil, false
	m.out.End = &e
}

// Self is this node, in its present incarnation.
func (m *Machine) Self() Node { return m.me }

// State is what this node is.
func (m *Machine) State() State { return m.st }

// View is the view that this node has installed or, outside, the newest that
// it knows; that of epoch 0 has no members. It must not be changed.
func (m *Machine) View() *View { return m.v }

// Epoch is the epoch of View.
func (m *Machine) Epoch() locks.Epoch { return m.v.Epoch }
