package member

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
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
	// Succeeds, if not zero, is the former self whose place this node takes, with
	// all that its engine held: the same process, with another program. Its engine
	// is frozen for good, and it says nothing any more. A notice ([Succeeded]) tells
	// that it has come about, Output.Expelled that it has not: one of them comes
	// with the first Freeze that has a View at the latest.
	Succeeds Node
	// SucceedsIn is the view that the former self had installed: the storage may
	// show an older listing of the views, for as long as Self.Cache says. Nil: not
	// known.
	SucceedsIn *View
	// Heir, if not nil, is the same where the former self was killed. That it has
	// ended has to be proved as for any other one: by Self.Boot and Self.Lock.
	// Its notices and outputs are those of Succeeds.
	Heir *Heir
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

// State is where a node is between its start and its end, as itself sees it: others
// may have dropped it already.
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
//
// Its methods say what an input means to which part; see package comment.
type Machine struct {
	*position

	memory     *memory
	proofs     *proofs
	succession *succession
	fences     *fences
	engine     *engine
	scans      *scans
	troubles   *troubles
	proposer   *proposer
	asking     *asking
	leaving    *leaving
	twins      *twins
	mail       *mail
	answering  *answering
	heartbeats *heartbeats
	lease      *lease
	silence    *silence
	terms      *terms
	sponsor    *sponsor
	changes    *changes
	welcomes   *welcomes
	joining    *joining
	storage    *storage

	offline bool // Output.Offline
}

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
	if h := cfg.Heir; h != nil {
		if !cfg.Succeeds.IsZero() {
			return nil, errors.New("the process before this one was replaced, or it was killed: not both")
		}
		if err := h.validate(&cfg.Self); err != nil {
			return nil, err
		}
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
// No part asks one that is made after it.
func newMachine(cfg Config) *Machine {
	b := &base{cfg: cfg, p: cfg.Params}
	i := &identity{base: b, lives: slices.Clone(cfg.Former), addrs: cfg.Self.Addrs}
	heir := &Heir{Of: cfg.Succeeds}
	if cfg.Heir != nil {
		heir = cfg.Heir
		i.lives = append(i.lives, heir.incs()...)
	}
	at := &position{base: b, identity: i, view: &View{Cluster: cfg.Cluster}}
	m := &Machine{position: at}
	m.memory = &memory{base: b}
	m.proofs = &proofs{position: at, dead: map[Node]string{}}
	m.succession = &succession{position: at, memory: m.memory, heir: heir, claimed: slices.Clone(heir.Claimed), over: heir.Of.IsZero()}
	m.fences = &fences{position: at, all: map[Node]*fence{}}
	m.engine = &engine{position: at}
	m.scans = &scans{position: at, at: never}
	m.troubles = &troubles{position: at, scans: m.scans}
	m.proposer = &proposer{position: at}
	m.asking = &asking{position: at, memory: m.memory, scans: m.scans}
	m.leaving = &leaving{position: at, memory: m.memory, engine: m.engine, scans: m.scans, proposer: m.proposer}
	m.twins = &twins{position: at, proofs: m.proofs, scans: m.scans, proposer: m.proposer, asking: m.asking, leaving: m.leaving}
	m.mail = &mail{position: at, twins: m.twins, talk: map[Node]int64{}}
	m.answering = &answering{position: at, leaving: m.leaving, mail: m.mail}
	m.heartbeats = &heartbeats{position: at, engine: m.engine, fences: m.fences, proposer: m.proposer, mail: m.mail, peers: map[Node]*peer{}}
	m.lease = &lease{position: at, scans: m.scans, troubles: m.troubles, heartbeats: m.heartbeats}
	m.silence = &silence{position: at, heartbeats: m.heartbeats}
	m.terms = &terms{position: at, fileID: cfg.FileID}
	m.sponsor = &sponsor{position: at, proposer: m.proposer, mail: m.mail, terms: m.terms, joiners: map[Node]*joiner{}}
	m.changes = &changes{position: at}
	m.welcomes = &welcomes{position: at, mail: m.mail, terms: m.terms}
	m.joining = &joining{position: at, memory: m.memory, proofs: m.proofs, succession: m.succession, fences: m.fences, scans: m.scans, proposer: m.proposer,
		asking: m.asking, twins: m.twins, mail: m.mail, terms: m.terms, welcomes: m.welcomes}
	m.storage = &storage{position: at, memory: m.memory, proposer: m.proposer, asking: m.asking, answering: m.answering}
	return m
}

// Step takes one input that happened at the time now (CLOCK_BOOTTIME in
// milliseconds, read by the driver just before) and sets out, which it resets
// first, to what has to be done. It returns at once.
func (m *Machine) Step(now int64, in Input, out *Output) {
	out.Reset()
	m.begin(now, out)
	if !m.ended() {
		m.step(in)
	}
	if !m.ended() {
		m.storage.next()
	}
	out.LiveUntil = m.lease.until()
	if !m.ended() {
		m.offline = m.twins.offline()
	}
	if out.Offline = m.offline; m.offline {
		clear(out.Send)
		out.Send, out.SendSync = out.Send[:0], out.SendSync[:0]
	}
	live := m.now < out.LiveUntil
	out.Granting = m.engine.synced && live
	m.lease.tell(live)
	if out.End != nil {
		m.succession.ended(out.End.Text)
		m.changes.giveUp(fmt.Errorf("this node is no member any more: %s", out.End.Text))
	}
	m.done()
}

// Self is this node, in its present incarnation.
func (m *Machine) Self() Node { return m.me }

// State tells whether this node is in its view; being so is not being live, see
// [Output.LiveUntil].
func (m *Machine) State() State { return m.state }

// View is the view that this node has installed or, outside, the newest that
// it knows; that of epoch 0 has no members. It must not be changed.
func (m *Machine) View() *View { return m.view }

// Epoch is the epoch of View.
func (m *Machine) Epoch() locks.Epoch { return m.view.Epoch }
