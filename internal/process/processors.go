package process

import (
	"os"
	"runtime"
	"sync"
)

// Processors are how many goroutines the Go runtime runs at a time (runtime.GOMAXPROCS), if
// nobody has decided that (the environment has GOMAXPROCS). One in a system call counts as
// long as the monitor of the runtime has not seen that it lasts. What a crowd is says
// fusefs/crowding.go.
type Processors struct {
	crowded int // 0: it is as it is

	mu       sync.Mutex
	wanted   bool // a crowd
	changing bool // a goroutine brings about what is wanted
	changes  sync.WaitGroup

	before int // the crowd; 0: there is none. Of that goroutine
}

// NewProcessors has usual run at a time at least, or crowded in a crowd.
func NewProcessors(usual, crowded int) *Processors {
	if os.Getenv("GOMAXPROCS") != "" {
		return &Processors{}
	}
	if runtime.GOMAXPROCS(0) < usual {
		runtime.GOMAXPROCS(usual)
	}
	return &Processors{crowded: crowded}
}

// Crowd says whether there is a crowd. It does not wait: to change the number stops all
// goroutines, and waits for the garbage collector before.
func (p *Processors) Crowd(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted = yes; p.changing || p.crowded == 0 {
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
	crowd := p.wanted
	p.mu.Unlock()
	p.set(crowd)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changing = p.wanted != crowd
	return p.changing
}

// set changes the number, unless there are as many as that already, or the runtime has
// changed it meanwhile, which follows the limits of the process.
func (p *Processors) set(crowd bool) {
	now := runtime.GOMAXPROCS(0)
	switch {
	case crowd && now < p.crowded:
		p.before = now
		runtime.GOMAXPROCS(p.crowded)
	case !crowd && p.before > 0:
		if now == p.crowded {
			runtime.GOMAXPROCS(p.before)
		}
		p.before = 0
	}
}
