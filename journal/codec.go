package journal

import (
	"fmt"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// A record within a block is its length and
//
//	seq, after the record before it
//	time, nanoseconds after the block's first one (zigzag)
//	event, flags (1: final)
//	epoch, request
//	class, mode, start, end (0: end of file, else end+1)
//	pid, uid (pid is zigzag: nothing says that it is positive)
//	wait in ns, messages
//	token, stamp: sn, n, site
//	path, file, algorithm, node, peer, command, reason
//
// with numbers and strings as in package wire. The node is empty when it is the
// one that the block names. Checksums are the block's.

const flagFinal = 1

// zigzag maps small numbers of either sign to small numbers without one.
func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// blockContext is what the records of a block leave out.
type blockContext struct {
	seq  uint64 // of the record before
	time int64  // Unix nanoseconds, of the block's first record
	node locks.NodeID
}

func cut(s string) string {
	if len(s) > MaxString {
		return s[:MaxString]
	}
	return s
}

// appendRecord appends r without its length.
func appendRecord(b []byte, r *Record, c *blockContext) []byte {
	b = wire.Uint(b, r.Seq-c.seq)
	b = wire.Uint(b, zigzag(r.Time.UnixNano()-c.time))
	b = wire.Uint(b, uint8(r.Event))
	flags := uint8(0)
	if r.Final {
		flags |= flagFinal
	}
	b = wire.Uint(b, flags)
	b = wire.Uint(b, uint64(r.Epoch))
	b = wire.Uint(b, r.Request)
	b = wire.Uint(b, uint8(r.Key.Class))
	b = wire.Uint(b, uint8(r.Mode))
	b = wire.Uint(b, r.Range.Start)
	if r.Range.End >= locks.MaxOffset {
		b = wire.Uint(b, uint64(0))
	} else {
		b = wire.Uint(b, r.Range.End+1)
	}
	b = wire.Uint(b, zigzag(int64(r.PID)))
	b = wire.Uint(b, uint64(r.UID))
	b = wire.Uint(b, uint64(max(r.Wait, 0)))
	b = wire.Uint(b, uint64(max(r.Messages, 0)))
	b = wire.Uint(b, uint64(r.Token))
	b = wire.Uint(b, r.Stamp.SN)
	b = wire.Uint(b, r.Stamp.N)
	b = wire.String(b, cut(string(r.Stamp.Site)))
	b = wire.String(b, cut(r.Path))
	b = wire.String(b, cut(r.Key.File))
	b = wire.String(b, cut(r.Algorithm))
	node := r.Node
	if node == c.node {
		node = ""
	}
	b = wire.String(b, cut(string(node)))
	b = wire.String(b, cut(string(r.Peer)))
	b = wire.String(b, cut(r.Command))
	b = wire.String(b, cut(r.Reason))
	return b
}

// decoder reads the records of a block. It keeps the last record, since the
// strings of the next one are mostly the same: they then cost no memory.
type decoder struct {
	blockContext
	rec Record
}

// decode reads one record into d.rec.
func (d *decoder) decode(b []byte) error {
	in := wire.NewReader(b)
	r := &d.rec
	r.Seq = d.seq + in.Uint()
	r.Time = time.Unix(0, d.time+unzigzag(in.Uint()))
	r.Event = Event(in.Max(255))
	r.Final = in.Max(flagFinal) == flagFinal
	r.Epoch = locks.Epoch(in.Uint())
	r.Request = in.Uint()
	r.Key.Class = locks.Class(in.Max(255))
	r.Mode = locks.Mode(in.Max(255))
	r.Range.Start = in.Uint()
	if r.Range.End = in.Max(locks.MaxOffset); r.Range.End == 0 {
		r.Range.End = locks.MaxOffset
	} else {
		r.Range.End--
	}
	r.PID = int(unzigzag(in.Uint()))
	r.UID = uint32(in.Max(1<<32 - 1))
	r.Wait = time.Duration(in.Max(1<<63 - 1))
	r.Messages = int(in.Max(1<<63 - 1))
	r.Token = locks.Token(in.Uint())
	r.Stamp.SN = in.Uint()
	r.Stamp.N = in.Uint()
	take(in, &r.Stamp.Site)
	take(in, &r.Path)
	take(in, &r.Key.File)
	take(in, &r.Algorithm)
	take(in, &r.Node)
	take(in, &r.Peer)
	take(in, &r.Command)
	take(in, &r.Reason)
	if err := in.End(); err != nil {
		return err
	}
	switch {
	case r.Event == 0:
		return fmt.Errorf("%w: no event", wire.ErrForm)
	case r.Seq < d.seq:
		return fmt.Errorf("%w: the sequence goes back", wire.ErrForm)
	case r.Node == d.node && d.node != "":
		return fmt.Errorf("%w: the block's node again", wire.ErrForm)
	}
	if r.Node == "" {
		r.Node = d.node
	}
	d.seq = r.Seq
	return nil
}

// take reads a string into s, which keeps its memory when it is the same.
func take[T ~string](in *wire.Reader, s *T) {
	if b := in.Bytes(); string(*s) != string(b) {
		*s = T(b)
	}
}
