package lease

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var runs = flag.Int("lease.runs", 300, "how many schedules are simulated")

// rules are what a node of the simulation follows; plants are other ones.
type rules interface {
	Begin(now int64) bool
	End(now int64)
	Look(now int64) (gen uint64, ask bool)
	Keeps(gen uint64) bool
	Wanted()
	Lost()
	Next(now int64) (Task, int64)
	Got(now int64)
	Refused(now int64)
	Failed()
	Dropped()
	Released(now int64)
	Held() Mode
}

// look is a request that the kernel has made.
type look struct {
	gen   uint64
	asked bool // the storage
	told  bool // written down for Drop, and on its way to the kernel
}

type host struct {
	rules
	looks    []*look
	kept     int // by the kernel, delivered
	waiting  int // changes that have not begun
	underway int
	applied  int // of those, in the storage
	task     Task
	begun    bool // the task has got to the lock
	wanted   bool // a message says so
	lagging  bool // it was expelled, and its kernel has not dropped everything
}

// world is some hosts, the lock as a correct algorithm has it, and the storage.
type world struct {
	rng     *rand.Rand
	now     int64
	hosts   []*host
	holds   []Mode
	held    int // how often Keep was granted
	changed int
	careful bool // Drop waits for what is on its way to the kernel
}

func newWorld(seed uint64, n int, of func() rules) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), holds: make([]Mode, n), careful: true}
	for range n {
		w.hosts = append(w.hosts, &host{rules: of()})
	}
	return w
}

func (w *world) keeper() int {
	for i, m := range w.holds {
		if m == Keep {
			return i
		}
	}
	return -1
}

// apply has host i change the storage. Nobody else may keep what was there.
func (w *world) apply(i int) error {
	h := w.hosts[i]
	h.applied++
	w.changed++
	for j, o := range w.hosts {
		if j == i || o.lagging || h.lagging {
			continue
		}
		if o.kept > 0 {
			return fmt.Errorf("host %d changes what the kernel of %d keeps", i, j)
		}
		for _, l := range o.looks {
			if l.told {
				return fmt.Errorf("host %d changes what the kernel of %d is just told", i, j)
			}
		}
	}
	return nil
}

// drive goes on with the task of host i.
func (w *world) drive(i int) {
	h := w.hosts[i]
	if h.task == Nothing {
		h.task, _ = h.Next(w.now)
		h.begun = false
		return
	}
	keeper := w.keeper()
	switch h.task {
	case LockChange:
		if keeper >= 0 && keeper != i {
			w.hosts[keeper].wanted = true
			return
		}
		w.holds[i] = Change
		h.Got(w.now)
	case TryKeep:
		for j, m := range w.holds {
			if j != i && m != None {
				h.Refused(w.now)
				h.task = Nothing
				return
			}
		}
		w.holds[i] = Keep
		w.held++
		h.Got(w.now)
	case Drop:
		for _, l := range h.looks {
			if l.told && w.careful {
				return // its thread has not gone on
			}
		}
		h.kept, h.lagging = 0, false
		h.Dropped()
	case Release:
		if !h.begun { // the lock is free before this host is told so
			w.holds[i], h.begun = None, true
			return
		}
		h.Released(w.now)
	}
	h.task = Nothing
}

// expel takes all from host i.
func (w *world) expel(i int) {
	h := w.hosts[i]
	h.lagging = h.lagging || h.Held() == Keep
	w.holds[i] = None
	h.wanted = false
	h.Lost()
	switch h.task {
	case LockChange, TryKeep: // the grant would be of a tenure that is over
		if h.task == LockChange {
			h.Failed()
		} else {
			h.Refused(w.now)
		}
		h.task = Nothing
	}
}

// look goes on with one of the looks of host i.
func (w *world) look(i int) {
	h := w.hosts[i]
	if len(h.looks) == 0 {
		return
	}
	at := w.rng.IntN(len(h.looks))
	l := h.looks[at]
	switch {
	case !l.asked:
		l.asked = true
		return
	case !l.told && h.Keeps(l.gen):
		l.told = true
		return
	case l.told:
		h.kept++
	}
	h.looks = append(h.looks[:at], h.looks[at+1:]...)
}

func (w *world) step(busy bool) error {
	w.now += int64(w.rng.IntN(16))
	if w.rng.IntN(400) == 0 {
		w.now += 5000
	}
	i := w.rng.IntN(len(w.hosts))
	h := w.hosts[i]
	switch k := w.rng.IntN(20); {
	case k < 6:
		w.drive(i)
	case k < 10 && (busy || h.Held() == Keep): // who keeps is not idle: it is others that want the lock
		if len(h.looks) < 4 {
			gen, _ := h.Look(w.now)
			h.looks = append(h.looks, &look{gen: gen})
		}
	case k < 14:
		w.look(i)
	case k == 14 && busy:
		if w.rng.IntN(8+40*i) == 0 {
			h.waiting++
		}
	case k == 15 && h.waiting > 0:
		if h.Begin(w.now) {
			h.waiting--
			h.underway++
		}
	case k == 16 && h.underway > h.applied:
		return w.apply(i)
	case k == 17 && h.applied > 0:
		h.underway--
		h.applied--
		h.End(w.now)
	case k == 18 && h.wanted:
		h.wanted = false
		if w.holds[i] == Keep {
			h.Wanted()
		}
	case k == 19 && busy && w.rng.IntN(60) == 0 && h.underway == 0:
		w.expel(i)
	}
	return nil
}

// run simulates one schedule: a busy time, and one in which everything ends.
func (w *world) run() error {
	for range 3000 {
		if err := w.step(true); err != nil {
			return err
		}
	}
	for range 6000 {
		if err := w.step(false); err != nil {
			return err
		}
	}
	for i, h := range w.hosts {
		if h.waiting > 0 || h.underway > 0 {
			return fmt.Errorf("host %d: %d changes wait for ever, %d are never over", i, h.waiting, h.underway)
		}
	}
	return nil
}

// keepsAtLast has only host i look at names, as often as programs do, while the others are
// idle. It gets to keep them.
func (w *world) keepsAtLast(i int) error {
	for end := w.now + KeepIdle + LongestPause + 2*LookAge; w.now < end; w.now += LookAge / ManyLooks / 4 {
		w.hosts[i].Look(w.now)
		for j := range w.hosts {
			w.look(j) // what is on its way gets there
			w.drive(j)
		}
		if w.holds[i] == Keep {
			return nil
		}
	}
	return fmt.Errorf("host %d looks, and does not get to keep anything; %v", i, w.holds)
}

// While a node changes something no other one's kernel keeps anything, every change gets
// its turn, and so does who looks when nobody else does.
func TestRules(t *testing.T) {
	held, changed := 0, 0
	for seed := range uint64(*runs) {
		w := newWorld(seed, 2+int(seed%3), func() rules { return new(Machine) })
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range w.hosts {
			if err := w.keepsAtLast(i); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		held += w.held
		changed += w.changed
	}
	if held < *runs || changed < 5**runs {
		t.Errorf("%d runs: Keep was granted %d times, and %d changes made: the schedules show little", *runs, held, changed)
	}
}

type (
	// dropsNothing says that it has dropped what it has not.
	dropsNothing struct{ *Machine }
	// looksOnce does not ask again whether what it found out may be kept.
	looksOnce struct{ *Machine }
	// changesLate begins changes while the lock is being given up.
	changesLate struct{ *Machine }
	// deaf never gives up what others want.
	deaf struct{ *Machine }
	// forgetsChanges gives the lock up while changes are under way.
	forgetsChanges struct{ *Machine }
)

func (m dropsNothing) Next(now int64) (Task, int64) {
	t, at := m.Machine.Next(now)
	if t == Drop {
		m.Dropped()
		return m.Machine.Next(now)
	}
	return t, at
}

func (m looksOnce) Keeps(gen uint64) bool { return gen != 0 }

func (m changesLate) Begin(now int64) bool {
	if m.doing == Release {
		m.changes++
		return true
	}
	return m.Machine.Begin(now)
}

func (m deaf) Wanted() {}

func (m forgetsChanges) Next(now int64) (Task, int64) {
	was := m.changes
	m.changes = 0
	t, at := m.Machine.Next(now)
	m.changes = was
	return t, at
}

var errFound = errors.New("found")

// Bugs that the simulation has to find.
func TestPlantedBugs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		of    func() rules
		hasty bool
	}{
		{"nothing is dropped", func() rules { return dropsNothing{new(Machine)} }, false},
		{"kept without a second look", func() rules { return looksOnce{new(Machine)} }, false},
		{"changes during the release", func() rules { return changesLate{new(Machine)} }, false},
		{"nobody is let in", func() rules { return deaf{new(Machine)} }, false},
		{"released under a change", func() rules { return forgetsChanges{new(Machine)} }, false},
		{"what is on its way is not waited for", func() rules { return new(Machine) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := error(nil)
			for seed := uint64(0); seed < 300 && err == nil; seed++ {
				w := newWorld(seed, 2+int(seed%3), tt.of)
				w.careful = !tt.hasty
				if w.run() != nil {
					err = errFound
				}
			}
			if err == nil {
				t.Error("300 schedules do not show it")
			}
		})
	}
}

// Two nodes that look all the time, one of which changes something every now and
// then: that costs few locks.
func TestPauses(t *testing.T) {
	m, tries := new(Machine), 0
	for now := int64(0); now < 60_000; now += 10 {
		m.Look(now)
		switch task, _ := m.Next(now); task {
		case TryKeep:
			tries++
			m.Got(now)
			m.Wanted()
		case Drop:
			m.Dropped()
		case Release:
			m.Released(now)
		case Nothing:
		default:
			t.Fatalf("task %d", task)
		}
	}
	if tries < 5 || tries > 12 {
		t.Errorf("%d tries in a minute", tries)
	}
}

// Keep is given up when nobody has looked for long, after a drop, and not under a change.
func TestKeepIdle(t *testing.T) {
	m, now := new(Machine), int64(1)
	step := func(want Task) (at int64) {
		t.Helper()
		task, at := m.Next(now)
		if task != want {
			t.Fatalf("at %d: task %d, want %d", now, task, want)
		}
		return at
	}
	for range ManyLooks {
		m.Look(now)
	}
	step(TryKeep)
	m.Got(now)
	for range 3 { // a program looks now and then
		now += KeepIdle - 1
		if at := step(Nothing); at != now+1 {
			t.Fatalf("at %d: next at %d", now, at)
		}
		if gen, _ := m.Look(now); !m.Keeps(gen) {
			t.Fatal("nothing is kept")
		}
	}
	now += KeepIdle - 1
	m.Begin(now)
	now += KeepIdle
	if at := step(Nothing); at <= now {
		t.Fatalf("at %d, during a change: next at %d", now, at)
	}
	m.End(now)
	now += KeepIdle
	step(Drop)
	if gen, _ := m.Look(now); gen != 0 {
		t.Error("something is kept during the drop")
	}
	m.Dropped()
	step(Release)
	m.Released(now)
	if m.Held() != None {
		t.Errorf("held as %d", m.Held())
	}
}

// What a change has added while everything was dropped is dropped when the change
// is over, and before the lock is given up.
func TestAddedDuringADrop(t *testing.T) {
	m := new(Machine)
	for range ManyLooks {
		m.Look(1)
	}
	step := func(want Task) {
		t.Helper()
		if task, _ := m.Next(1); task != want {
			t.Fatalf("task %d, want %d", task, want)
		}
	}
	step(TryKeep)
	m.Got(1)
	if !m.Begin(1) {
		t.Fatal("a change does not begin")
	}
	m.Wanted()
	step(Drop)
	m.Added()
	m.Dropped()
	step(Nothing)
	m.End(1)
	if !m.Awaited() {
		t.Error("nothing is to be done")
	}
	step(Drop)
	m.Dropped()
	step(Release)
}
