package fusefs

import "time"

// Load is what programs have a mount do, by which who runs it decides how many goroutines the
// Go runtime runs at a time (runtime.GOMAXPROCS).
type Load int

const (
	UsualLoad Load = iota
	// Crowd: those who read requests leave other goroutines no place to run. One more
	// helps.
	Crowd
	// Parallel: several requests at a time wait for the storage. Each keeps one of the
	// places until the monitor of the runtime has seen that it waits, which takes longer
	// than many storages need; so with few of them programs get less than the storage can
	// do, and all other goroutines wait. Some more help.
	Parallel
)

func (l Load) String() string { return [...]string{"usual", "crowd", "parallel"}[l] }

const (
	// parallelCalls is how many requests begin to wait for the storage in a tick while others
	// do, where there is more than one program that reads now and then, and parallelTicks for how
	// many ticks in a row until that counts.
	parallelCalls = 2
	parallelTicks = 4
	// calmTicks is for how many ticks in a row there are less until that is over.
	calmTicks = 200
)

// load finds out which one it is. It has no clock and no effect but tell.
type load struct {
	tell func(Load) // nil: nobody wants to know
	told Load

	crowding crowding
	crowded  bool
	parallel bool
	beside   uint64 // see readers; until the last tick
	ticks    int    // in a row with as many as that
	calm     int    // in a row with less
}

func newLoad(tell func(Load)) *load {
	l := &load{tell: tell}
	l.crowding.tell = func(yes bool) { l.crowded = yes }
	return l
}

// tick is called at each tick, see [crowding.tick]; beside is readers.beside.
func (l *load) tick(late time.Duration, begun, beside uint64) {
	if l.tell == nil {
		return
	}
	l.crowding.tick(late, begun)
	many := beside-l.beside >= parallelCalls
	l.beside = beside
	switch {
	case many:
		l.calm = 0
		l.ticks++
		l.parallel = l.parallel || l.ticks >= parallelTicks
	case !l.parallel:
		l.ticks = 0
	default:
		l.ticks = 0
		l.calm++
		l.parallel = l.calm < calmTicks
	}
	l.say()
}

// rest is [crowding.rest].
func (l *load) rest(begun uint64) {
	l.crowding.rest(begun)
	l.parallel, l.ticks = false, 0
	l.say()
}

func (l *load) say() {
	now := UsualLoad
	switch {
	case l.parallel:
		now = Parallel
	case l.crowded:
		now = Crowd
	}
	if now != l.told && l.tell != nil {
		l.told = now
		l.tell(now)
	}
}
