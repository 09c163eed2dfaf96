package process

import (
	"fmt"
	"os"
	"strconv"
)

// monitorSlack is by how much the monitor of the Go runtime may be late, in ns: it looks every
// 20 µs for threads in long system calls. usualSlack is what a thread has if nothing is said.
const (
	monitorSlack = 250_000
	usualSlack   = 50_000
)

// CalmMonitor has the monitor of the Go runtime (sysmon) in another process look more seldom
// than it would: each look wakes a processor up, of which the program needs one that this
// process serves. Threads that the monitor begins have the same from then on. For that
// CAP_SYS_NICE is needed, see proc_pid_timerslack_ns(5).
func CalmMonitor(pid int) error {
	tid, err := monitorOf(pid)
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), strconv.AppendInt(nil, monitorSlack, 10), 0)
}

// monitorOf is the thread of the monitor: the first that the runtime begins. The kernel lists
// threads in the order in which they were begun.
func monitorOf(pid int) (tid int, err error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(2)
	if err != nil {
		return 0, err
	}
	if len(names) < 2 {
		return 0, fmt.Errorf("process %d has one thread", pid)
	}
	return strconv.Atoi(names[1])
}
