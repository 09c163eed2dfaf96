package supervise

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/process"
)

// While one daemon goes on in the place of another the scheduler prefers the processes of the
// mount: its programs wait, and what they hold is waited for on other hosts. At other times it
// does not: a daemon that is not preempted by the program that it answers has that go on on
// another processor, which makes each call wait for two of them to wake up.

// preferredFor is how long the processes of a mount are preferred once a daemon has gone on:
// it takes its place in the cluster then.
const preferredFor = 2 * time.Second

// preference is whether the scheduler prefers the processes of a mount.
type preference struct {
	may     bool // nobody has decided otherwise
	session bool // that of this process is the mount's own
	of      func() []*os.Process

	mu      sync.Mutex
	on      bool
	turn    int         // of begins and ends
	end     *time.Timer // of it; nil before it has begun
	setting sync.Mutex  // held while the kernel is told
}

// begins has them preferred for as long as a takeover may take, if ends does not say that it
// is over.
func (p *preference) begins() { p.is(true, takeoverTime) }

// ends has them preferred for a little longer.
func (p *preference) ends() { p.is(false, preferredFor) }

// is has them preferred, if begun, and no more after d.
func (p *preference) is(begun bool, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.may || !begun && !p.on {
		return
	}
	if begun && !p.on {
		p.on = true
		of := p.of() // now: who waits to go on is soon somebody else
		go p.set(func() []*os.Process { return of })
	}
	if p.end != nil {
		p.end.Stop()
	}
	p.turn++
	turn := p.turn
	p.end = time.AfterFunc(d, func() { p.over(turn) })
}

// over is called when it is, unless something has been said since.
func (p *preference) over(turn int) {
	p.mu.Lock()
	late := p.turn != turn
	if !late {
		p.on = false
	}
	p.mu.Unlock()
	if !late {
		p.set(p.of)
	}
}

// set has the kernel know what holds by now.
func (p *preference) set(of func() []*os.Process) {
	p.setting.Lock()
	defer p.setting.Unlock()
	p.mu.Lock()
	on := p.on
	p.mu.Unlock()
	var err error
	if p.session {
		err = process.PreferSession(on, os.Getpid())
	}
	// This one first: who it has started before is among the others.
	err = errors.Join(err, process.Prefer(on, os.Getpid()))
	for _, x := range of() {
		if x.Signal(syscall.Signal(0)) == nil { // else its number may be that of another one
			err = errors.Join(err, process.Prefer(on, x.Pid))
			if !on { // it may be in the session of a watcher that has ended
				err = errors.Join(err, process.PreferSession(false, x.Pid))
			}
		}
	}
	// It may be changed only so often where one has not all capabilities.
	if !on && errors.Is(err, unix.EAGAIN) {
		time.AfterFunc(preferredFor, func() { p.set(p.of) })
	}
}

// start has takeovers have an effect on this process and on those that of gives. follows:
// this one goes on in the place of another, and may be preferred, but not for much longer.
func (p *preference) start(of func() []*os.Process, follows bool) {
	p.of = of
	p.may = process.MayPrefer(follows)
	if sid, err := unix.Getsid(0); err == nil && sid == os.Getpid() {
		p.session = true
	}
	if follows {
		p.on = true
		p.ends()
	}
}

// processes are the daemon and who waits to go on, as far as they are known.
func (n *next) processes() (all []*os.Process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of != nil {
		all = append(all, n.of.process)
	}
	if n.waits != nil {
		all = append(all, n.waits.process)
	}
	return all
}
