package lease

// Mode is how a node holds the lock.
type Mode uint8

const (
	None   Mode = iota
	Change      // shared: this node may change names and attributes
	Keep        // exclusive: the kernel may keep them as well
)

// Task is what is to be done next.
type Task uint8

const (
	Nothing    Task = iota
	LockChange      // ask for the lock in mode Change, and wait; then [Machine.Got] or Failed
	TryKeep         // try the lock in mode Keep, and give up Change if it is granted; then Got or Refused
	Drop            // have the kernel drop all that it may keep, beside what follows; then Dropped
	Release         // give up the lock; then Released
)

// Times, in milliseconds.
const (
	// ChangeIdle is how long Change is held after the last change: the next one
	// asks nobody, and meanwhile no other node keeps anything.
	ChangeIdle = 1000
	// LookAge is after how long a look is no reason any more to want to keep.
	LookAge = 1000
	// FirstPause and LongestPause bound the pause before the next try, which
	// doubles when a try was refused, or what was got was soon given up.
	FirstPause, LongestPause = 1000, 8000
	// WorthIt is how long Keep has to last for the next pause to be short again.
	WorthIt = 10_000
	// KeepIdle is after how long without a look or a change Keep is given up, so that
	// another node can have it. A kernel that asks for nothing has nothing left then: it
	// is told everything for no longer than that.
	KeepIdle = 10_000
	// ManyLooks is how many looks are worth a try.
	ManyLooks = 16
	// ManyDrops is how often everything is dropped for one that waits to change something,
	// before changes of this node wait for it in any case.
	ManyDrops = 64
)

// Machine is one node's part. The zero value is ready, and holds nothing.
type Machine struct {
	// Haste divides the times above, for tests; 0 is 1.
	Haste int64

	held  Mode
	doing Task
	gen   uint64 // counts how often Keep came, or was lost; odd while it is held

	wanted   bool // another node wants to change
	dropped  bool // since then
	drops    int  // begun since then
	dropping bool
	lost     bool // all is lost, and the kernel may have something
	added    bool // a change has added to what was to be dropped already

	needs   bool  // a change waits for the lock
	changes int   // under way
	changed int64 // when the last one began or ended

	looks  int // since the last try
	looked int64

	keptAt, tryAt, pause int64
}

// Begin asks whether a change may begin now, and counts it if so. If not it has
// to ask again when something has changed, and when a Drop begins: who waits has a
// directory locked in the kernel, which a Drop may need.
//
// When everything was dropped for another node its turn comes before that of changes
// that have not begun. One that has may still add to what the kernel keeps, which takes
// another Drop, and during that they begin as before.
func (m *Machine) Begin(now int64) bool {
	if m.held == None || m.doing == Release || m.wanted && m.dropped && (!m.dropping || m.drops > ManyDrops) {
		m.needs = true
		return false
	}
	m.changes++
	m.changed = now
	return true
}

// End tells that a change is over.
func (m *Machine) End(now int64) {
	m.changes--
	m.changed = now
}

// Added tells, during a change, that the change has the kernel keep something in
// another place than was told. A drop that has begun may have missed it.
func (m *Machine) Added() { m.added = m.added || m.wanted || m.lost || m.dropping }

// Awaited reports whether something is to be done when the changes that are under
// way are over.
func (m *Machine) Awaited() bool { return (m.wanted || m.added) && m.changes == 0 }

// Look tells that something was asked for that the kernel could keep. gen is what
// [Machine.Keeps] knows it by; 0: it must not be kept for long. It comes before
// the storage is asked. With ask, [Machine.Next] may have something to do now.
func (m *Machine) Look(now int64) (gen uint64, ask bool) {
	if m.keeps() {
		m.looked = now
		return m.gen, false
	}
	if now-m.looked >= m.time(LookAge) {
		m.looks = 0
	}
	m.looks++
	m.looked = now
	return 0, m.looks == ManyLooks
}

// Keeps reports whether what was found out since Look gave gen may be kept. What
// is told the kernel is written down, for Drop, in the same critical section.
func (m *Machine) Keeps(gen uint64) bool { return gen != 0 && gen == m.gen && m.keeps() }

func (m *Machine) keeps() bool { return m.held == Keep && !m.wanted }

// Wanted tells that another node waits to change something.
func (m *Machine) Wanted() {
	if m.held == Keep && !m.wanted {
		m.give()
	}
}

// give has everything dropped, and the lock given up.
func (m *Machine) give() { m.wanted, m.dropped, m.drops = true, false, 0 }

// Lost tells that the lock is lost, in whichever mode. What is under way for it
// ends as if it had failed.
func (m *Machine) Lost() {
	if m.held == Keep {
		m.lost = true
		m.gen++
	}
	m.held, m.wanted, m.dropped = None, false, false
}

// Next says what to do, and that it is being done; if it is Nothing, then when to
// ask again if nothing happens before; 0: not at all.
func (m *Machine) Next(now int64) (t Task, at int64) {
	if m.held == Keep && !m.wanted && m.doing == Nothing && now >= m.keepsUntil(now) {
		m.give()
	}
	if m.toDrop() && !m.dropping {
		m.dropping, m.lost = true, false
		m.drops++
		if m.changes == 0 {
			m.added = false
		}
		return Drop, 0
	}
	if m.doing != Nothing {
		return Nothing, 0
	}
	m.doing, at = m.next(now)
	return m.doing, at
}

// toDrop reports whether the kernel may have something that has to go.
func (m *Machine) toDrop() bool {
	return m.lost || m.wanted && !m.dropped || m.added && m.changes == 0
}

func (m *Machine) next(now int64) (t Task, at int64) {
	switch {
	case m.wanted && m.dropped && !m.dropping && m.changes == 0:
		return Release, 0
	case m.wanted:
		return Nothing, 0 // the end of a change is told, and of a drop
	case m.held == None && m.needs:
		return LockChange, 0 // and not when all is dropped: see Begin
	case m.held == Keep:
		return Nothing, m.keepsUntil(now)
	}
	idle := m.changed + m.time(ChangeIdle)
	if m.wantsToKeep(now) && !m.dropping && !m.added { // else the kernel may have what is old
		if now >= m.tryAt {
			return TryKeep, 0
		}
		at = m.tryAt
	}
	if m.held == Change {
		if m.changes > 0 {
			idle = now + m.time(ChangeIdle)
		}
		if now >= idle {
			return Release, 0
		}
		if at == 0 || idle < at {
			at = idle
		}
	}
	return Nothing, at
}

// keepsUntil is when Keep is given up as if another node wanted to change something, if
// nobody looks here any more: what others try is refused, and nobody hears of it.
func (m *Machine) keepsUntil(now int64) (at int64) {
	if m.changes > 0 {
		return now + m.time(KeepIdle)
	}
	return max(m.looked, m.changed) + m.time(KeepIdle)
}

func (m *Machine) wantsToKeep(now int64) bool {
	return m.looks >= ManyLooks && now-m.looked < m.time(LookAge)
}

// Got tells that the lock was granted, in the mode of the task.
func (m *Machine) Got(now int64) {
	switch m.doing {
	case LockChange:
		m.held, m.needs = Change, false
		m.changed = now
	case TryKeep:
		m.held, m.needs = Keep, false
		m.gen++
		m.keptAt, m.looked, m.looks = now, now, 0
	}
	m.doing = Nothing
}

// Failed tells that the lock cannot be had. Changes that wait for it have to be
// told that.
func (m *Machine) Failed() {
	m.needs, m.doing = false, Nothing
}

// Refused tells that another node holds the lock.
func (m *Machine) Refused(now int64) {
	m.doing, m.looks = Nothing, 0
	m.waitLonger(now)
}

// Dropped tells that the kernel keeps nothing any more.
func (m *Machine) Dropped() {
	// What is wanted was wanted when this drop began: nothing is kept before the last one is over.
	m.dropping, m.dropped = false, m.wanted
}

// Released tells that the lock was given up.
func (m *Machine) Released(now int64) {
	if m.held == Keep {
		m.gen++
		if now-m.keptAt >= m.time(WorthIt) {
			m.pause = 0
		}
		m.waitLonger(now)
	}
	m.held, m.doing, m.wanted, m.dropped, m.looks = None, Nothing, false, false, 0
}

func (m *Machine) waitLonger(now int64) {
	m.pause = min(max(2*m.pause, m.time(FirstPause)), m.time(LongestPause))
	m.tryAt = now + m.pause
}

func (m *Machine) time(ms int64) int64 { return ms / max(m.Haste, 1) }

// Held is how the lock is held.
func (m *Machine) Held() Mode { return m.held }
