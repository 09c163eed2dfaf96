package rules

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/maekawa"
	"github.com/dmxfs/dmxfs/locks/rcv"
	"github.com/dmxfs/dmxfs/locks/ring"
	"github.com/dmxfs/dmxfs/locks/rw"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/policy"
)

// Algorithms are those that rules can name.
var Algorithms = map[string]*locks.Algorithm{
	rw.Algorithm.Name: &rw.Algorithm, rcv.Algorithm.Name: &rcv.Algorithm,
	maekawa.Algorithm.Name: &maekawa.Algorithm, ring.Algorithm.Name: &ring.Algorithm,
}

// Rules are the policy that is in force: that of the view.
type Rules struct {
	// asked is the policy of the options; nil if they have none.
	asked *policy.Policy
	now   atomic.Pointer[ruling]
	begun bool // there was a view; owned by Begin
	// defaults are what holds for files that no rule matches.
	defaults fusefs.Rule

	// changed is called when other rules are in force, before anybody is granted a
	// lock by them.
	changed func()
	journal Journal
	log     *slog.Logger
}

// Journal is a journal, to which records are added without waiting.
type Journal interface{ Append(r journal.Record) }

// New has the rules of the options as TOML (empty: they have none), and what holds for
// files that no rule matches. No rule is in force until [Rules.Begin].
func New(toml string, defaults fusefs.Rule) (*Rules, error) {
	r := &Rules{defaults: defaults, changed: func() {}}
	r.now.Store(&ruling{})
	if toml == "" {
		return r, nil
	}
	p, err := policy.Parse("the rules of the options", toml)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	r.asked = p
	return r, nil
}

// Bind says where it is told that rules change: in the journal, in the log, and to changed,
// before anybody is granted a lock by them.
func (r *Rules) Bind(j Journal, log *slog.Logger, changed func()) {
	r.journal, r.log, r.changed = j, log, changed
}

// Difference is what the options ask for and the cluster has otherwise, line by line.
func (r *Rules) Difference(cluster *policy.Policy) []string {
	return r.asked.Diff("here", cluster, "in the cluster")
}

// ruling is a policy and the name that views know it by.
type ruling struct {
	*policy.Policy
	hash string
	// err is why the policy of the view cannot be followed (a newer version
	// may have made it): then nothing can be locked.
	err error
}

// Wanted is what the membership asks for.
func (r *Rules) Wanted() *member.Policy {
	if r.asked == nil {
		return nil
	}
	return &member.Policy{Hash: r.asked.Hash(), TOML: r.asked.TOML()}
}

// Algorithm is the name of the one that serves a path. When nobody can know it
// there is none, and no lock. That of the lease of names is no rule's affair.
func (r *Rules) Algorithm(path string) string {
	if path == fusefs.LeasePath {
		return rw.Algorithm.Name
	}
	now := r.now.Load()
	if now.err != nil {
		return ""
	}
	return now.Algorithm(path)
}

// Uniform is the name of the algorithm that serves all paths, if there is one.
func (r *Rules) Uniform() string {
	now := r.now.Load()
	if now.err != nil {
		return ""
	}
	return now.Uniform()
}

// forOpen is what open(2) means at a path. An exclusive lock that somebody may
// take while the holder still has the file open is none, so it gives way only
// if its rule says so.
func (r *Rules) forOpen(path string, mount fusefs.Rule) fusefs.Rule {
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
		mount.UntilClose, mount.Yield = true, 0
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
		out.Open, out.UntilClose = r.Open == policy.OpenLock, false
	}
	out.PerProcess = r.PerProcess()
	if policy.Exclusive(r.Algorithm) {
		out.Yield, out.UntilClose = 0, false
	}
	if r.Yield.Set {
		out.Yield = r.Yield.For
	}
	if r.Wait.Set {
		out.Wait = r.Wait.For
	}
	return out
}

// For is fusefs.Options.Rule.
func (r *Rules) For(path string) fusefs.Rule { return r.forOpen(path, r.defaults) }

// Movable is fusefs.Options.Movable.
func (r *Rules) Movable(from, to string, dir bool) bool {
	return r.now.Load().Movable(from, to, dir)
}

// Begin makes the policy of a new view the one in force. The driver of the membership calls
// it between the end of the old epoch and the beginning of the new one.
func (r *Rules) Begin(v *member.View) {
	old, first := r.now.Load(), !r.begun
	r.begun = true
	if v.Policy.Hash == old.hash {
		return
	}
	now := &ruling{hash: v.Policy.Hash}
	now.Policy, now.err = policy.Parse("the policy of the cluster", v.Policy.TOML)
	r.now.Store(now)
	r.changed()
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

// InForce is the policy by which this node works.
func (r *Rules) InForce() (*policy.Policy, error) {
	now := r.now.Load()
	if now.err != nil {
		return nil, fmt.Errorf("the rules of the cluster cannot be followed: %w", now.err)
	}
	if now.Policy == nil {
		return &policy.Policy{}, nil
	}
	return now.Policy, nil
}
