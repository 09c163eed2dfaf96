package supervise

import (
	"encoding/json"
	"io"
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
	if len(os.Args) > 1 && os.Args[1] == AdoptCommand {
		hearLastWord()
		return
	}
	os.Exit(m.Run())
}

// heardEnv names the file into which a watcher that a test has started writes how the daemon
// says that it ends.
const heardEnv = "DMXFS_TEST_HEARD"

// hearLastWord is that watcher.
func hearLastWord() {
	err := json.NewEncoder(os.NewFile(readyFD, "ready")).Encode(readyMessage{})
	b, _ := io.ReadAll(os.NewFile(lastWordFD, "last word"))
	if err != nil || os.WriteFile(os.Getenv(heardEnv), b, 0o600) != nil {
		os.Exit(1)
	}
}
