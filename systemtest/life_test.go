package systemtest

import (
	"context"
	"time"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// stop stops the process for d (SIGSTOP, swap, a long GC).
func (p *proc) stop(d time.Duration) {
	w := p.w
	w.mu.Lock()
	if !p.isAlive {
		w.mu.Unlock()
		return
	}
	p.isStopped = true
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
	p.stoppedUntil = max(p.stoppedUntil, w.now()+d)
	w.mu.Unlock()
	w.logf("%s is stopped for %v", p.name, d)
	w.after(d, p.goOn)
}

func (p *proc) goOn() {
	w := p.w
	w.mu.Lock()
	if !p.isAlive || !p.isStopped || p.stoppedUntil > w.now() {
		w.mu.Unlock()
		return
	}
	p.isStopped = false
	w.mu.Unlock()
	w.logf("%s goes on", p.name)
	open := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !p.isStopped && p.gate != nil {
			close(p.gate)
			p.gate = nil
		}
	}
	// Which of its threads runs first nobody knows.
	driverFirst := w.chance(0.5)
	if driverFirst {
		open()
	}
	inbox := p.inbox
	p.inbox = nil
	for _, do := range inbox {
		w.after(0, func() { p.deliver(do) })
	}
	if !driverFirst {
		w.after(w.between(0, 20*ms), open)
	}
}

// pause stops the process and its clock: what a hypervisor may do.
func (p *proc) pause(d time.Duration) {
	p.stop(d)
	const step = 10 * ms
	for at := step; at <= d; at += step {
		p.w.after(at, func() { p.host.offset.Add(-step.Milliseconds()) })
	}
}

// kill ends the process. What it asked of the storage may still be done.
func (p *proc) kill() {
	w := p.w
	w.mu.Lock()
	if !p.isAlive {
		w.mu.Unlock()
		return
	}
	p.isAlive = false
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
	w.mu.Unlock()
	w.logf("%s is killed", p.name)
	close(p.dead)
	p.cancel()
	w.check.killed(p)
}

// end is the end of the membership, as the machine wants it.
func (p *proc) end(e *member.End) {
	if !p.alive() {
		return
	}
	p.w.logf("%s ended: %v %s", p.name, e.Code, e.Text)
	p.ended = e
	p.kill()
}

// leave is an unmount: programs end first, and what they wrote is written out.
func (p *proc) leave() {
	w := p.w
	w.logf("%s leaves", p.name)
	p.closing = true
	deadline := w.now() + 3*time.Second
	var try func()
	try = func() {
		busy := len(p.host.dirty.writes) > 0
		for _, g := range p.programs {
			if g.waiting {
				g.waiting = false
				close(g.cancel)
			}
			// At the deadline the mount is taken away from who uses it.
			busy = busy || g.busy && w.now() < deadline
		}
		if busy {
			w.after(20*ms, func() { p.deliver(try) })
			return
		}
		for _, g := range p.programs {
			g.gone = true
		}
		p.engine.Leave()
		_ = p.node.Leave(context.Background())
	}
	p.deliver(func() {
		p.host.dirty.whenClean(func() {})
		try()
	})
}
