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
	if state := os.Getenv(watchesEnv); state != "" {
		watch(state)
		return
	}
	if role := os.Getenv(servesEnv); role != "" {
		serves(role)
		return
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

// watchesEnv makes the test binary the watcher of a state directory, until its standard input
// ends. It says so.
const watchesEnv = "DMXFS_TEST_WATCHES"

func watch(state string) {
	lock, err := lockWatcher(state)
	if err == nil {
		_, err = os.Stdout.WriteString("watching\n")
	}
	if err != nil {
		os.Exit(1)
	}
	defer lock.Close()
	_, _ = io.Copy(io.Discard, os.Stdin) // how that ends makes no difference
}
