package locktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"dmxfs/locks"
)

// A shape is how the scheduler chooses among what can happen.
type shape uint8

const (
	uniform       shape = iota
	newestFirst         // the channel whose first message is the newest
	slowNode            // one node's messages come last
	slowDirection       // one channel's messages come last
	longHolds           // nobody releases while anything else can happen
	fastNet             // messages come before programs do anything
	shapes
)

func (s shape) String() string {
	return [...]string{"uniform", "newest first", "slow node", "slow direction", "long holds", "fast net"}[s]
}

// A plan is what a random run is made of, all of it decided by the seed.
type plan struct {
	nodes   int
	tickets int // per node
	owners  int
	bytes   int
	reads   int // per cent
	tries   int // per cent
	shape   shape
	slow    [2]int // the slow node, or direction
	// How many of each disturbance at most.
	cancels, overtakes, expires, replaces, drops, suspends, epochs, dups int
	steps                                                                int
	// What else is checked: that nobody is passed, and that the only node
	// that writes never reads in again what it has written itself.
	fair, oneWriter bool
}

func (p plan) String() string {
	return fmt.Sprintf("%d nodes, %d tickets each, %d owners, %d bytes, %d%% reads, %d%% tries, %v", p.nodes, p.tickets, p.owners, p.bytes, p.reads, p.tries, p.shape)
}

func newPlan(rng *rand.Rand, opt Options) plan {
	most := opt.MaxNodes
	if most == 0 {
		most = 9
	}
	p := plan{
		nodes:   2 + rng.IntN(3),
		tickets: 1 + rng.IntN(6),
		owners:  1 + rng.IntN(3),
		bytes:   1 + rng.IntN(4),
		reads:   []int{0, 0, 20, 50, 90}[rng.IntN(5)],
		tries:   []int{0, 0, 20, 50, 100}[rng.IntN(5)],
		shape:   shape(rng.IntN(int(shapes))),
	}
	if rng.IntN(4) == 0 {
		p.nodes = 2 + rng.IntN(most-1)
	}
	if rng.IntN(30) == 0 {
		p.nodes = 1
	}
	p.nodes = min(p.nodes, most)
	if *flagNodes > 0 {
		p.nodes = *flagNodes
	}
	p.slow = [2]int{rng.IntN(p.nodes), rng.IntN(p.nodes)}
	scale := rng.IntN(3) // none, some, many
	if scale > 0 {
		up := func(n int) int { return rng.IntN(n*scale + 1) }
		p.cancels, p.overtakes, p.expires, p.replaces = up(5), up(10), up(8), up(5)
		p.drops, p.suspends = up(5), up(2)
		if opt.Duplicates {
			p.dups = up(10)
		}
		if rng.IntN(3) == 0 {
			p.epochs = up(3)
		}
	}
	switch rng.IntN(16) {
	case 0, 1:
		p.fair = opt.Asks != nil
	case 2, 3:
		p.oneWriter = opt.Spares
	case 4: // overtakers meet behind long holds
		p.shape, p.tries, p.overtakes = longHolds, 0, 20
		p.bytes, p.reads = 2+rng.IntN(2), 50
	case 5: // tries of one node meet
		p.tries, p.bytes, p.owners, p.tickets = 80, 4, 3, 6
	case 6: // what is kept is given back again and again
		p.shape, p.expires, p.drops, p.bytes = fastNet, 20, 20, 1+rng.IntN(2)
	case 7: // waits are given up behind others
		p.cancels, p.tries, p.tickets, p.bytes = 20, 0, 6, 1
	}
	if p.fair { // without what may pass
		p.tries, p.cancels, p.overtakes, p.replaces, p.drops = 0, 0, 0, 0, 0
		p.owners, p.bytes = 1<<30, 1
	}
	p.steps = 3000 + 400*p.nodes*p.nodes*p.tickets
	return p
}

// A sim is a random run.
type sim struct {
	plan
	rng    *rand.Rand
	w      *world
	left   []int // tickets that each node will still ask for
	nextID locks.TicketID
	ops    []Op
	digest uint64 // of all that was done
}

// runSeed does the run of a seed.
func runSeed(alg locks.Algorithm, opt Options, seed uint64) (*sim, error) {
	rng := rand.New(rand.NewPCG(seed, 0x6c6f636b74657374))
	s := &sim{plan: newPlan(rng, opt), rng: rng}
	s.w = newWorld(alg, opt, s.nodes)
	s.w.fair = s.fair
	s.left = slices.Repeat([]int{s.tickets}, s.nodes)
	return s, s.run()
}

func (s *sim) do(o Op) error {
	s.ops = append(s.ops, o)
	err := s.w.apply(o)
	if err == errSkip {
		return fmt.Errorf("the simulator chose %v, which is not possible", o)
	}
	for _, l := range s.w.log {
		for i := range len(l) {
			s.digest = (s.digest ^ uint64(l[i])) * 0x100000001b3
		}
	}
	return err
}

func (s *sim) run() error {
	for step := 0; ; step++ {
		if step > s.steps {
			return fmt.Errorf("the run has no end")
		}
		o, ok := s.choose()
		if !ok {
			break
		}
		if err := s.do(o); err != nil {
			return err
		}
		if s.w.quiet() {
			if err := s.w.oracle.idle(s.w); err != nil {
				return err
			}
		}
	}
	return s.end()
}

// end checks what must be true when there is nothing more to do.
func (s *sim) end() error {
	for _, t := range s.w.oracle.tickets {
		if t.status <= held {
			return fmt.Errorf("at the end, %v is not over", t)
		}
	}
	if n := s.w.nodes[0]; s.oneWriter && n.data.read > 0 {
		return fmt.Errorf("%s read its own writes in again, %d times", n.id, n.data.read)
	}
	return rest(s.w, s.do)
}

// rest gives back what is kept, and checks that every machine can be dropped.
func rest(w *world, do func(Op) error) error {
	for _, n := range w.nodes {
		if !n.dead && n.machine != nil {
			if err := do(Op{Kind: opExpire, Node: n.index}); err != nil {
				return err
			}
		}
	}
	if err := settle(w, do); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if n.machine != nil && !n.dead && !n.machine.Idle() {
			return fmt.Errorf("%s has nothing to do and nothing to keep, but cannot be dropped: %v", n.id, n.machine)
		}
	}
	return nil
}

// settle delivers all messages, the oldest first.
func settle(w *world, do func(Op) error) error {
	for range 20_000 {
		o, ok := oldest(w)
		if !ok {
			return nil
		}
		if err := do(o); err != nil {
			return err
		}
	}
	return fmt.Errorf("messages without end")
}

func oldest(w *world) (o Op, ok bool) {
	best := 0
	for _, from := range w.nodes {
		for _, to := range w.nodes {
			if w.deliverable(from, to, 0) {
				if p := w.links[from.index][to.index][0]; !ok || p.seq < best {
					o, ok, best = Op{Kind: opDeliver, Node: from.index, To: to.index}, true, p.seq
				}
			}
		}
	}
	return o, ok
}

// choose is the next op. There is none when all tickets are over and the net
// is quiet.
func (s *sim) choose() (Op, bool) {
	if o, ok := s.disturb(); ok {
		return o, true
	}
	deliver, late := s.deliveries()
	var work []Op // what programs do
	for _, n := range s.w.nodes {
		if !n.dead && n.epoch > 0 && s.left[n.index] > 0 {
			work = append(work, Op{Kind: opAcquire, Node: n.index})
		}
	}
	var release []Op
	for _, t := range s.w.oracle.tickets {
		if t.status == held {
			release = append(release, Op{Kind: opReplace, Node: t.node.index, Old: []locks.TicketID{t.ID}})
		}
	}
	change := s.changes()
	switch {
	case s.shape == longHolds && len(deliver)+len(work)+len(change) > 0:
		work = append(append(work, deliver...), change...)
	case s.shape == fastNet && len(deliver) > 0 && s.rng.IntN(20) != 0:
		work = deliver
	default:
		work = append(append(append(work, deliver...), release...), change...)
	}
	if len(work) == 0 {
		work = append(release, late...)
	}
	if len(work) == 0 {
		for _, n := range s.w.nodes { // all wait for those who may not enter
			if !n.dead && n.suspended {
				return Op{Kind: opResume, Node: n.index}, true
			}
		}
		return Op{}, false
	}
	o := work[s.rng.IntN(len(work))]
	if o.Kind == opAcquire {
		o = s.acquire(o.Node)
	}
	return o, true
}

// deliveries are the messages that can come now, and those that are late.
func (s *sim) deliveries() (now, late []Op) {
	newest := -1
	for _, from := range s.w.nodes {
		for _, to := range s.w.nodes {
			n := 1
			if s.w.opt.Reorders {
				n = len(s.w.links[from.index][to.index])
			}
			for at := range n {
				if !s.w.deliverable(from, to, at) {
					continue
				}
				o := Op{Kind: opDeliver, Node: from.index, To: to.index, At: at}
				switch {
				case s.shape == slowNode && (from.index == s.slow[0] || to.index == s.slow[0]),
					s.shape == slowDirection && from.index == s.slow[0] && to.index == s.slow[1]:
					late = append(late, o)
				case s.shape == newestFirst:
					if p := s.w.links[from.index][to.index][at]; p.seq > newest {
						newest, now = p.seq, append(now[:0], o)
					}
				default:
					now = append(now, o)
				}
			}
		}
	}
	if s.rng.IntN(50) == 0 { // late is not never
		now = append(now, late...)
	}
	return now, late
}

// changes are the steps of an epoch change that is under way.
func (s *sim) changes() []Op {
	var ops []Op
	for _, n := range s.w.nodes {
		if n.dead || !s.w.member(n) {
			continue
		}
		if n.frozen != s.w.epoch {
			ops = append(ops, Op{Kind: opFreeze, Node: n.index})
		} else if s.w.restorable(n) {
			ops = append(ops, Op{Kind: opRestore, Node: n.index})
		}
	}
	return ops
}

func (s *sim) id() locks.TicketID {
	s.nextID++
	return s.nextID
}

func (s *sim) acquire(n int) Op {
	s.left[n]--
	start := s.rng.IntN(s.bytes)
	end := start + 1 + s.rng.IntN(s.bytes-start)
	o := Op{Kind: opAcquire, Node: n, Ticket: locks.Ticket{
		ID:    s.id(),
		Owner: locks.OwnerID(s.rng.IntN(s.owners)),
		Mode:  locks.Write,
		Range: locks.Range{Start: uint64(start), End: uint64(end)},
		Try:   s.rng.IntN(100) < s.tries,
	}}
	if s.rng.IntN(100) < s.reads || s.oneWriter && n != 0 {
		o.Ticket.Mode = locks.Read
	}
	return o
}

// disturb is, now and then, one of the disturbances of the plan.
func (s *sim) disturb() (Op, bool) {
	if s.rng.IntN(4) != 0 {
		return Op{}, false
	}
	pick := func(left *int, ops []Op) (Op, bool) {
		if *left == 0 || len(ops) == 0 {
			return Op{}, false
		}
		*left--
		return ops[s.rng.IntN(len(ops))], true
	}
	switch s.rng.IntN(8) {
	case 0:
		return pick(&s.cancels, s.waiters(opCancel))
	case 1:
		return pick(&s.overtakes, s.waiters(opOvertake))
	case 2:
		return pick(&s.expires, s.engines(opExpire, func(n *node) bool { return n.machine != nil }))
	case 3:
		return pick(&s.replaces, s.rewrites())
	case 4:
		if s.drops == 0 {
			return Op{}, false
		}
		return pick(&s.drops, s.engines(opDrop, func(n *node) bool {
			return n.machine != nil && !n.between() && n.machine.Idle()
		}))
	case 5:
		if s.rng.IntN(2) == 0 {
			s.suspends++ // a resume is free
			return pick(&s.suspends, s.engines(opResume, func(n *node) bool { return n.suspended }))
		}
		return pick(&s.suspends, s.engines(opSuspend, func(n *node) bool { return !n.suspended }))
	case 6:
		return pick(&s.epochs, s.newView())
	default:
		var ops []Op
		now, late := s.deliveries()
		for _, o := range append(now, late...) {
			o.Dup = true
			ops = append(ops, o)
		}
		return pick(&s.dups, ops)
	}
}

// engines are ops for the nodes for which ok is true.
func (s *sim) engines(kind string, ok func(*node) bool) []Op {
	var ops []Op
	for _, n := range s.w.nodes {
		if !n.dead && n.epoch > 0 && ok(n) {
			ops = append(ops, Op{Kind: kind, Node: n.index})
		}
	}
	return ops
}

// waiters are ops for the tickets that wait; after a cancel comes, perhaps,
// the same request again.
func (s *sim) waiters(kind string) []Op {
	var ops []Op
	for _, t := range s.w.oracle.tickets {
		if t.status == waiting {
			ops = append(ops, Op{Kind: kind, Node: t.node.index, Ticket: locks.Ticket{ID: t.ID}})
		}
		if kind == opCancel && !t.stamp.IsZero() && s.rng.IntN(2) == 0 {
			again := t.Ticket
			again.ID = s.id()
			ops = append(ops, Op{Kind: opAcquire, Node: t.node.index, Ticket: again, As: t.ID})
		}
	}
	return ops
}

// rewrites are replacements of what one owner holds by parts of it.
func (s *sim) rewrites() []Op {
	var ops []Op
	for _, t := range s.w.oracle.tickets {
		if t.status != held {
			continue
		}
		o := Op{Kind: opReplace, Node: t.node.index, Old: []locks.TicketID{t.ID}}
		mode := t.Mode
		if s.rng.IntN(2) == 0 {
			mode = locks.Read
		}
		for _, u := range s.w.oracle.tickets { // together with another
			if u != t && u.status == held && u.node == t.node && u.Owner == t.Owner && s.rng.IntN(2) == 0 {
				o.Old = append(o.Old, u.ID)
				if !u.Range.Overlaps(t.Range) {
					o.Parts = append(o.Parts, locks.Part{ID: s.id(), Mode: u.Mode, Range: u.Range})
				}
				break
			}
		}
		r := t.Range
		cut := r.Start + s.rng.Uint64N(r.End-r.Start)
		for _, p := range []locks.Range{{Start: r.Start, End: cut}, {Start: cut, End: r.End}} {
			if !p.Empty() && s.rng.IntN(4) != 0 {
				id := t.ID
				if p.Start != r.Start {
					id = s.id()
				}
				o.Parts = append(o.Parts, locks.Part{ID: id, Mode: mode, Range: p})
				if s.rng.IntN(3) == 0 {
					mode = locks.Read
				}
			}
		}
		ops = append(ops, o)
	}
	return ops
}

// newView is a view without some members and with some new ones.
func (s *sim) newView() []Op {
	var alive []int
	for _, n := range s.w.nodes {
		if !n.dead && s.w.member(n) {
			alive = append(alive, n.index)
		}
	}
	o := Op{Kind: opView}
	for _, i := range alive {
		if len(alive) == 1 || s.rng.IntN(4) != 0 {
			o.View = append(o.View, i)
		}
	}
	if s.rng.IntN(2) == 0 && len(s.w.nodes) < 12 {
		o.View = append(o.View, len(s.w.nodes))
		s.left = append(s.left, s.rng.IntN(3))
	}
	if len(o.View) == 0 {
		return nil
	}
	return []Op{o}
}

// Simulate does random runs; see the flags.
func Simulate(t *testing.T, alg locks.Algorithm, opt Options) {
	from, n := *flagFrom, uint64(*flagSeeds)
	if *flagSeed != 0 {
		from, n = *flagSeed, 1
	} else if testing.Short() {
		n = min(n, 50)
	}
	stop := stopAt()
	runs, steps := 0, 0
	for seed := from; seed < from+n; seed++ {
		if !stop.IsZero() && time.Now().After(stop) {
			break
		}
		s, err := runSeed(alg, opt, seed)
		if err != nil {
			t.Fatalf("seed %d (%v): %v\n\nagain: go test -run '^%s$' -locktest.seed=%d\n\n%s", seed, s.plan, err, t.Name(), seed, shortest(alg, opt, s.plan, s.ops))
		}
		runs, steps = runs+1, steps+len(s.ops)
		if seed%16 == 0 || n == 1 {
			again, err := runSeed(alg, opt, seed)
			if err != nil || again.digest != s.digest {
				t.Fatalf("seed %d (%v): two runs of it differ", seed, s.plan)
			}
		}
	}
	t.Logf("%d runs, %d steps, seeds %d to %d", runs, steps, from, from+uint64(runs)-1)
}
