package p2p

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"github.com/libp2p/go-libp2p/core/protocol"
)

// The four protocols. Each has its version in its name, so that a node that
// speaks only another version refuses the stream before anything is said on it.
const (
	memberProtocol protocol.ID = "/dmxfs/member/2"
	lockProtocol   protocol.ID = "/dmxfs/lock/1"
	syncProtocol   protocol.ID = "/dmxfs/sync/1"
	askProtocol    protocol.ID = "/dmxfs/ask/1"
)

// Limits of what goes over the channels, in bytes.
const (
	// MaxMember is the limit of a message of the member channel. The largest
	// is a view, with a MiB at most, and what it is wrapped in.
	MaxMember = 1<<20 + 1<<10
	// MaxFrame is the limit of a frame of the lock channel.
	MaxFrame = 1 << 20
	// MaxSync is the limit of the state of one node for one epoch.
	MaxSync = 256 << 20
	// MaxQuestion and MaxAnswer are the limits of the ask channel.
	MaxQuestion = 1 << 20
	MaxAnswer   = 64 << 20
)

// maxReason is the limit of the text that goes with a refusal.
const maxReason = 1 << 10

// kind is the sixth byte of a stream.
type kind byte

const (
	kindMember kind = 'M'
	kindLock   kind = 'L'
	kindSync   kind = 'S'
	kindAsk    kind = 'A'
)

const (
	magic       = "dmxfs"
	wireVersion = 1
	preambleLen = len(magic) + 2
)

// appendPreamble appends what both directions of every stream begin with.
func appendPreamble(b []byte, k kind) []byte {
	return append(append(b, magic...), byte(k), wireVersion)
}

// readPreamble is the other side of appendPreamble. Its errors say what was
// found instead.
func readPreamble(r io.Reader, k kind) error {
	var b [preambleLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return fmt.Errorf("no greeting: %w", unexpected(err))
	}
	switch {
	case string(b[:len(magic)]) != magic:
		return fmt.Errorf("%w: the stream begins with %s, not as one of dmxfs", ErrProtocol, strconv.QuoteToASCII(string(b[:])))
	case kind(b[len(magic)]) != k:
		return fmt.Errorf("%w: a stream of kind %q where %q was expected", ErrProtocol, b[len(magic)], byte(k))
	case b[len(magic)+1] != wireVersion:
		return fmt.Errorf("%w: version %d of the wire format, this node has %d", ErrProtocol, b[len(magic)+1], wireVersion)
	}
	return nil
}

// status begins an answer.
type status byte

const (
	statusOK        status = iota // go on
	statusOldEpoch                // the epoch is over here
	statusNotMember               // not a member of this epoch, or another incarnation
	statusBusy                    // too much at once: try later
	statusFailed                  // an error, which the text tells
	statusLimit
)

func (s status) String() string {
	switch s {
	case statusOK:
		return "ok"
	case statusOldEpoch:
		return "old epoch"
	case statusNotMember:
		return "not a member"
	case statusBusy:
		return "busy"
	case statusFailed:
		return "failed"
	}
	return fmt.Sprintf("status(%d)", byte(s))
}

// hello opens a session of the lock channel, or a transfer of the sync
// channel: which epoch it belongs to, and from which incarnation to which.
type hello struct {
	Epoch, From, To uint64
}

const helloLen = 24

func (h hello) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.Epoch)
	b = binary.BigEndian.AppendUint64(b, h.From)
	return binary.BigEndian.AppendUint64(b, h.To)
}

func readHello(r io.Reader) (hello, error) {
	var b [helloLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return hello{}, unexpected(err)
	}
	return hello{
		Epoch: binary.BigEndian.Uint64(b[0:]),
		From:  binary.BigEndian.Uint64(b[8:]),
		To:    binary.BigEndian.Uint64(b[16:]),
	}, nil
}

// verdict is the answer to a hello. Value is the number of the last frame that
// was received (lock channel, statusOK) or the epoch of the one who refuses.
type verdict struct {
	Status status
	Value  uint64
	Reason string // only with a refusal
}

func (v verdict) append(b []byte) []byte {
	reason := v.Reason
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	b = append(b, byte(v.Status))
	b = binary.BigEndian.AppendUint64(b, v.Value)
	b = binary.BigEndian.AppendUint16(b, uint16(len(reason)))
	return append(b, reason...)
}

func readVerdict(r io.Reader) (verdict, error) {
	var b [11]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return verdict{}, unexpected(err)
	}
	v := verdict{Status: status(b[0]), Value: binary.BigEndian.Uint64(b[1:])}
	n := int(binary.BigEndian.Uint16(b[9:]))
	if v.Status >= statusLimit {
		return verdict{}, fmt.Errorf("%w: unknown status %d", ErrProtocol, b[0])
	}
	if n > maxReason {
		return verdict{}, fmt.Errorf("%w: a reason of %d bytes", ErrProtocol, n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return verdict{}, unexpected(err)
	}
	v.Reason = string(text)
	return v, nil
}

// err is nil for statusOK.
func (v verdict) err() error {
	if v.Status == statusOK {
		return nil
	}
	return &refusal{v}
}

// refusal is a verdict as an error.
type refusal struct{ verdict }

func (e *refusal) Error() string {
	// The text comes from the peer: quote it, so that it can't forge a log line.
	return fmt.Sprintf("refused by the peer (%s): %s", e.Status, strconv.Quote(e.Reason))
}

func (e *refusal) Is(target error) bool { return target == ErrRefused }

// Frames of the lock channel.
const frameHead = 12 // length of the payload, 4 bytes; sequence number, 8 bytes

func appendFrame(b []byte, seq uint64, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint64(b, seq)
	return append(b, payload...)
}

// readFrame reads one frame. The payload is the caller's.
func readFrame(r *bufio.Reader) (seq uint64, payload []byte, err error) {
	h, err := r.Peek(frameHead)
	if err != nil {
		return 0, nil, endOf(h, err)
	}
	n := binary.BigEndian.Uint32(h)
	seq = binary.BigEndian.Uint64(h[4:])
	_, _ = r.Discard(frameHead) // what was peeked is there
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, the limit is %d", ErrProtocol, n, MaxFrame)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, unexpected(err)
	}
	return seq, payload, nil
}

// numbered is a frame with its number.
type numbered struct {
	seq   uint64
	frame []byte
}

// size is how long it is in a session.
func (x numbered) size() int { return frameHead + len(x.frame) }

// cutFrame cuts the first frame off b, of which it is part; rest is nil if it is not all
// there yet.
func cutFrame(b []byte) (x numbered, rest []byte, err error) {
	if len(b) < frameHead {
		return x, nil, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n > MaxFrame {
		return x, nil, fmt.Errorf("%w: a frame of %d bytes, the limit is %d", ErrProtocol, n, MaxFrame)
	}
	if len(b) < frameHead+int(n) {
		return x, nil, nil
	}
	return numbered{binary.BigEndian.Uint64(b[4:]), b[frameHead : frameHead+n]}, b[frameHead+n:], nil
}

// memberHead goes before each message of the member channel. Times are in
// microseconds; they serve to measure the round trip, see [Transport.Peers].
type memberHead struct {
	Len  uint32 // of the message
	Sent uint64 // clock of the sender when it wrote this
	Echo uint64 // Sent of the last message that the sender had received, 0 for none
	Held uint64 // time between that reception and Sent
}

const memberHeadLen = 28

func (h memberHead) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.Len)
	b = binary.BigEndian.AppendUint64(b, h.Sent)
	b = binary.BigEndian.AppendUint64(b, h.Echo)
	return binary.BigEndian.AppendUint64(b, h.Held)
}

func readMember(r *bufio.Reader) (memberHead, []byte, error) {
	b, err := r.Peek(memberHeadLen)
	if err != nil {
		return memberHead{}, nil, endOf(b, err)
	}
	h := memberHead{
		Len:  binary.BigEndian.Uint32(b),
		Sent: binary.BigEndian.Uint64(b[4:]),
		Echo: binary.BigEndian.Uint64(b[12:]),
		Held: binary.BigEndian.Uint64(b[20:]),
	}
	_, _ = r.Discard(memberHeadLen)
	if h.Len > MaxMember {
		return memberHead{}, nil, fmt.Errorf("%w: a message of %d bytes, the limit is %d", ErrProtocol, h.Len, MaxMember)
	}
	msg := make([]byte, h.Len)
	if _, err := io.ReadFull(r, msg); err != nil {
		return memberHead{}, nil, unexpected(err)
	}
	return h, msg, nil
}

// unexpected makes an end of the stream within something an error of its own.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// endOf tells the end of the stream between two frames (io.EOF) from one
// within the head of a frame, of which got is what there was.
func endOf(got []byte, err error) error {
	if len(got) > 0 {
		return unexpected(err)
	}
	return err
}
