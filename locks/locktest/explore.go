package locktest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// Config is a small world whose every run is explored: all orders of what the
// nodes, the network and the disturbances can do.
type Config struct {
	// Nodes are the tickets that each node asks for, one after another, as in
	// "W A, R AB o1 try".
	Nodes []string
	// Views are the members of the epochs to come, as in "n0,n2". Atomic: all
	// change at once; else each node does when it does, in two steps.
	Views  []string
	Atomic bool
	// How many of each there can be. Rewrites are downgrades, and releases of
	// the first or the last byte. Agains are cancelled requests that come with
	// the stamp that they had.
	Cancels, Agains, Overtakes, Expires, Rewrites, Drops, Suspends, Dups int
	// Limit is how many states are looked at; 0 is a million.
	Limit int
}

func (c Config) String() string {
	s := strings.Join(c.Nodes, " | ")
	if len(c.Views) > 0 {
		s += " views=" + strings.Join(c.Views, ";")
		if c.Atomic {
			s += " atomic"
		}
	}
	for _, b := range c.budgets() {
		if *b.left > 0 {
			s += fmt.Sprintf(" %s=%d", b.name, *b.left)
		}
	}
	return s
}

type budget struct {
	name string
	left *int
}

func (c *Config) budgets() []budget {
	return []budget{
		{"cancels", &c.Cancels}, {"agains", &c.Agains}, {"overtakes", &c.Overtakes},
		{"expires", &c.Expires}, {"rewrites", &c.Rewrites}, {"drops", &c.Drops},
		{"suspends", &c.Suspends}, {"dups", &c.Dups},
	}
}

// Result is what an exploration has seen.
type Result struct {
	States, Steps, Ends int
	// Complete: there is nothing beyond.
	Complete bool
}

func (r Result) String() string {
	s := fmt.Sprintf("%d states, %d steps, %d ends", r.States, r.Steps, r.Ends)
	if !r.Complete {
		s += ", not complete"
	}
	return s
}

// An explorer searches breadth first, so that the first failure is a shortest
// one. A state is known by the hash of all that the future depends on. The world
// in which it was found is kept, if there are not too many, for the first step that
// leads on; for each other one it is reached again by doing its ops from the start.
type explorer struct {
	alg    locks.Algorithm
	opt    Options
	conf   Config
	script [][]locks.Ticket
	views  [][]int

	ops   []Op // every op that occurs, once
	index map[string]uint16
	// known are the states, in the order in which they were found.
	known []reached
	kept  map[uint32]*position // by their places in known
	seen  map[[16]byte]struct{}
	res   Result
}

type reached struct {
	from uint32 // the state before; the first is its own
	op   uint16
}

// keeps is how many positions are kept: each has some KB.
const keeps = 5000

// A position is a world, and what of the config is left.
type position struct {
	w    *world
	left Config
	next []int // in the script of each node
	view int
}

// Explore looks at all runs of c. The error tells the shortest that fails.
func Explore(alg locks.Algorithm, opt Options, c Config) (Result, error) {
	x := &explorer{alg: alg, opt: opt, conf: c, index: make(map[string]uint16), seen: make(map[[16]byte]struct{}), kept: make(map[uint32]*position)}
	if x.conf.Limit == 0 {
		x.conf.Limit = 1_000_000
	}
	if err := x.parse(); err != nil {
		return x.res, err
	}
	err := x.search()
	x.res.States = len(x.known)
	return x.res, err
}

func (x *explorer) parse() error {
	for _, n := range x.conf.Nodes {
		var script []locks.Ticket
		for i, s := range strings.Split(n, ",") {
			if strings.TrimSpace(s) == "" {
				continue
			}
			o, err := parseOp(fmt.Sprintf("%s n0/%d %s", opAcquire, i+1, s))
			if err != nil {
				return err
			}
			script = append(script, o.Ticket)
		}
		x.script = append(x.script, script)
	}
	for _, v := range x.conf.Views {
		o, err := parseOp(opView + " " + v)
		if err != nil {
			return err
		}
		x.views = append(x.views, o.View)
	}
	return nil
}

func (x *explorer) start() *position {
	return &position{
		w:    newWorld(x.alg, x.opt, len(x.conf.Nodes)),
		left: x.conf,
		next: make([]int, len(x.conf.Nodes)),
	}
}

// reach brings a new position to a known state.
func (x *explorer) reach(i uint32) *position {
	var path []uint16
	for ; i != x.known[i].from; i = x.known[i].from {
		path = append(path, x.known[i].op)
	}
	p := x.start()
	p.w.quick = true
	for _, o := range slices.Backward(path) {
		if err := x.do(p, x.ops[o]); err != nil {
			panic(fmt.Sprintf("locktest: %v was possible before: %v", x.ops[o], err))
		}
	}
	p.w.quick = false
	return p
}

func (x *explorer) search() error {
	x.known = append(x.known, reached{})
	x.seen[x.hash(x.start())] = struct{}{}
	for i := 0; i < len(x.known); i++ {
		p := x.kept[uint32(i)]
		if delete(x.kept, uint32(i)); p == nil {
			p = x.reach(uint32(i))
		}
		ops := x.possible(p)
		if len(ops) == 0 {
			x.res.Ends++
			if err := x.end(p); err != nil {
				return x.failure(uint32(i), nil, err)
			}
			continue
		}
		for k, o := range ops {
			if k > 0 {
				p = x.reach(uint32(i))
			}
			x.res.Steps++
			err := x.do(p, o)
			if err == nil && p.w.quiet() {
				err = p.w.oracle.idle(p.w)
			}
			if err != nil {
				return x.failure(uint32(i), &o, err)
			}
			h := x.hash(p)
			if _, ok := x.seen[h]; !ok {
				if x.seen[h] = struct{}{}; len(x.kept) < keeps {
					x.kept[uint32(len(x.known))] = p
				}
				x.known = append(x.known, reached{uint32(i), x.opIndex(o)})
			}
		}
		if len(x.known) > x.conf.Limit {
			return nil
		}
	}
	x.res.Complete = true
	return nil
}

func (x *explorer) opIndex(o Op) uint16 {
	s := o.String()
	i, ok := x.index[s]
	if !ok {
		i = uint16(len(x.ops))
		x.ops = append(x.ops, o)
		x.index[s] = i
	}
	return i
}

// failure is err with the run that leads to it.
func (x *explorer) failure(i uint32, last *Op, err error) error {
	var path []Op
	for ; i != x.known[i].from; i = x.known[i].from {
		path = append(path, x.ops[x.known[i].op])
	}
	slices.Reverse(path)
	if last != nil {
		path = append(path, *last)
	}
	return fmt.Errorf("%v: %w\n\n%s", x.conf, err, fileText(len(x.conf.Nodes), path))
}

// end checks a state in which nothing can happen any more.
func (x *explorer) end(p *position) error {
	for _, t := range p.w.oracle.tickets {
		if t.status <= held {
			return fmt.Errorf("at the end, %v is not over", t)
		}
	}
	return rest(p.w, p.w.apply)
}

// do is one step, of the world and of the budgets.
func (x *explorer) do(p *position, o Op) error {
	left := &p.left
	switch o.Kind {
	case opAcquire:
		if o.As != 0 {
			left.Agains--
		} else {
			p.next[o.Node]++
		}
	case opCancel:
		left.Cancels--
	case opOvertake:
		left.Overtakes--
	case opExpire:
		left.Expires--
	case opReplace:
		if len(o.Parts) > 0 {
			left.Rewrites--
		}
	case opDrop:
		left.Drops--
	case opSuspend:
		left.Suspends--
	case opDeliver:
		if o.Dup {
			left.Dups--
		}
	case opView:
		p.view++
		for len(p.next) <= slices.Max(o.View) {
			p.next = append(p.next, 0)
		}
		if x.conf.Atomic {
			return x.change(p, o)
		}
	}
	return p.w.apply(o)
}

// change is a change of the epoch in one step.
func (x *explorer) change(p *position, o Op) error {
	if err := p.w.apply(o); err != nil {
		return err
	}
	for _, kind := range []string{opFreeze, opRestore} {
		for _, n := range o.View {
			if err := p.w.apply(Op{Kind: kind, Node: n}); err != nil {
				return err
			}
		}
	}
	return nil
}

// hash is of all that the future of p depends on.
func (x *explorer) hash(p *position) (h [16]byte) {
	b := make([]byte, 0, 1024)
	num := func(vs ...int) {
		for _, v := range vs {
			b = binary.AppendVarint(b, int64(v))
		}
	}
	for _, l := range p.left.budgets() {
		num(*l.left)
	}
	num(p.view)
	num(p.next...)
	b = p.w.appendState(b)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}
