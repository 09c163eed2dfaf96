package systemtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/p2ptest"
	"github.com/dmxfs/dmxfs/p2p/register/registertest"
)

// options of a world. The zero value of each is the ordinary case.
type options struct {
	seed      uint64
	params    member.Params // zero: member.Default()
	drift     int64         // clocks of nodes differ by up to this many millionths, both ways
	cache     int64         // S that nodes assume, in ms, and the age that listings have at most
	algorithm string        // serves all files; empty: rw
	writeBack bool          // hosts keep what was written until they are asked to write it out
	programs  int           // on each node; 0: 2
	files     int           // 0: 1
	think     time.Duration // between two locks of a program, on average; 0: 500 ms
	fence     bool          // nodes have a fence command
	cutsOff   bool          // which does what it should
	bug       string        // a planted bug
	rules     bool          // the algorithm changes with the policy
	many      bool          // programs open many files, and nodes delegate soon
	wired     bool          // over the transport of package p2p
	edges     bool          // faults at the edges of a cluster, too
	restored  bool          // the storage loses views: they are no chain
	takeovers bool          // daemons are replaced
	kills     bool          // daemons are killed, and successors go on with their ledgers
	tracing   bool
}

// world is the simulator. One goroutine makes everything happen; those of the
// nodes run between two events until all of them wait. So the same options
// make the same run.
type world struct {
	opt   options
	rng   *rand.Rand // of the one goroutine
	began time.Time

	procs  []*proc
	hosts  []*host
	byName map[string][]*proc
	store  *registertest.Store
	data   *data
	check  *checker
	boots  int

	delegated int // requests at a node to which all others delegate

	pending  int  // starts that are to come
	draining bool // programs begin nothing new

	wires *p2ptest.Network // if wired

	mu      sync.Mutex // what the nodes' goroutines use too
	names   []string   // of all peers
	queue   eventQueue
	seqs    map[string]uint64
	links   map[[2]string]*link
	results []result
	wake    chan struct{}
	trace   []string
	final   string // what all nodes thought when a check failed
}

const ms = time.Millisecond

// inBubble makes a world in a bubble of synctest, runs f in it and ends it. It
// leaves no goroutine, and no memory of ledgers.
func inBubble(t *testing.T, o options, f func(w *world)) (w *world) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w = newWorld(o)
		f(w)
		w.end()
	})
	// Until its last goroutine has ended an engine may write into its ledger.
	for _, p := range w.procs {
		p.ledger.close()
	}
	return w
}

func newWorld(o options) *world {
	if o.params == (member.Params{}) {
		o.params = member.Default()
		o.params.CacheMax = 3000
	}
	o.programs = cmp.Or(o.programs, 2)
	o.files = cmp.Or(o.files, 1)
	o.think = cmp.Or(o.think, 500*ms)
	o.algorithm = cmp.Or(o.algorithm, "rw")
	w := &world{
		opt: o, rng: rand.New(rand.NewPCG(o.seed, 1)), began: time.Now(),
		byName: map[string][]*proc{}, store: new(registertest.Store),
		seqs: map[string]uint64{}, links: map[[2]string]*link{}, wake: make(chan struct{}, 1),
	}
	if o.wired {
		w.wires = p2ptest.New(o.seed, p2ptest.Link{Latency: 100 * time.Microsecond, Jitter: 2 * ms})
	}
	w.data = newData(w)
	w.check = newChecker(w)
	return w
}

// end kills all processes and waits until they have ended.
func (w *world) end() {
	if w.check.failed() {
		w.final = w.describe()
	}
	for _, p := range w.procs {
		p.kill()
	}
	for _, p := range w.procs {
		<-p.gone
	}
}

// now is the time since the world began.
func (w *world) now() time.Duration { return time.Since(w.began) }

// An event happens at a moment. Those of one moment are in an order that does
// not depend on which goroutine was first.
type event struct {
	at     time.Duration
	source string
	seq    uint64
	do     func()
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.source != o.source {
		return e.source < o.source
	}
	return e.seq < o.seq
}

// eventQueue is a binary heap.
type eventQueue []event

func (q *eventQueue) push(e event) {
	*q = append(*q, e)
	for i := len(*q) - 1; i > 0 && (*q)[i].before(&(*q)[(i-1)/2]); i = (i - 1) / 2 {
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
		if c+1 < n && (*q)[c+1].before(&(*q)[c]) {
			c++
		}
		if !(*q)[c].before(&(*q)[i]) {
			break
		}
		(*q)[i], (*q)[c] = (*q)[c], (*q)[i]
		i = c
	}
	return top
}

// after has do happen in d, in the one goroutine.
func (w *world) after(d time.Duration, do func()) { w.from("", d, do) }

// from is after for any goroutine; what one source wants for one moment
// happens in the order in which it wanted it.
func (w *world) from(source string, d time.Duration, do func()) {
	w.mu.Lock()
	w.put(source, d, do)
	w.mu.Unlock()
	w.signal()
}

// put is from. REQUIRES: mu held; signal to be called when it is not.
func (w *world) put(source string, d time.Duration, do func()) {
	w.seqs[source]++
	w.queue.push(event{w.now() + d, source, w.seqs[source], do})
}

func (w *world) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run lets d pass, or less if a check fails.
func (w *world) run(d time.Duration) { w.runUntil(d, func() bool { return false }) }

// runUntil is run that ends as soon as done; it reports whether it was.
func (w *world) runUntil(d time.Duration, done func() bool) bool {
	end := w.now() + d
	for {
		w.quiet()
		select { // what a node wanted until now is seen below
		case <-w.wake:
		default:
		}
		w.check.moment()
		if w.check.failed() {
			return false
		}
		if done() {
			return true
		}
		now := w.now()
		w.mu.Lock()
		at := end
		if len(w.queue) > 0 {
			at = min(at, w.queue[0].at)
		}
		var e event
		if len(w.queue) > 0 && at <= now && w.queue[0].at <= now {
			e = w.queue.pop()
		}
		w.mu.Unlock()
		switch {
		case e.do != nil:
			e.do()
		case now >= end:
			return done()
		default:
			t := time.NewTimer(at - now)
			select {
			case <-t.C:
			case <-w.wake: // a node wants something to happen sooner, perhaps
				t.Stop()
			}
		}
	}
}

// quiet waits until every goroutine waits, and handles what programs were told.
func (w *world) quiet() {
	for {
		synctest.Wait()
		w.mu.Lock()
		results := w.results
		w.results = nil
		w.mu.Unlock()
		if len(results) == 0 {
			return
		}
		sortResults(results)
		for _, r := range results {
			r.program.later(0, r.then)
		}
	}
}

// between is a random time from a to b.
func (w *world) between(a, b time.Duration) time.Duration { return between(w.rng, a, b) }

func between(rng *rand.Rand, a, b time.Duration) time.Duration {
	if b <= a {
		return a
	}
	return a + time.Duration(rng.Int64N(int64(b-a)+1))
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

func (w *world) logf(format string, args ...any) {
	if !w.opt.tracing {
		return
	}
	line := fmt.Sprintf("%9.3f ", w.now().Seconds()) + short(fmt.Sprintf(format, args...))
	w.mu.Lock()
	w.trace = append(w.trace, line)
	w.mu.Unlock()
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
func (w *world) running() []*proc {
	var r []*proc
	for _, p := range w.procs {
		if p.alive() {
			r = append(r, p)
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
	for _, p := range w.procs {
		if !p.alive() {
			continue
		}
		k++
		if !p.granting() || p.status().View.Epoch != top.Epoch || !top.Has(p.status().Self) {
			return false
		}
	}
	return k == 0 || k == len(top.Members)
}

// describe is what all nodes think, for the report of a failure.
func (w *world) describe() string {
	var b strings.Builder
	if w.check.top != nil {
		fmt.Fprintf(&b, "newest view: %s\n", short(w.check.top.String()))
	}
	for _, p := range w.procs {
		fmt.Fprintf(&b, "%s: %s\n", p.name, short(p.describe()))
	}
	return b.String()
}
