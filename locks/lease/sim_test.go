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
	Added()
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
	refused  int // of those: they wait with a directory locked, which a Drop may need
	underway int
	applied  int // of those, in the storage
	task     Task
	begun    bool // the task has got to the lock
	dropping bool
	till     int  // at this step what the kernel keeps has expired
	wanted   bool // a message says so
	lagging  bool // it was expelled, and its kernel has not dropped everything
}

// cacheSteps is for how long the kernel keeps what it was told. (Time runs in leaps.)
const cacheSteps = 4000

// world is some hosts, the lock as a correct algorithm has it, and the storage.
type world struct {
	rng     *rand.Rand
	now     int64
	steps   int
	hosts   []*host
	holds   []Mode
	held    int // how often Keep was granted
	changed int
	careful bool // Drop waits for what is on its way to the kernel
	slow    bool // changes take long
	stalled int  // how often a Drop waited for a change that waited for it, until all had expired
}

func newWorld(seed uint64, n int, of func() rules) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), holds: make([]Mode, n), careful: true, slow: seed%2 == 0}
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
	if h.dropping && w.rng.IntN(2) == 0 {
		w.drop(h)
		return
	}
	if h.task == Nothing {
		h.task, _ = h.Next(w.now)
		h.begun = false
		if h.task == Drop {
			h.task, h.dropping, h.till = Nothing, true, w.steps+cacheSteps
			w.again(h)
		}
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
	case Release:
		if !h.begun { // the lock is free before this host is told so
			w.holds[i], h.begun = None, true
			w.again(h) // anybody may ask now
			return
		}
		if w.slow && w.rng.IntN(10) > 0 {
			return
		}
		h.Released(w.now)
	}
	h.task = Nothing
	w.again(h)
}

// drop goes on with a Drop. It takes the locks of directories.
func (w *world) drop(h *host) {
	for _, l := range h.looks {
		if l.told && w.careful {
			return // its thread has not gone on
		}
	}
	switch late := w.steps >= h.till; {
	case h.refused > 0 && !late:
		return
	case h.refused > 0:
		w.stalled++
	}
	h.kept, h.lagging, h.dropping = 0, false, false
	h.Dropped()
}

// again has the changes that were refused ask once more, in any order.
func (w *world) again(h *host) {
	for range h.refused {
		if !h.Begin(w.now) {
			return
		}
		h.refused--
		h.waiting--
		h.underway++
	}
}

// expel takes all from host i.
func (w *world) expel(i int) {
	h := w.hosts[i]
	h.lagging = h.lagging || h.Held() == Keep
	w.holds[i] = None
	h.wanted = false
	h.Lost()
	w.again(h)
	switch h.task {
	case LockChange, TryKeep: // the grant would be of a tenure that is over
		if h.task == LockChange {
			h.Failed()
		} else {
			h.Refused(w.now)
		}
		h.task = Nothing
		w.again(h)
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
	w.steps++
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
	case k == 15 && h.waiting > h.refused:
		if h.Begin(w.now) {
			h.waiting--
			h.underway++
		} else {
			h.refused++
		}
	case k == 16 && h.underway > h.applied && (!w.slow || w.rng.IntN(20) == 0):
		return w.apply(i)
	case k == 17 && h.applied > 0:
		if w.rng.IntN(3) == 0 {
			h.Added() // it was a rename
		}
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
	w.slow = false
	for range 6000 {
		if err := w.step(false); err != nil {
			return err
		}
	}
	if w.stalled > 0 {
		return fmt.Errorf("%d times everything was to be dropped, and waited for a change that waited for that", w.stalled)
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
	// refusesInDrops lets no change begin when everything was dropped once.
	refusesInDrops struct{ *Machine }
	// dropsFirst asks for no lock before everything is dropped.
	dropsFirst struct{ *Machine }
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

func (m refusesInDrops) Begin(now int64) bool {
	return !(m.wanted && m.dropped) && m.Machine.Begin(now)
}

func (m dropsFirst) Next(now int64) (Task, int64) {
	was := m.needs
	m.needs = m.needs && !m.dropping
	t, at := m.Machine.Next(now)
	m.needs = was && t != LockChange || m.needs
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
		{"refused while more is dropped", func() rules { return refusesInDrops{new(Machine)} }, false},
		{"no lock before all is dropped", func() rules { return dropsFirst{new(Machine)} }, false},
		{"what is on its way is not waited for", func() rules { return new(Machine) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := error(nil)
			for seed := uint64(0); seed < 3000 && err == nil; seed++ {
				w := newWorld(seed, 2+int(seed%3), tt.of)
				w.careful = !tt.hasty
				if w.run() != nil {
					err = errFound
				}
			}
			if err == nil {
				t.Error("3000 schedules do not show it")
			}
		})
	}
}
