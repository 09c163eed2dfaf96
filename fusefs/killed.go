package fusefs

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// read(2), write(2) and the like are not interrupted on a regular file of a
// local disk, and programs do not expect it: many take an EINTR for a broken
// file, and the kernel does not restart them. So where I/O has to wait for
// another node it goes on waiting over signals that do not end the process.
// The kernel tells of the first signal only; after it the state of the thread
// is looked at.

// killedEvery is how often that is done.
const killedEvery = 50 * time.Millisecond

// killed is a channel that is closed when the thread tid, whose request cancel
// belongs to, is about to die. stop ends the watch and must be called.
func (w *waits) killed(cancel <-chan struct{}, tid uint32) (killed <-chan struct{}, stop func()) {
	if cancel == nil {
		return nil, func() {}
	}
	dies, over := make(chan struct{}), make(chan struct{})
	w.tasks.Go(func() { // it may end at any moment
		select {
		case <-cancel:
		case <-over:
			return
		}
		tick := time.NewTicker(killedEvery)
		defer tick.Stop()
		for !w.procs.dying(tid) {
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
		close(dies)
	})
	return dies, func() { close(over) }
}

// dying reports whether a signal is pending that ends the thread. It is what
// it says as well if the thread cannot be looked at.
func (ps *processes) dying(tid uint32) bool {
	status, err := ps.status(tid)
	return err != nil || fatalPending(status)
}

// harmless are the signals that do not end a process that has no handler for
// them (signal(7)): CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const harmless = 1<<16 | 1<<17 | 1<<18 | 1<<19 | 1<<20 | 1<<21 | 1<<22 | 1<<27

// fatalPending looks for such a signal in /proc/PID/status (proc_pid_status(5)).
func fatalPending(status []byte) bool {
	masks := map[string]uint64{}
	for line := range bytes.Lines(status) {
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || !strings.HasPrefix(name, "Sig") && name != "ShdPnd" {
			continue
		}
		if v, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil {
			masks[name] = v
		}
	}
	const sigkill = 1 << (9 - 1)
	pending := masks["SigPnd"] | masks["ShdPnd"]
	return pending&sigkill != 0 || pending&^(masks["SigBlk"]|masks["SigIgn"]|masks["SigCgt"]|harmless) != 0
}

// waitOver is closed when a request has to end its wait: its program is about to
// die, or it stands in the way of others. stop must be called.
func (w *waits) waitOver(cancel <-chan struct{}, in *fuse.InHeader, letsGo <-chan struct{}) (over <-chan struct{}, stop func()) {
	killed, stop := w.killed(cancel, in.Pid)
	if letsGo == nil {
		return killed, stop
	}
	return either(killed, letsGo, stop)
}
