package privileges

import (
	"os/exec"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
)

// unneeded are the capabilities that a daemon never needs. With
// CAP_SYS_RESOURCE it writes beyond quotas and to what a file system keeps back
// for root, whoever asked for it.
var unneeded = []uintptr{unix.CAP_SYS_RESOURCE}

// alsoUnneeded are those that only a fence command may need, which inherits what
// the daemon has.
var alsoUnneeded = []uintptr{
	unix.CAP_AUDIT_CONTROL, unix.CAP_AUDIT_READ, unix.CAP_AUDIT_WRITE, unix.CAP_BLOCK_SUSPEND, unix.CAP_BPF,
	unix.CAP_CHECKPOINT_RESTORE, unix.CAP_IPC_LOCK, unix.CAP_IPC_OWNER, unix.CAP_NET_ADMIN, unix.CAP_NET_BROADCAST,
	unix.CAP_NET_RAW, unix.CAP_PERFMON, unix.CAP_SYSLOG, unix.CAP_SYS_BOOT, unix.CAP_SYS_CHROOT, unix.CAP_SYS_MODULE,
	unix.CAP_SYS_NICE, unix.CAP_SYS_PACCT, unix.CAP_SYS_RAWIO, unix.CAP_SYS_TIME, unix.CAP_SYS_TTY_CONFIG, unix.CAP_WAKE_ALARM,
}

// starter is a thread that starts processes, which never have what it has given up.
//
// It goes on until this process ends. One that ended with each start would be one thread less:
// where no process can be begun (a control group, ulimit -u) no thread can, either, so that who
// tries it again and again would have the Go runtime end the process when it next needs one. And
// a child with Pdeathsig lives no longer than the thread that has started it.
type starter struct {
	begin sync.Once
	work  chan func()
}

// One for each set: what is given up cannot be had again.
var withFence, withoutFence starter

// do has the thread do what f does; drop is the same each time.
func (s *starter) do(drop []uintptr, f func()) {
	s.begin.Do(func() {
		s.work = make(chan func())
		go func() {
			runtime.LockOSThread() // and never unlocked
			for _, c := range drop {
				// Who may not give it up has none of it to give: not root.
				_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			}
			for f := range s.work {
				f()
			}
		}()
	})
	s.work <- f
}

// Start starts a daemon without the capabilities that it does not need, for good, but
// with the limits that it could not raise then. Linux keeps capabilities for each thread,
// so the daemon could not give them up for all of its own; but what a thread has given
// up, its children never have. fences: the daemon has a fence command.
func Start(cmd *exec.Cmd, fences bool) error {
	fusefs.RaiseFileLimit()
	s, drop := &withFence, unneeded
	if !fences {
		s, drop = &withoutFence, slices.Concat(unneeded, alsoUnneeded)
	}
	started := make(chan error, 1)
	s.do(drop, func() { started <- cmd.Start() })
	return <-started
}
