package member

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// Message is what two nodes say to each other about membership. SYNC, which is
// bulk, is not among them: see [Output.SendSync].
type Message interface {
	append(b []byte) []byte
	kind() byte
	// String is the form of traces and of the debug log.
	String() string
}

// HB is the heartbeat of a member to another one, in one epoch. "I heard you"
// and "I promise you" are apart: a promise is given only to a peer that is
// known to hear this node.
type HB struct {
	// T is the sender's clock when it sent this.
	T int64
	// Heard is the newest T of the receiver that the sender has received at
	// this epoch, Prom the newest one that it promises: the receiver has
	// tenure from the sender until Prom + L. Zero is none.
	Heard, Prom int64
	// Delay is how long ago, in milliseconds, the sender received Heard.
	Delay int64
	// Ask: answer at once, a promise is overdue.
	Ask bool
	// GotSync: the sender has the receiver's state of this epoch.
	GotSync bool
}

// ViewMsg carries a view, as its file (see [EncodeView]). Views are facts: one
// that was received is as good as one that was read.
type ViewMsg struct{ View *View }

// Hello says "the epoch of this message is the newest that I know". From a node
// outside of it, it asks to be welcomed: that epoch is the base, the only one
// that the sender's incarnation may be added to.
type Hello struct {
	// Ready: all members of the base have welcomed the sender.
	Ready  bool
	Member Member
	Policy string // hash of the policy it wants; empty: that of the cluster
	Timing Timing
	FileID string // what it tells files apart by, see Config.FileID
}

// Welcome: the sender, a member, hears the newcomer and would have it.
type Welcome struct{}

// Refused: the sender, a member, would not have the newcomer.
type Refused struct {
	Code Refusal
	Text string // for people, at most MaxWhy bytes
}

// Refusal is why a newcomer is refused.
type Refusal uint8

const (
	RefusedRevoked Refusal = iota + 1 // an admin revoked the peer
	RefusedPolicy                     // it asks for another policy
	RefusedTiming                     // it has other parameters
	RefusedFull                       // there are MaxMembers members
	RefusedFileID                     // it tells files apart by something else
	refusedEnd
)

func (r Refusal) String() string {
	switch r {
	case RefusedRevoked:
		return "revoked"
	case RefusedPolicy:
		return "policy"
	case RefusedTiming:
		return "timing"
	case RefusedFull:
		return "full"
	case RefusedFileID:
		return "file-id"
	}
	return fmt.Sprintf("Refusal(%d)", uint8(r))
}

// Envelope is a message with its sender, its receiver and the sender's epoch.
// For a node outside that is the newest epoch that it knows.
type Envelope struct {
	From, To Node
	Epoch    locks.Epoch
	Msg      Message
}

func (e Envelope) String() string {
	return fmt.Sprintf("%v->%v @%d %v", e.From, e.To, e.Epoch, e.Msg)
}

const (
	kindHB byte = iota + 1
	kindView
	kindHello
	kindWelcome
	kindRefused
)

// MaxMessage bounds the encoding of a message.
const MaxMessage = MaxViewSize + 64

// maxTime bounds the clock values of a message: two of them can be added.
const maxTime = 1 << 61

func (HB) kind() byte      { return kindHB }
func (ViewMsg) kind() byte { return kindView }
func (Hello) kind() byte   { return kindHello }
func (Welcome) kind() byte { return kindWelcome }
func (Refused) kind() byte { return kindRefused }

func (m HB) String() string {
	s := fmt.Sprintf("HB t=%d heard=%d prom=%d", m.T, m.Heard, m.Prom)
	if m.Ask {
		s += " ask"
	}
	if m.GotSync {
		s += " gotsync"
	}
	return s
}

func (m ViewMsg) String() string { return "VIEW " + m.View.String() }

func (m Hello) String() string {
	if m.Ready {
		return "HELLO ready"
	}
	return "HELLO"
}

func (Welcome) String() string   { return "WELCOME" }
func (m Refused) String() string { return fmt.Sprintf("REFUSED %v: %s", m.Code, m.Text) }

// Encode is e on the wire. The peers are not in it: the channel knows them.
//
//	message  = kind(1) epoch inc-of-sender inc-of-receiver fields
//	HB       = T heard prom delay flags(bit 0 ask, bit 1 gotsync)
//	VIEW     = the file of the view
//	HELLO    = ready member policy timing file-id
//	WELCOME  = nothing
//	REFUSED  = code text
//
// Numbers are unsigned varints, texts are behind their length (see package
// wire). A view that is out of bounds is an error.
func Encode(e Envelope) ([]byte, error) {
	b := []byte{e.Msg.kind()}
	b = wire.Uint(b, e.Epoch)
	b = wire.Uint(b, e.From.Inc)
	b = wire.Uint(b, e.To.Inc)
	if m, ok := e.Msg.(ViewMsg); ok {
		f, err := EncodeView(m.View)
		return append(b, f...), err
	}
	return e.Msg.append(b), nil
}

// Decode reads a message that came from the peer from to this node, whose peer
// ID is to. It never panics, and what it accepts Encode writes again in the
// same way, but for VIEW, whose JSON may differ in form. Cluster is the ID of
// this node's cluster.
func Decode(from, to, cluster string, b []byte) (Envelope, error) {
	if len(b) > MaxMessage {
		return Envelope{}, fmt.Errorf("%w: %d bytes, over %d", wire.ErrForm, len(b), MaxMessage)
	}
	r := wire.NewReader(b)
	kind := byte(r.Max(255))
	e := Envelope{
		Epoch: locks.Epoch(r.Max(uint64(MaxEpoch))),
		From:  Node{Peer: from, Inc: Inc(r.Uint())},
		To:    Node{Peer: to, Inc: Inc(r.Uint())},
	}
	switch kind {
	case kindHB:
		m := HB{T: readTime(r), Heard: readTime(r), Prom: readTime(r), Delay: readTime(r)}
		flags := r.Max(3)
		m.Ask, m.GotSync = flags&1 != 0, flags&2 != 0
		e.Msg = m
	case kindView:
		v, err := ParseView(r.Rest(), cluster)
		if r.Err() == nil && err != nil {
			return Envelope{}, err
		}
		e.Msg = ViewMsg{v}
	case kindHello:
		e.Msg = readHello(r)
	case kindWelcome:
		e.Msg = Welcome{}
	case kindRefused:
		m := Refused{Code: Refusal(r.Max(uint64(refusedEnd) - 1)), Text: r.String()}
		if r.Err() == nil && (m.Code == 0 || !validText(m.Text, MaxWhy)) {
			r.Failf("refusal %d, %d bytes", m.Code, len(m.Text))
		}
		e.Msg = m
	default:
		r.Failf("unknown kind %d", kind)
	}
	if err := r.End(); err != nil {
		return Envelope{}, err
	}
	if err := e.From.validate(); err != nil {
		return Envelope{}, fmt.Errorf("%w: sender: %v", wire.ErrForm, err)
	}
	if h, ok := e.Msg.(Hello); ok && h.Member.Node != e.From {
		return Envelope{}, fmt.Errorf("%w: HELLO of %v for %v", wire.ErrForm, e.From, h.Member.Node)
	}
	return e, nil
}

func readTime(r *wire.Reader) int64 { return int64(r.Max(maxTime)) }

func (m HB) append(b []byte) []byte {
	for _, t := range [...]int64{m.T, m.Heard, m.Prom, m.Delay} {
		b = wire.Uint(b, uint64(t))
	}
	var flags uint8
	if m.Ask {
		flags |= 1
	}
	if m.GotSync {
		flags |= 2
	}
	return wire.Uint(b, flags)
}

func (m ViewMsg) append(b []byte) []byte { return b } // Encode does it: it can fail

func (m Hello) append(b []byte) []byte {
	b = wire.Bool(b, m.Ready)
	b = wire.String(b, m.Member.Peer)
	b = wire.Uint(b, m.Member.Inc)
	b = wire.String(b, m.Member.Host)
	b = wire.Uint(b, uint(len(m.Member.Addrs)))
	for _, a := range m.Member.Addrs {
		b = wire.String(b, a)
	}
	b = wire.String(b, m.Member.Version)
	b = wire.String(b, m.Member.Boot)
	b = wire.Uint(b, m.Member.Lock.Dev)
	b = wire.Uint(b, m.Member.Lock.Ino)
	b = wire.Uint(b, uint64(m.Member.Cache))
	b = wire.String(b, m.Policy)
	for _, t := range [...]int64{m.Timing.Heartbeat, m.Timing.Hears, m.Timing.Tenure, m.Timing.Delta, m.Timing.LookTenure, m.Timing.CacheMax} {
		b = wire.Uint(b, uint64(t))
	}
	return wire.String(b, m.FileID)
}

func readHello(r *wire.Reader) Hello {
	m := Hello{Ready: r.Bool()}
	m.Member.Peer = r.String()
	m.Member.Inc = Inc(r.Uint())
	m.Member.Host = r.String()
	n := r.Len(1)
	if n > MaxAddrs {
		r.Failf("%d addresses, over %d", n, MaxAddrs)
		n = 0
	}
	for range n {
		m.Member.Addrs = append(m.Member.Addrs, r.String())
	}
	m.Member.Version = r.String()
	m.Member.Boot = r.String()
	m.Member.Lock.Dev = r.Uint()
	m.Member.Lock.Ino = r.Uint()
	m.Member.Cache = int64(r.Max(maxDuration))
	m.Policy = r.String()
	for _, t := range [...]*int64{&m.Timing.Heartbeat, &m.Timing.Hears, &m.Timing.Tenure, &m.Timing.Delta, &m.Timing.LookTenure, &m.Timing.CacheMax} {
		*t = int64(r.Max(maxDuration))
	}
	m.FileID = r.String()
	if r.Err() != nil {
		return Hello{}
	}
	if err := m.Member.validate(); err != nil {
		r.Failf("member: %v", err)
	} else if !validText(m.Policy, MaxName) {
		r.Failf("hash of the policy")
	} else if !validText(m.FileID, MaxName) {
		r.Failf("kind of file IDs")
	}
	return m
}

func (Welcome) append(b []byte) []byte { return b }

func (m Refused) append(b []byte) []byte {
	return wire.String(wire.Uint(b, m.Code), m.Text)
}
