package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"dmxfs/journal"
	"dmxfs/locks"
	"dmxfs/locks/engine"
	"dmxfs/p2p/member"
)

// What an admin can do to the cluster through the control socket. Everything
// goes to the journal, with the reason.

const (
	// wishTime is how long the members have to carry out what an admin wants.
	wishTime = 30 * time.Second
	// breakTime is how long I/O that is under way under a lock has to end
	// before the lock is broken.
	breakTime = 15 * time.Second
)

// note puts what an admin does into the journal and the log.
func (d *daemon) note(event journal.Event, id, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.log.Warn(text)
	d.journal.Append(journal.Record{Event: event, Reason: text, Peer: locks.NodeID(id)})
}

// removePeer drops a member that may be alive.
func (d *daemon) removePeer(r *http.Request) error {
	id, why := r.FormValue("peer"), r.FormValue("reason")
	for _, m := range d.node.Load().Status().View.Members {
		if m.Peer != id {
			continue
		}
		d.note(journal.Note, id, "an admin removes %s: %s", m.Name(), why)
		patience := wishTime
		if d.cfg.FenceCommand != "" {
			patience += fenceTime
		}
		return d.node.Load().Remove(r.Context(), patience, m.Node, why)
	}
	return fmt.Errorf("%s is not a member", id)
}

// revokePeer keeps a peer out, or lets it in again.
func (d *daemon) revokePeer(r *http.Request) error {
	id, why, undo := r.FormValue("peer"), r.FormValue("reason"), r.FormValue("undo") != ""
	if _, err := peer.Decode(id); err != nil {
		return withCode(exitUsage, fmt.Errorf("%q is not a peer ID: %w", id, err))
	}
	if id == d.identity.ID().String() {
		return errors.New("a node cannot revoke itself: unmount it, or revoke it on another member")
	}
	if undo {
		d.note(journal.Note, id, "an admin lets %s in again: %s", id, why)
	} else {
		d.note(journal.Note, id, "an admin revokes %s: %s", id, why)
	}
	return d.node.Load().Revoke(r.Context(), wishTime, id, undo)
}

// breakRequest is what locks to break, on which nodes, and why.
type breakRequest struct {
	Locks  []lockJSON `json:"locks"`
	Reason string     `json:"reason"`
}

// breakAnswer says which locks were broken, and what went wrong.
type breakAnswer struct {
	Broken []lockJSON `json:"broken"`
	Errors []string   `json:"errors"`
}

// breakLocks has each node break the locks that it holds.
func (d *daemon) breakLocks(ctx context.Context, q breakRequest) breakAnswer {
	self := d.identity.ID().String()
	host, _ := os.Hostname()
	byNode := map[string][]lockJSON{}
	for _, l := range q.Locks {
		byNode[l.Node] = append(byNode[l.Node], l)
	}
	a := breakAnswer{Broken: []lockJSON{}, Errors: []string{}}
	for _, id := range sortedKeys(byNode) {
		list := byNode[id]
		part := breakRequest{list, fmt.Sprintf("broken by an admin on %s: %s", host, q.Reason)}
		var done breakAnswer
		var err error
		if id == self {
			done = d.breakHere(ctx, part)
		} else {
			err = d.ask(ctx, id, breakTime+askTimeout, question{What: "break", Break: &part}, &done)
		}
		if err != nil {
			done.Errors = append(done.Errors, fmt.Sprintf("%s (%s): %v", list[0].Host, id, err))
		}
		allReceived(done.Broken)
		a.Broken = append(a.Broken, done.Broken...)
		a.Errors = append(a.Errors, done.Errors...)
		if id != self {
			for _, l := range done.Broken {
				d.note(journal.Note, id, "an admin broke the lock of %s on %q, class %s, held by process %d (%s): %s",
					l.Host, l.Path, l.Class, l.PID, l.Command, q.Reason)
			}
		}
	}
	return a
}

// breakFor breaks locks for another node, if that is a member: to know the
// secret, or to have been one, is not enough. Who asked is in the journal, as
// this node knows it, whatever the reason claims.
func (d *daemon) breakFor(ctx context.Context, from peer.ID, q breakRequest) breakAnswer {
	id := from.String()
	name, ok := memberName(d.node.Load().Status().View, id)
	if !ok {
		d.note(journal.Note, id, "%s is no member, and may not break locks: %d were meant: %s", id, len(q.Locks), q.Reason)
		return breakAnswer{Broken: []lockJSON{}, Errors: []string{"only members may break locks"}}
	}
	d.note(journal.Note, id, "%s has %d locks broken: %s", name, len(q.Locks), q.Reason)
	q.Reason += fmt.Sprintf(" (%s asked for it)", name)
	return d.breakHere(ctx, q)
}

// memberName is what a view calls a peer; ok is false if it is no member.
func memberName(v *member.View, id string) (name string, ok bool) {
	if v == nil {
		return "", false
	}
	i := slices.IndexFunc(v.Members, func(m member.Member) bool { return m.Peer == id })
	if i < 0 {
		return "", false
	}
	return v.Members[i].Name(), true
}

// hostName is the name of a member's host, empty if that is not known.
func hostName(v *member.View, id string) string {
	if v == nil {
		return ""
	}
	for _, m := range v.Members {
		if m.Peer == id {
			return m.Host
		}
	}
	return ""
}

// breakHere breaks locks that programs of this node hold: first their I/O is
// kept from going on, then the locks are freed.
func (d *daemon) breakHere(ctx context.Context, q breakRequest) breakAnswer {
	a := breakAnswer{Broken: []lockJSON{}, Errors: []string{}}
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
	for _, l := range d.engine.Locks() {
		if l.State == engine.Held && wanted[which{l.Request, l.Key.File, l.Key.Class.String(), l.Program.PID}] && !slices.Contains(keys[l.Key], l.Handle) {
			keys[l.Key], paths[l.Key] = append(keys[l.Key], l.Handle), l.Path
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, breakTime, fmt.Errorf("waited %v", breakTime))
	defer cancel()
	for k, handles := range keys {
		lost := d.engine.Condemn(k, handles, q.Reason)
		if err := d.server.Load().Break(ctx, k, handles); err != nil {
			d.engine.Condemn(k, handles, "")
			a.Errors = append(a.Errors, fmt.Sprintf("%s: %q: the lock stays, and its programs get errors: %v", host, paths[k], err))
			continue
		}
		d.engine.Break(k, handles)
		d.metrics.Broken(len(lost))
		for _, l := range lost {
			d.log.Error("a lock is lost", "path", l.Path, "class", k.Class.String(), "mode", l.Mode.String(),
				"pid", l.Program.PID, "command", l.Program.Command, "why", q.Reason)
			x := lockJSON{
				Path: l.Path, Class: k.Class.String(), Mode: l.Mode.String(), Start: l.Range.Start, End: rangeEnd(l.Range),
				State: "lost", Node: d.identity.ID().String(), Host: host, PID: l.Program.PID, Command: l.Program.Command, UID: l.Program.UID,
				File: k.File,
			}
			a.Broken = append(a.Broken, x.toSend())
		}
	}
	return a
}

// memberState is what a member says of itself.
type memberState struct {
	State string `json:"state"`
}

// ask asks another daemon and decodes its answer into v.
func (d *daemon) ask(ctx context.Context, to string, limit time.Duration, q question, v any) error {
	id, err := peer.Decode(to)
	if err != nil {
		return err
	}
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := d.transport.Ask(ctx, id, b)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// healthy reports whether locks can be had on this node now.
func healthy(s member.Status, problems []string) bool { return s.Granting && len(problems) == 0 }
