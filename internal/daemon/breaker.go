package daemon

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/cluster"
)

// breakTime is how long I/O that is under way under a lock has to end before the
// lock is broken.
const breakTime = 15 * time.Second

// breaker breaks locks: of programs of this host, and by way of other members.
type breaker struct {
	*chronicle.Chronicle
	asker
	node   *atomic.Pointer[cluster.Node]
	server *atomic.Pointer[fusefs.Server]
	engine *engine.Engine
	self   string // peer ID
}

// breakLocks has each node break the locks that it holds.
func (b *breaker) breakLocks(ctx context.Context, q admin.BreakOrder) admin.Broken {
	self := b.self
	host, _ := os.Hostname()
	byNode := map[string][]admin.Lock{}
	for _, l := range q.Locks {
		byNode[l.Node] = append(byNode[l.Node], l)
	}
	a := admin.Broken{Broken: []admin.Lock{}, Errors: []string{}}
	for _, id := range slices.Sorted(maps.Keys(byNode)) {
		list := byNode[id]
		part := admin.BreakOrder{Locks: list, Reason: fmt.Sprintf("broken by an admin on %s: %s", host, q.Reason)}
		var done admin.Broken
		var err error
		if id == self {
			done = b.breakHere(ctx, part)
		} else {
			err = b.ask(ctx, id, breakTime+askTimeout, question{What: "break", Break: &part}, &done)
		}
		if err != nil {
			done.Errors = append(done.Errors, fmt.Sprintf("%s (%s): %v", list[0].Host, id, err))
		}
		admin.AllReceived(done.Broken)
		a.Broken = append(a.Broken, done.Broken...)
		a.Errors = append(a.Errors, done.Errors...)
		if id != self {
			for _, l := range done.Broken {
				b.Note(journal.Note, id, "an admin broke the lock of %s on %q, class %s, held by process %d (%s): %s",
					l.Host, l.Path, l.Class, l.PID, l.Command, q.Reason)
			}
		}
	}
	return a
}

// breakFor breaks locks for another node, if that is a member: to know the
// secret, or to have been one, is not enough. Who asked is in the journal, as
// this node knows it, whatever the reason claims.
func (b *breaker) breakFor(ctx context.Context, from peer.ID, q admin.BreakOrder) admin.Broken {
	id := from.String()
	name, ok := chronicle.MemberName(b.node.Load().Status().View, id)
	if !ok {
		b.Note(journal.Note, id, "%s is no member, and may not break locks: %d were meant: %s", id, len(q.Locks), q.Reason)
		return admin.Broken{Broken: []admin.Lock{}, Errors: []string{"only members may break locks"}}
	}
	b.Note(journal.Note, id, "%s has %d locks broken: %s", name, len(q.Locks), q.Reason)
	q.Reason += fmt.Sprintf(" (%s asked for it)", name)
	return b.breakHere(ctx, q)
}

// breakHere breaks locks that programs of this node hold: first their I/O is
// kept from going on, then the locks are freed.
func (b *breaker) breakHere(ctx context.Context, q admin.BreakOrder) admin.Broken {
	a := admin.Broken{Broken: []admin.Lock{}, Errors: []string{}}
	host, _ := os.Hostname()
	keys := map[locks.Key][]locks.HandleID{}
	// The numbers of requests begin anew with each daemon.
	type which struct {
		request uint64
		file    string
		class   string
		pid     int
	}
	wanted := map[which]bool{}
	for _, l := range q.Locks {
		wanted[which{l.Request, l.File, l.Class, l.PID}] = true
	}
	paths := map[locks.Key]string{}
	for l := range b.engine.List() {
		if l.State == engine.Held && wanted[which{l.Request, l.Key.File, l.Key.Class.String(), l.Program.PID}] && !slices.Contains(keys[l.Key], l.Handle) {
			keys[l.Key], paths[l.Key] = append(keys[l.Key], l.Handle), l.Path
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, breakTime, fmt.Errorf("waited %v", breakTime))
	defer cancel()
	for k, handles := range keys {
		lost := b.engine.Condemn(k, handles, q.Reason)
		if err := b.server.Load().Break(ctx, k, handles); err != nil {
			b.engine.Condemn(k, handles, "")
			a.Errors = append(a.Errors, fmt.Sprintf("%s: %q: the lock stays, and its programs get errors: %v", host, paths[k], err))
			continue
		}
		b.engine.Break(k, handles)
		b.Metrics.Broken(len(lost))
		for _, l := range lost {
			b.Log.Error("a lock is lost", "path", l.Path, "class", k.Class.String(), "mode", l.Mode.String(),
				"pid", l.Program.PID, "command", l.Program.Command, "why", q.Reason)
			x := admin.Lock{
				Path: l.Path, Class: k.Class.String(), Mode: l.Mode.String(), Start: l.Range.Start, End: rangeEnd(l.Range),
				State: "lost", Node: b.self, Host: host, PID: l.Program.PID, Command: l.Program.Command, UID: l.Program.UID,
				File: k.File,
			}
			a.Broken = append(a.Broken, x.ToSend())
		}
	}
	return a
}
