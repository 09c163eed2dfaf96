package supervise

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// headlessEnv makes the test binary a process whose first thread has ended, and no other
// one.
const headlessEnv = "DMXFS_TEST_HEADLESS"

// The first thread is where TestMain runs only if it stays there from the beginning.
func init() {
	if os.Getenv(headlessEnv) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(headlessEnv) != "" {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	os.Exit(m.Run())
}
