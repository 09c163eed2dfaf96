package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
)

const umlStays = "in user-mode Linux until it is ended"

// TestUMLStays is what TestNothingIsLeftOfUML runs in user-mode Linux. It has
// another process, which stands still.
func TestUMLStays(t *testing.T) {
	inUML(t)
	if err := exec.Command("sleep", "3600").Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Println(umlStays)
	select {}
}

// umlBoots is more than four of them take to start on a busy machine.
const umlBoots = 5 * time.Minute

// Nothing is left of user-mode Linux, however the test ends that runs it.
func TestNothingIsLeftOfUML(t *testing.T) {
	t.Parallel()
	needUML(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var side parts
	defer side.Wait()
	for _, sig := range long.Or([]unix.Signal{unix.SIGKILL}, []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGKILL}) {
		side.run(t, unix.SignalName(sig), func(t *testing.T) {
			cmd := exec.Command(self, "-test.run=^TestNFS$/^nfs4$", "-test.v", "-storage.nfs=TestUMLStays")
			cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer time.AfterFunc(umlBoots, func() { _ = cmd.Process.Kill() }).Stop()
			var said []string
			for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), umlStays); {
				said = append(said, lines.Text())
			}
			all := descendants(cmd.Process.Pid)
			if len(all) < 3 { // the kernel, the tests, sleep
				t.Errorf("it has the processes %v, and said %q", all, said)
			}
			_ = cmd.Process.Signal(sig)
			_ = cmd.Wait()
			defer func() {
				for _, pid := range all {
					if alive(pid) {
						_ = unix.Kill(pid, unix.SIGKILL)
					}
				}
			}()
			for _, pid := range all {
				await(t, fmt.Sprintf("process %d has ended", pid), func() bool { return !alive(pid) })
			}
		})
	}
}
