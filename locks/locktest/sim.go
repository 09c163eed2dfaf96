package locktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A sim is a random run.
type sim struct {
	plan
	rng    *rand.Rand
	w      *world
	left   []int // tickets that each node will still ask for
	nextID locks.TicketID
	ops    []Op
	digest uint64 // of all that was done, if the world tells
}

// runSeed does the run of a seed. With a digest it takes longer.
func runSeed(alg locks.Algorithm, opt Options, seed uint64, digest bool) (*sim, error) {
	rng := rand.New(rand.NewPCG(seed, 0x6c6f636b74657374))
	s := &sim{plan: newPlan(rng, opt), rng: rng}
	s.w = newWorld(alg, opt, s.nodes)
	s.w.fair, s.w.tells = s.fair, digest
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
		if n.machine != nil && !n.dead && !w.opt.Remembers && !n.machine.Idle() {
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
	w.arriving(func(from, to *node) {
		if p := w.links[from.index][to.index][0]; !ok || p.seq < best {
			o, ok, best = Op{Kind: opDeliver, Node: from.index, To: to.index}, true, p.seq
		}
	})
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
		twice := seed%16 == 0 || n == 1
		s, err := runSeed(alg, opt, seed, twice)
		if err != nil {
			t.Fatalf("seed %d (%v): %v\n\nagain: go test -run '^%s$' -locktest.seed=%d\n\n%s", seed, s.plan, err, t.Name(), seed, shortest(alg, opt, s.plan, s.ops))
		}
		runs, steps = runs+1, steps+len(s.ops)
		if twice {
			again, err := runSeed(alg, opt, seed, true)
			if err != nil || again.digest != s.digest {
				t.Fatalf("seed %d (%v): two runs of it differ", seed, s.plan)
			}
		}
	}
	t.Logf("%d runs, %d steps, seeds %d to %d", runs, steps, from, from+uint64(runs)-1)
}
