package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// preferred is the nice value of processes that programs of a host wait for.
const preferred = -10

// niceLimit is the RLIMIT_NICE that allows it, see getrlimit(2).
const niceLimit = 20 - preferred

// MayPrefer reports whether [Prefer] is for this process and those that it starts: nobody has
// decided otherwise, who would have started it with another nice value than 0. If it can, it
// has those that this process starts from now on be allowed to do so without CAP_SYS_NICE.
// follows: it goes on in the place of another one, or was started by one, and may be preferred
// already.
func MayPrefer(follows bool) bool {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	// The system call returns 20 less the nice value.
	if is := 20 - n; err != nil || is != 0 && !(follows && is == preferred) {
		return false
	}
	var has unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NICE, &has); err == nil && has.Cur < niceLimit {
		has.Cur, has.Max = niceLimit, max(has.Max, niceLimit)
		_ = unix.Setrlimit(unix.RLIMIT_NICE, &has) // without CAP_SYS_RESOURCE it cannot
	}
	return true
}

// Prefer has the scheduler prefer some processes, or not any more, and what they begin from
// then on. Those that have ended are left out.
func Prefer(yes bool, pids ...int) error {
	nice := 0
	if yes {
		nice = preferred
	}
	var errs []error
	for _, pid := range pids {
		errs = append(errs, setNice(pid, nice))
	}
	return errors.Join(errs...)
}

// setNice gives all threads of a process a nice value.
func setNice(pid, nice int) error {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	done := map[string]bool{} // a thread that is begun by one of those has it, too
	for more := true; more; {
		more = false
		threads, _ := os.ReadDir(dir) // none: it has ended
		for _, e := range threads {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || done[e.Name()] {
				continue
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && err != unix.ESRCH {
				return fmt.Errorf("nice value of process %d: %w", pid, err)
			}
			done[e.Name()], more = true, true
		}
	}
	return nil
}

// PreferSession is [Prefer] for all of the session of a process. Where the kernel has the
// sessions share the processors (sched(7), autogroups) a nice value counts within one only.
// One that is not preferred stays as it is with yes false.
func PreferSession(yes bool, pid int) error {
	nice, name := 0, groupOf(pid)
	if yes {
		nice = preferred
	} else if is, err := os.ReadFile(name); err != nil || !strings.HasSuffix(string(is), fmt.Sprintf(" nice %d\n", preferred)) {
		return nil
	}
	err := os.WriteFile(name, []byte(strconv.Itoa(nice)), 0)
	if errors.Is(err, os.ErrNotExist) { // there are none, or it has ended
		return nil
	}
	return err
}

// groupOf is the file of the autogroup of a process, see sched(7).
func groupOf(pid int) string { return fmt.Sprintf("/proc/%d/autogroup", pid) }
