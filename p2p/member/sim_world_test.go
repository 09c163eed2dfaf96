package member_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

// world is the simulator: nodes with clocks that drift and jump, processes that
// stop and die, links that are cut one way, storage that is slow, hangs, lies
// about errors and shows old listings. One goroutine; the same options make the
// same run, event for event.
//
// Time is real time in microseconds, which no node can see.
type world struct {
	opt   options
	rng   *rand.Rand
	now   int64
	queue eventQueue
	seq   uint64

	nodes  []*node
	byPeer map[string][]*node
	links  map[[2]string]*link
	store  *registertest.Store
	boots  int

	pending     int                  // starts that are to come
	damageNext  int64                // the next view that is linked is damaged for so long, in ms
	fencedFirst map[locks.Epoch]bool // somebody was fenced for this view, before it
	fenceFails  int64                // real time until which fence commands fail

	check   checker
	events  int
	sent    int // messages
	tracing bool
	trace   []string
}

// options of a world. The zero value of each is the ordinary case.
type options struct {
	seed       uint64
	params     member.Params // zero: member.Default()
	drift      int64         // clocks of nodes differ by up to this many millionths, both ways
	cache      int64         // S that nodes assume, in ms
	stale      int64         // age that listings really have at most, in ms; -1: cache
	bug        string        // a planted bug, see member.Plant
	wire       bool          // messages are encoded and decoded
	raw        bool          // no check of parameters
	slowEngine bool          // an engine may take seconds to freeze
	fence      bool          // nodes have a fence command
	clones     bool          // one peer can run on two hosts
	lan        bool          // messages take well under a millisecond
	fileID     string        // what nodes tell files apart by; empty: "inode 1"
	takeovers  bool          // daemons are replaced
	kills      bool          // daemons are killed, and successors go on with their ledgers
	servers    bool          // servers that keep views are down, too
	slowAt     int64         // storage operations take up to this long, in ms; 0: 4
}

const (
	ms     = int64(1000)
	second = 1000 * ms
)

func newWorld(o options) *world {
	if o.params == (member.Params{}) {
		o.params = member.Default()
	}
	if o.fileID == "" {
		o.fileID = "inode 1"
	}
	if o.stale < 0 {
		o.stale = o.cache
	}
	w := &world{
		opt: o, rng: rand.New(rand.NewPCG(o.seed, 1)),
		byPeer: map[string][]*node{}, links: map[[2]string]*link{},
		store: new(registertest.Store), fencedFirst: map[locks.Epoch]bool{},
	}
	w.check.init(w)
	return w
}

// An event happens at a moment; those of one moment in the order of seq.
type event struct {
	at  int64
	seq uint64
	do  func()
}

// eventQueue is a binary heap.
type eventQueue []event

func (q eventQueue) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *eventQueue) push(e event) {
	*q = append(*q, e)
	for i := len(*q) - 1; i > 0 && q.less(i, (i-1)/2); i = (i - 1) / 2 {
		(*q)[i], (*q)[(i-1)/2] = (*q)[(i-1)/2], (*q)[i]
	}
}

func (q *eventQueue) pop() event {
	top := (*q)[0]
	n := len(*q) - 1
	(*q)[0] = (*q)[n]
	(*q)[n] = event{}
	*q = (*q)[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && q.less(c+1, c) {
			c++
		}
		if !q.less(c, i) {
			break
		}
		(*q)[i], (*q)[c] = (*q)[c], (*q)[i]
		i = c
	}
	return top
}

// after has do happen in d microseconds.
func (w *world) after(d int64, do func()) {
	w.seq++
	w.queue.push(event{w.now + d, w.seq, do})
}

// run lets d milliseconds pass, or less if a check fails.
func (w *world) run(d int64) { w.runUntil(d, func() bool { return false }) }

// runUntil is run that ends as soon as done; it reports whether it was.
func (w *world) runUntil(d int64, done func() bool) bool {
	end := w.now + d*ms
	for w.check.err == nil {
		if done() {
			return true
		}
		if len(w.queue) == 0 || w.queue[0].at > end {
			w.now = end
			return done()
		}
		e := w.queue.pop()
		w.now = e.at
		w.events++
		e.do()
	}
	return false
}

// between is a random number of microseconds, from a to b milliseconds.
func (w *world) between(a, b int64) int64 {
	if b <= a {
		return a * ms
	}
	return a*ms + w.rng.Int64N((b-a)*ms+1)
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) logf(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%9.3f ", float64(w.now)/1e6)+short(fmt.Sprintf(format, args...)))
	}
}

// short makes traces readable: incarnations lose their last digits.
func short(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '.' && i+16 < len(s) && isHex(s[i+1:i+17]) {
			b.WriteString(s[i : i+4])
			i += 16
			continue
		}
		b.WriteByte(s[i])
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "; ")
}

func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// running are the processes that live and want to be members.
func (w *world) running() []*node {
	var r []*node
	for _, n := range w.nodes {
		if n.alive {
			r = append(r, n)
		}
	}
	return r
}

// settled reports whether all running nodes grant in the newest view, and
// whether that view has nobody else.
func (w *world) settled() bool {
	top := w.check.top
	if top == nil {
		return false
	}
	k := 0
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		k++
		if !n.granting() || n.m.Epoch() != top.Epoch || !top.Has(n.m.Self()) {
			return false
		}
	}
	return k == 0 || k == len(top.Members)
}

// noWishes reports whether no admin waits for a change.
func (w *world) noWishes() bool {
	for _, n := range w.nodes {
		if n.alive && n.m.Status().Wishes > 0 {
			return false
		}
	}
	return true
}

// onlyGranting reports whether these nodes, and no others, can grant.
func (w *world) onlyGranting(nodes ...*node) bool {
	for _, n := range w.nodes {
		want := false
		for _, x := range nodes {
			want = want || x == n
		}
		if n.granting() != want {
			return false
		}
	}
	return true
}

// describe is what all nodes think, for the report of a failure.
func (w *world) describe() string {
	var b strings.Builder
	if w.check.top != nil {
		fmt.Fprintf(&b, "newest view: %s\n", short(w.check.top.String()))
	}
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%s: %s\n", n.name, short(n.describe()))
	}
	return b.String()
}

// fail ends the test with the trace of a run that is made again for it.
func fail(t *testing.T, w *world, replay string, again func(tracing bool) *world) {
	t.Helper()
	t.Errorf("%v\nreplay: %s\n%s", w.check.err, replay, w.describe())
	traced := again(true)
	lines := traced.trace
	const keep = 400
	if len(lines) > keep && !testing.Verbose() {
		t.Logf("the last %d lines of the trace (all with -v):", keep)
		lines = lines[len(lines)-keep:]
	}
	t.Log("\n" + strings.Join(lines, "\n"))
}

// checker holds what may never be, whatever happens to the nodes.
type checker struct {
	w       *world
	err     error
	checks  int
	views   int
	top     *member.View         // the newest view of the chain
	added   map[member.Node]bool // every node that was ever in a view
	dropped map[member.Node]bool // every node that was, and is not
	reasons map[string]int       // views by reason
	// takeovers that were begun, and how many of them have come about
	takeovers   []*takeover
	granted     []*member.View // by which somebody has granted
	succeedings int
	free        bool // the rules of a chain do not hold: somebody removed .dmxfs
}

func (c *checker) init(w *world) {
	c.w = w
	c.added, c.dropped = map[member.Node]bool{}, map[member.Node]bool{}
	c.reasons = map[string]int{}
}

func (c *checker) failf(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("at %.3f s: %s", float64(c.w.now)/1e6, short(fmt.Sprintf(format, args...)))
		c.w.logf("FAILED: %v", c.err)
	}
}

// linked is called when v got its name.
func (c *checker) linked(v *member.View) {
	if c.top != nil && v.Epoch <= c.top.Epoch && !c.free {
		return // the name had been pruned: nobody may ever install this
	}
	c.views++
	c.reasons[v.Reason]++
	old := c.top
	c.top = v
	if old == nil {
		old = &member.View{}
	}
	if v.Epoch != old.Epoch+1 && !c.free {
		c.failf("view %d was linked after %d", v.Epoch, old.Epoch)
	}
	for i := range v.Members {
		x := v.Members[i].Node
		if old.Has(x) {
			continue
		}
		if c.added[x] {
			c.failf("%v comes back in %v", x, v)
		}
		c.added[x] = true
	}
	for i := range old.Members {
		// Members of a view that could not be read may be live until the
		// maker of the next one is: that is S1.
		if x := old.Members[i].Node; !v.Has(x) && v.Reason != member.ReasonUnreadable {
			c.dropped[x] = true
		}
	}
	for _, n := range c.w.nodes {
		c.live(n)
	}
}

// live checks one node against all others: S1, no two live nodes in different
// epochs; S2, nobody who was dropped is live. A stopped node counts as live as
// long as its clock says so.
func (c *checker) live(n *node) {
	c.checks++
	who, epoch, ok := n.live()
	if !ok {
		return
	}
	if c.dropped[who] {
		c.failf("S2: %v is live at %d, but it was dropped; newest view %v", who, epoch, c.top)
	}
	if v, mine := n.m.View(), member.FileID(n.m); v.Epoch == epoch && v.FileID != mine {
		c.failf("S4: %v is live at %d, tells files apart by %s, and the view says %s", who, epoch, mine, v.FileID)
	}
	for _, o := range c.w.nodes {
		if o == n {
			continue
		}
		if other, e, ok := o.live(); ok && e != epoch {
			c.failf("S1: %v is live at %d, %v at %d", who, epoch, other, e)
		}
	}
}

// grants checks S3: no grant before the state of all members is here.
func (c *checker) grants(n *node) {
	v := n.m.View()
	c.went(n)
	if n.epoch != v.Epoch {
		c.failf("S3: %v grants at %d, its engine is at %d", n.m.Self(), v.Epoch, n.epoch)
	}
	for i := range v.Members {
		if x := v.Members[i].Node; x != n.m.Self() && !n.taken[x] {
			c.failf("S3: %v grants at %d without the state of %v", n.m.Self(), v.Epoch, x)
		}
	}
}
