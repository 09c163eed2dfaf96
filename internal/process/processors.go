package process

import (
	"os"
	"runtime"
	"sync"
)

// Processors are how many goroutines the Go runtime runs at a time (runtime.GOMAXPROCS), if
// nobody has decided that (the environment has GOMAXPROCS). One in a system call counts as
// long as the monitor of the runtime has not seen that it lasts.
type Processors struct {
	fixed bool

	mu       sync.Mutex
	wanted   int
	changing bool // a goroutine brings about what is wanted
	changes  sync.WaitGroup

	raised, before int // to which number, and from which; 0: it is not. Of that goroutine
}

// NewProcessors has usual run at a time at least.
func NewProcessors(usual int) *Processors {
	if os.Getenv("GOMAXPROCS") != "" {
		return &Processors{fixed: true}
	}
	if runtime.GOMAXPROCS(0) < usual {
		runtime.GOMAXPROCS(usual)
	}
	return &Processors{}
}

// AtLeast has n run at a time, or as many as would without. It does not wait: to change the
// number stops all goroutines, and waits for the garbage collector before.
func (p *Processors) AtLeast(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted = n; p.changing || p.fixed {
		return
	}
	p.changing = true
	p.changes.Go(func() {
		for p.next() {
		}
	})
}

// next brings about what is wanted. It is false when that is so.
func (p *Processors) next() bool {
	p.mu.Lock()
	n := p.wanted
	p.mu.Unlock()
	p.set(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changing = p.wanted != n
	return p.changing
}

// set changes the number, unless there are as many without, or the runtime has changed it
// meanwhile, which follows the limits of the process: that stays.
func (p *Processors) set(n int) {
	usual := runtime.GOMAXPROCS(0)
	if p.raised == usual {
		usual = p.before
	}
	if n > usual && n != p.raised {
		runtime.GOMAXPROCS(n)
	}
	switch {
	case n > usual:
		p.raised, p.before = n, usual
	case p.raised > 0:
		if runtime.GOMAXPROCS(0) == p.raised {
			runtime.GOMAXPROCS(usual)
		}
		p.raised, p.before = 0, 0
	}
}
