package chronicle

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/metrics"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Chronicle puts what happens into the journal and the log, and remembers what is
// shown of it.
type Chronicle struct {
	Log     *slog.Logger
	Journal Journal
	Metrics *metrics.Set

	departed departed
	damages  damages
}

// Journal is a journal, to which records are added without waiting.
type Journal interface{ Append(r journal.Record) }

// Gone are those who went since the daemon began, without the members of v; the latest is
// the last.
func (c *Chronicle) Gone(v *member.View) []admin.Gone { return c.departed.but(v) }

// Damage is what status says of data that was not complete on the storage when its lock
// went to another host; empty if there is nothing to say.
func (c *Chronicle) Damage(now time.Time) string { return c.damages.problem(now) }

// Note puts what an admin does into the journal and the log.
func (c *Chronicle) Note(event journal.Event, id, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.Log.Warn(text)
	c.Journal.Append(journal.Record{Event: event, Reason: text, Peer: locks.NodeID(id)})
}

// Notice puts what happens to the membership into the journal and the log.
func (c *Chronicle) Notice(n member.Notice) {
	r := journal.Record{Epoch: n.Epoch, Event: journal.Note, Reason: n.Text, Peer: locks.NodeID(n.Node.Peer)}
	switch n.Kind {
	case member.Installed:
		r.Event = journal.View
	case member.Joined:
		r.Event = journal.Join
	case member.Left, member.Removed:
		r.Event = journal.Leave
	}
	c.Journal.Append(r)
	c.departed.note(n, time.Now())
	switch n.Kind {
	case member.Suspended:
		c.Metrics.Suspended(time.Now())
	case member.Resumed:
		c.Metrics.Resumed(time.Now())
	}
	log := c.Log.Info
	switch n.Kind {
	case member.Suspended, member.Removed, member.Storage, member.Fencing, member.Refusing:
		log = c.Log.Warn
	}
	if n.Node.IsZero() {
		log(n.Text, "epoch", n.Epoch)
	} else {
		log(n.Text, "epoch", n.Epoch, "node", n.Node.Peer, "host", n.Host)
	}
}

// LateWrite records a change that may have come too late.
func (c *Chronicle) LateWrite(w fusefs.LateWrite) {
	c.Metrics.LateWrite()
	c.Log.Error("a "+w.Operation+" may have reached the storage after its lock was lost", "path", w.Path, "offset", w.Offset, "length", w.Length,
		"pid", w.Program.PID, "command", w.Program.Command)
	c.Journal.Append(journal.Record{
		Event: journal.LateWrite, Path: w.Path, Key: locks.Key{File: w.File}, PID: w.Program.PID, UID: w.Program.UID, Command: w.Program.Command,
		Range:  locks.Range{Start: uint64(w.Offset), End: uint64(w.Offset) + uint64(w.Length)},
		Reason: "the " + w.Operation + " ended after the lock that protected it could have been lost",
	})
}

// Damaged records that what was written under a lock is not all on the storage.
// It does not wait.
func (c *Chronicle) Damaged(x engine.Damage) {
	name := x.Path
	if name == "" {
		name = x.Key.String()
	}
	r := journal.Record{Event: journal.Note, Path: x.Path, Key: x.Key, Peer: x.Node}
	if x.Err != nil {
		r.Reason = fmt.Sprintf("what was written under the lock of %s could not be written out before the lock was handed over: %v", name, x.Err)
	} else {
		host := string(x.Node)
		if n, err := member.ParseNode(x.Node); err == nil {
			host = n.Peer
		}
		r.Reason = fmt.Sprintf("%s could not write out what it wrote under the lock of %s; the first program here that gets the lock is told (EIO)", host, name)
	}
	c.damages.note(r.Reason, time.Now())
	c.Journal.Append(r)
}
