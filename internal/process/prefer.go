package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// preferred is the nice value of processes that programs of a host wait for. It is within a
// session where the kernel has the sessions share the processors (sched(7), autogroups); then
// it is that of the session, too.
const preferred = -10

// Prefer has the scheduler prefer this process, and those that it starts from now on, where
// that is allowed: who has started it with another nice value than 0 has decided otherwise.
// So is its session, if it is the first of that.
func Prefer() {
	// The system call returns 20 less the nice value.
	if n, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || n != 20 {
		return
	}
	raised := map[string]bool{} // a thread that is begun by one of those is, too
	for more := true; more; {
		more = false
		threads, _ := os.ReadDir("/proc/self/task")
		for _, e := range threads {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || raised[e.Name()] {
				continue
			}
			if unix.Setpriority(unix.PRIO_PROCESS, tid, preferred) == unix.EACCES {
				return
			}
			raised[e.Name()], more = true, true
		}
	}
	if sid, err := unix.Getsid(0); err == nil && sid == os.Getpid() {
		_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(preferred)), 0) // there may be none
	}
}
