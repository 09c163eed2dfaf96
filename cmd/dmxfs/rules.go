package main

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/history"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/locks/maekawa"
	"github.com/dmxfs/dmxfs/locks/rcv"
	"github.com/dmxfs/dmxfs/locks/ring"
	"github.com/dmxfs/dmxfs/locks/rw"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/policy"
)

// algorithms are those that rules can name.
var algorithms = map[string]*locks.Algorithm{
	rw.Algorithm.Name: &rw.Algorithm, rcv.Algorithm.Name: &rcv.Algorithm,
	maekawa.Algorithm.Name: &maekawa.Algorithm, ring.Algorithm.Name: &ring.Algorithm,
}

// rules are the policy that is in force: that of the view.
type rules struct {
	// asked is the policy of the options; nil if they have none.
	asked *policy.Policy
	now   atomic.Pointer[ruling]
	begun bool // there was a view; owned by begin
	// defaults are what holds for files that no rule matches.
	defaults fusefs.Rule

	// engine and server are told of other rules.
	engine  *engine.Engine
	server  *atomic.Pointer[fusefs.Server]
	journal *history.History
	log     *slog.Logger
}

// ruling is a policy and the name that views know it by.
type ruling struct {
	*policy.Policy
	hash string
	// err is why the policy of the view cannot be followed (a newer version
	// may have made it): then nothing can be locked.
	err error
}

// askFor takes the policy of the options.
func (r *rules) askFor(toml string) error {
	r.now.Store(&ruling{})
	if toml == "" {
		return nil
	}
	p, err := policy.Parse("the rules of the options", toml)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	r.asked = p
	return nil
}

// wanted is what the membership asks for.
func (r *rules) wanted() *member.Policy {
	if r.asked == nil {
		return nil
	}
	return &member.Policy{Hash: r.asked.Hash(), TOML: r.asked.TOML()}
}

// algorithm is the name of the one that serves a path. When nobody can know it
// there is none, and no lock. That of the lease of names is no rule's affair.
func (r *rules) algorithm(path string) string {
	if path == fusefs.LeasePath {
		return rw.Algorithm.Name
	}
	now := r.now.Load()
	if now.err != nil {
		return ""
	}
	return now.Algorithm(path)
}

// uniform is the name of the algorithm that serves all paths, if there is one.
func (r *rules) uniform() string {
	now := r.now.Load()
	if now.err != nil {
		return ""
	}
	return now.Uniform()
}

// forOpen is what open(2) means at a path. An exclusive lock that somebody may
// take while the holder still has the file open is none, so it gives way only
// if its rule says so.
func (r *rules) forOpen(path string, mount fusefs.Rule) fusefs.Rule {
	mount = sharedMemory(path, mount)
	rule, i := r.now.Load().Match(path)
	if i < 0 {
		return mount
	}
	return effective(rule, mount)
}

// sharedMemory is mount for a path. SQLite in WAL mode keeps in NAME-shm what
// its processes know of the log: memory that they map in common, of which they
// lock single bytes. Two hosts cannot have that in common (sqlite.org/wal.html),
// and would lose what they commit. So one of them has it at a time, and on
// others the database cannot be opened meanwhile.
func sharedMemory(path string, mount fusefs.Rule) fusefs.Rule {
	if mount.Open && strings.HasSuffix(path, "-shm") {
		mount.Kept, mount.Yield = true, 0
		if mount.Wait <= 0 {
			mount.Wait = sharedMemoryWait
		}
	}
	return mount
}

// sharedMemoryWait is how long an open(2) waits for another host to be done.
const sharedMemoryWait = 5 * time.Second

// effective is what a rule makes of the defaults of the mount.
func effective(r *policy.Rule, mount fusefs.Rule) fusefs.Rule {
	out := mount
	if r.Open != policy.OpenDefault {
		out.Open, out.Kept = r.Open == policy.OpenLock, false
	}
	out.PerProcess = r.PerProcess()
	if policy.Exclusive(r.Algorithm) {
		out.Yield, out.Kept = 0, false
	}
	if r.Yield.Set {
		out.Yield = r.Yield.For
	}
	if r.Wait.Set {
		out.Wait = r.Wait.For
	}
	return out
}

// ruleFor is fusefs.Options.Rule.
func (r *rules) ruleFor(path string) fusefs.Rule { return r.forOpen(path, r.defaults) }

// movable is fusefs.Options.Movable.
func (r *rules) movable(from, to string, dir bool) bool {
	return r.now.Load().Movable(from, to, dir)
}

// begin makes the policy of a new view the one in force, between the end of
// the old epoch and the beginning of the new one.
func (r *rules) begin(v *member.View) {
	old, first := r.now.Load(), !r.begun
	r.begun = true
	if v.Policy.Hash == old.hash {
		return
	}
	now := &ruling{hash: v.Policy.Hash}
	now.Policy, now.err = policy.Parse("the policy of the cluster", v.Policy.TOML)
	r.now.Store(now)
	r.engine.NewRules()
	if s := r.server.Load(); s != nil {
		s.RulesChanged()
	}
	if now.err != nil {
		r.log.Error("the rules of the cluster cannot be followed: nothing can be locked", "epoch", v.Epoch, "err", now.err)
		return
	}
	if !first {
		text := "the rules have changed: " + strings.Join(old.Diff("before", now.Policy, "now"), "; ")
		r.log.Warn(text, "epoch", v.Epoch, "by", v.By.Peer)
		r.journal.Append(journal.Record{Epoch: v.Epoch, Event: journal.Note, Reason: text, Peer: locks.NodeID(v.By.Peer)})
	}
	if asked := r.asked; asked != nil && asked.Hash() != now.hash {
		r.log.Warn("the options of this mount ask for rules that were changed since, by dmxfs policy set: those of the cluster are in force",
			"difference", strings.Join(asked.Diff("options", now.Policy, "cluster"), "; "))
	}
}

// inForce is the policy by which this node works.
func (r *rules) inForce() (*policy.Policy, error) {
	now := r.now.Load()
	if now.err != nil {
		return nil, fmt.Errorf("the rules of the cluster cannot be followed: %w", now.err)
	}
	if now.Policy == nil {
		return &policy.Policy{}, nil
	}
	return now.Policy, nil
}
