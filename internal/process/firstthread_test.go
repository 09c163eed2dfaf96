package process

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The end of the first thread is told, while it is there it is not, and nobody waits for it
// for ever.
func TestFirstThread(t *testing.T) {
	probe, err := unix.PidfdOpen(os.Getpid(), unix.PIDFD_THREAD|unix.PIDFD_NONBLOCK)
	if err != nil {
		t.Skip("this kernel does not tell it: ", err)
	}
	unix.Close(probe)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := WatchFirstThread(cmd.Process.Pid)
	stopped.Stop()
	f := WatchFirstThread(cmd.Process.Pid)
	defer f.Stop()
	select {
	case <-f.Ended():
		t.Error("it was told before")
	default:
	}
	in.Close()
	select {
	case <-f.Ended():
	case <-time.After(time.Minute):
		t.Error("it was not told")
	}
	_ = cmd.Wait()
	select {
	case <-stopped.Ended():
		t.Error("it was told to who does not want to know")
	default:
	}
}
