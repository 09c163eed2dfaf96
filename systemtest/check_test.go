package systemtest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// checker holds what may never be, whatever happens to the nodes.
type checker struct {
	w       *world
	views   int
	top     *member.View
	added   map[member.Node]bool
	dropped map[member.Node]bool
	moments int
	grants  int
	losses  int

	mu      sync.Mutex
	err     error
	holders []*holder
	tokens  map[locks.Key][]tokens
}

// holder is a lock that an engine has granted and not got back.
type holder struct {
	p       *proc
	request uint64
	pid     int
	owner   locks.OwnerID
	key     locks.Key
	mode    locks.Mode
	rng     locks.Range
	token   locks.Token
	alg     *locks.Algorithm // by which it was granted
}

func (h *holder) String() string {
	return fmt.Sprintf("%s: pid %d has %v %v %v token %v by %s", h.p.name, h.pid, h.key, h.mode, h.rng, h.token, h.alg.Name)
}

// tokens are the greatest of the grants of a cell.
type tokens struct{ write, any locks.Token }

func newChecker(w *world) *checker {
	return &checker{
		w: w, added: map[member.Node]bool{}, dropped: map[member.Node]bool{}, tokens: map[locks.Key][]tokens{},
	}
}

func (c *checker) failf(format string, args ...any) {
	c.mu.Lock()
	c.fail(format, args...)
	c.mu.Unlock()
	c.w.signal()
}

// fail is failf. REQUIRES: c.mu held.
func (c *checker) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("at %.3f s: %s", c.w.now().Seconds(), short(fmt.Sprintf(format, args...)))
		c.w.logf("FAILED: %v", c.err)
	}
}

func (c *checker) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// record is the journal of all nodes.
func (c *checker) record(p *proc, ev engine.Event) {
	if !p.alive() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w.opt.tracing {
		c.w.logf("%s: pid %d %v %v %v %v token %v epoch %d %s", p.name, ev.Program.PID, ev.Step, ev.Key, ev.Mode, ev.Range, ev.Token, ev.Epoch, ev.Reason)
	}
	switch ev.Step {
	case engine.Granted:
		h := &holder{p, ev.Request, ev.Program.PID, locks.OwnerID(ev.Program.PID), ev.Key, ev.Mode, ev.Range, ev.Token, algorithms[ev.Algorithm]}
		c.grants++
		c.grant(h)
		c.holders = append(c.holders, h)
		c.exclusion()
	case engine.Released, engine.Lost:
		c.holders = slices.DeleteFunc(c.holders, func(h *holder) bool { return h.p == p && h.request == ev.Request })
	}
}

// grant checks that tokens rise.
func (c *checker) grant(h *holder) {
	t := c.tokens[h.key]
	if t == nil {
		t = make([]tokens, cells)
		c.tokens[h.key] = t
	}
	for i, r := range cellRange {
		if h.alg.Shared && !r.Overlaps(h.rng) {
			continue
		}
		least := t[i].any
		if h.alg.Shared && h.mode == locks.Read {
			least = t[i].write
		}
		if h.token <= least {
			c.fail("%v, but %v was granted before", h, least)
		}
		t[i].any = max(t[i].any, h.token)
		if h.mode == locks.Write || !h.alg.Shared {
			t[i].write = max(t[i].write, h.token)
		}
	}
}

// conflict: with an exclusive algorithm everything conflicts, and so does what
// was granted by two: what is held from before the rules changed keeps the new
// one from granting anything.
func (c *checker) conflict(a, b *holder) bool {
	switch {
	case a.key != b.key || a.p == b.p && a.owner == b.owner:
		return false
	case a.alg != b.alg || !a.alg.Shared:
		return true
	}
	return a.rng.Overlaps(b.rng) && (a.mode == locks.Write || b.mode == locks.Write)
}

// mayUse reports whether the node of h may do I/O under it at this moment, by
// its own clock; also while its process is stopped.
func (h *holder) mayUse() bool {
	return h.p.alive() && h.p.clock() < h.p.node.LiveUntil()
}

// exclusion checks that no two holders that may use their locks conflict.
// REQUIRES: c.mu held.
func (c *checker) exclusion() {
	for i, a := range c.holders {
		for _, b := range c.holders[i+1:] {
			if c.conflict(a, b) && a.mayUse() && b.mayUse() {
				c.fail("two hold what conflicts: %v; %v", a, b)
			}
		}
	}
}

// moment checks what must hold at every moment.
func (c *checker) moment() {
	c.moments++
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exclusion()
	var first *proc
	var epoch locks.Epoch
	for _, p := range c.w.procs {
		if !p.alive() || p.clock() >= p.node.LiveUntil() {
			continue
		}
		s := p.status()
		if c.dropped[s.Self] && !c.w.opt.restored {
			c.fail("%v is live at %d, but it was dropped; newest view %v", s.Self, s.View.Epoch, c.top)
		}
		if first != nil && s.View.Epoch != epoch {
			c.fail("%s is live at %d, %s at %d", first.name, epoch, p.name, s.View.Epoch)
		}
		first, epoch = p, s.View.Epoch
	}
}

// linked is called when v got its name.
func (c *checker) linked(v *member.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sameFiles(v)
	if c.top != nil && v.Epoch <= c.top.Epoch && c.w.opt.bug == "" && !c.w.opt.restored {
		return // the name had been pruned: nobody may ever install this
	}
	c.views++
	old := c.top
	c.top = v
	if old == nil {
		old = &member.View{}
	}
	if v.Epoch != old.Epoch+1 && c.w.opt.bug == "" && !c.w.opt.restored {
		c.fail("view %d was linked after %d", v.Epoch, old.Epoch)
	}
	for i := range v.Members {
		x := v.Members[i].Node
		if old.Has(x) {
			continue
		}
		if c.added[x] && c.w.opt.bug == "" {
			c.fail("%v comes back in %v", x, v)
		}
		c.added[x] = true
	}
	for i := range old.Members {
		if x := old.Members[i].Node; !v.Has(x) {
			c.dropped[x] = true
		}
	}
}

// heldBy lists what a node holds.
func (c *checker) heldBy(p *proc) []*holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hs []*holder
	for _, h := range c.holders {
		if h.p == p {
			hs = append(hs, h)
		}
	}
	return hs
}

// expelled checks that what was held before is in the journal as lost, and
// among what the log is told.
func (c *checker) expelled(p *proc, before []*holder, lost []engine.LostLock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range before {
		if !slices.ContainsFunc(lost, func(l engine.LostLock) bool {
			return l.Held && l.Key == h.key && l.Program.PID == h.pid && l.Path == h.key.File
		}) && slices.Contains(c.holders, h) {
			c.fail("%v, and nobody is told that it is lost", h)
		}
	}
	for _, h := range c.holders {
		if h.p == p {
			c.fail("%v, and the journal has no record that it is lost", h)
		}
	}
	c.losses += len(lost)
}

// toldLost: a program was told EIO.
func (c *checker) toldLost(g *program) {
	for _, h := range c.heldBy(g.proc) {
		if h.pid == g.pid && h.key == g.req.Key && c.w.opt.bug == "" {
			c.failf("pid %d is told that its lock is lost, but %v", g.pid, h)
		}
	}
}

// killed: the locks of a dead process are not used any more.
func (c *checker) killed(p *proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders = slices.DeleteFunc(c.holders, func(h *holder) bool { return h.p == p })
}

// idle checks that nobody holds or waits.
func (c *checker) idle() string {
	for _, p := range c.w.procs {
		if !p.alive() {
			continue
		}
		held, waiting := p.engine.Count()
		if held+waiting > 0 {
			return fmt.Sprintf("%s: %d locks held, %d requests wait", p.name, held, waiting)
		}
	}
	return ""
}
