package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/metrics"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// The parts say what they need as interfaces of their own. These types are a
// daemon in the shape that each of them wants.

// lockTransport is what the engine sends by.
type lockTransport daemon

func (t *lockTransport) Send(e locks.Epoch, to locks.NodeID, frame []byte) {
	t.messages.Add(1)
	if err := t.transport.Send(e, to, frame); err != nil {
		if errors.Is(err, p2p.ErrTooLong) {
			// Only a bug can make it so. Somebody would wait for it for ever.
			t.log.Error("a lock message cannot be sent: this node ends, and the others go on without it", "to", to, "epoch", e, "err", err)
			if n := t.node.Load(); n != nil {
				n.Fail(err)
			}
			return
		}
		// The epoch has ended.
		t.log.Debug("lock message not sent", "to", to, "epoch", e, "err", err)
	}
}

// receive takes a message that the engine could not take at once.
func (t *lockTransport) receive(from locks.NodeID, e locks.Epoch, frame []byte) {
	t.messages.Add(1)
	t.engine.Receive(from, e, frame)
}

// files is the mount as the engine sees it. Before there is a mount nothing
// has been read or written.
type files daemon

func (f *files) Flush(k locks.Key) error {
	if s := f.server.Load(); s != nil {
		defer func(began time.Time) { f.metrics.Handover(time.Since(began)) }(time.Now())
		return s.Flush(k)
	}
	return nil
}

func (f *files) FlushAll(ks []locks.Key) map[locks.Key]error {
	if s := f.server.Load(); s != nil {
		return s.FlushAll(ks)
	}
	return nil
}

func (f *files) Clean(k locks.Key) bool {
	s := f.server.Load()
	return s == nil || s.Clean(k)
}

func (f *files) Yield(k locks.Key) {
	if s := f.server.Load(); s != nil {
		s.Wanted(k)
	}
}

func (f *files) Refresh(k locks.Key) error {
	if s := f.server.Load(); s != nil {
		defer func(began time.Time) { f.metrics.Refresh(time.Since(began)) }(time.Now())
		return s.Refresh(k)
	}
	return nil
}

func (f *files) Expelled() {
	if s := f.server.Load(); s != nil {
		s.Expelled()
	}
}

// recorder is the journal as the engine sees it.
type recorder daemon

// Healthy tells the engine not to grant new locks. A disk that is full is no
// reason for that, unless somebody needs the journal as evidence.
func (r *recorder) Healthy() error {
	if r.cfg.Journal != config.JournalRequired {
		return nil
	}
	return r.journal.Healthy()
}

func (r *recorder) Pace(much bool) { r.journal.Pace(much) }
func (r *recorder) Crowded() bool  { return r.journal.Crowded() }

var events = [...]journal.Event{
	engine.Requested: journal.Requested, engine.Waiting: journal.Waiting, engine.Granted: journal.Granted,
	engine.Denied: journal.Denied, engine.Withdrawn: journal.Withdrawn, engine.Released: journal.Released,
	engine.Lost: journal.Lost,
}

// steps are those that are counted; the others are negative.
var steps = [...]metrics.Step{
	0: -1, engine.Waiting: -1, engine.Requested: metrics.Requested, engine.Granted: metrics.Granted, engine.Denied: metrics.Denied,
	engine.Withdrawn: metrics.Withdrawn, engine.Released: metrics.Released, engine.Lost: metrics.Lost,
}

func (r *recorder) Record(ev engine.Event) {
	if steps[ev.Step] >= 0 {
		r.metrics.Lock(metrics.Lock{
			Step: steps[ev.Step], Class: int(ev.Key.Class) - 1, Algorithm: ev.Algorithm, Final: ev.Final, Wait: ev.Wait, Hold: ev.Held, Messages: ev.Messages,
		})
	}
	r.journal.Append(journal.Record{
		Time: ev.Time, Epoch: ev.Epoch, Event: events[ev.Step], Final: ev.Final, Request: ev.Request, Key: ev.Key, Path: ev.Path,
		Mode: ev.Mode, Range: ev.Range, Algorithm: ev.Algorithm, PID: ev.Program.PID, UID: ev.Program.UID,
		Command: ev.Program.Command, Wait: ev.Wait, Messages: ev.Messages, Reason: ev.Reason, Token: ev.Token,
	})
}

// clusterTransport is what the membership speaks by.
type clusterTransport daemon

func (t *clusterTransport) SetView(e locks.Epoch, self locks.NodeID, members []locks.NodeID) error {
	return t.transport.SetView(e, self, members)
}

func (t *clusterTransport) DropView() { t.transport.DropView() }

func (t *clusterTransport) Member(to string, msg []byte) {
	if id, err := peer.Decode(to); err == nil {
		t.transport.SendMember(id, msg)
	}
}

func (t *clusterTransport) SendSync(ctx context.Context, to locks.NodeID, e locks.Epoch, s []byte) error {
	return t.transport.SendSync(ctx, to, e, s)
}

func (t *clusterTransport) Want(all []member.Contact, revoked []string) {
	wanted := make([]peer.AddrInfo, 0, len(all))
	for _, c := range all {
		if info, err := addrInfo(c); err == nil {
			wanted = append(wanted, info)
		}
	}
	t.transport.SetWanted(wanted)
	var out []peer.ID
	for _, r := range revoked {
		if id, err := peer.Decode(r); err == nil {
			out = append(out, id)
		}
	}
	t.host.Revoke(out)
}

// Online lets this node be seen, at the latest now where others find it.
func (t *clusterTransport) Online(on bool) {
	t.host.SetOnline(on)
	if on {
		t.book.seen()
	}
}

// storage is where views are decided.
type storage daemon

func (s *storage) Do(op member.Op) (member.Look, error) {
	if a, ok := op.(member.AnswerOp); ok {
		a.Answer.Tried = s.book.tried(a.Answer.To.Peer)
		op = a
	}
	began := time.Now()
	done := register.Do(s.register, op, boottime.Milliseconds)
	s.metrics.Storage(operationName(op), time.Since(began), done.Err)
	return done.Look, done.Err
}

// boundEngine is the engine as the membership drives it, with the journal and
// the log told of what is lost.
type boundEngine daemon

func (b *boundEngine) Freeze() {
	b.metrics.Frozen(time.Now())
	b.engine.Freeze()
}

func (b *boundEngine) State() []byte         { return b.engine.State() }
func (b *boundEngine) Install(v *locks.View) { b.engine.Install(v) }
func (b *boundEngine) Ping()                 { b.engine.Ping() }

func (b *boundEngine) Sync(from locks.NodeID, e locks.Epoch, s []byte) error {
	return b.engine.Sync(from, e, s)
}

func (b *boundEngine) Resume() {
	b.joinedOnce.Do(func() {
		b.takeover.times.mark("joined")
		close(b.joined)
	})
	b.engine.Resume()
}

func (b *boundEngine) ResumeIO() { b.engine.ResumeIO() }

func (b *boundEngine) Expelled(reason string) {
	lost := b.engine.Expelled(reason)
	b.lostAll.Store(true)
	b.metrics.Expelled(time.Now())
	b.log.Error("this node was expelled: its locks are lost", "why", reason, "locks", len(lost))
	b.journal.Append(journal.Record{Event: journal.Fenced, Reason: reason})
	for _, l := range lost {
		what := "a wait for a lock is lost"
		if l.Held {
			what = "a lock is lost"
		}
		b.log.Error(what, "path", l.Path, "class", l.Key.Class.String(), "mode", l.Mode.String(),
			"pid", l.Program.PID, "command", l.Program.Command)
	}
}

// onMember takes a message of the membership protocol.
func (d *daemon) onMember(from peer.ID, b []byte) {
	n := d.node.Load()
	if n == nil {
		return // it will be said again
	}
	if err := n.Message(from.String(), b); err != nil {
		d.log.Warn("a peer sends what is no membership message of this cluster: dropped", "peer", from.String(), "err", err)
	}
}

// onSync takes the state of a member's engine.
func (d *daemon) onSync(from locks.NodeID, e locks.Epoch, s []byte) {
	if n := d.node.Load(); n != nil {
		n.State(context.Background(), from, e, s)
	}
}

var _ cluster.Engine = (*boundEngine)(nil)
