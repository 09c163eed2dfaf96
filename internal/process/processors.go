package process

import (
	"os"
	"runtime"
)

// RunAtLeast has the Go runtime run n goroutines at a time at least, if nobody has decided
// otherwise (GOMAXPROCS). One in a system call counts as long as the monitor of the runtime
// has not seen that it lasts.
func RunAtLeast(n int) {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
}
