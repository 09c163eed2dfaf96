package privileges

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// status is what a process that start has started says of its capabilities and its limit of
// files.
func status(t *testing.T, start func(*exec.Cmd) error) (caps map[string]uint64, soft, hard string) {
	t.Helper()
	var out, says bytes.Buffer
	cmd := exec.Command("cat", "/proc/self/status", "/proc/self/limits")
	cmd.Stdout, cmd.Stderr = &out, &says
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("%v, %s", err, &says)
	}
	caps = map[string]uint64{}
	for line := range strings.Lines(out.String()) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "Cap") {
			var set uint64
			if _, err := fmt.Sscanf(strings.TrimSpace(value), "%x", &set); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			caps[name] = set
		}
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if _, err := fmt.Sscan(rest, &soft, &hard); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	if len(caps) != 5 || soft == "" {
		t.Fatalf("what a process is like cannot be read:\n%s", &out)
	}
	return caps, soft, hard
}

// What is started has none of the capabilities that it does not need, and can get none by
// a program of root's; it has the others that this process has. With a fence command it has
// those that one may need, but not the one that lets it write beyond quotas.
func TestStart(t *testing.T) {
	own, _, _ := status(t, (*exec.Cmd).Start)
	for _, fences := range []bool{false, true} {
		caps, soft, hard := status(t, func(cmd *exec.Cmd) error { return Start(cmd, fences) })
		none := unneeded
		if !fences {
			none = slices.Concat(unneeded, alsoUnneeded)
		}
		var dropped uint64
		for _, c := range none {
			dropped |= 1 << c
		}
		sets := []string{"CapPrm", "CapEff"}
		if own["CapEff"]&(1<<unix.CAP_SETPCAP) != 0 { // else there are none to be got
			sets = append(sets, "CapBnd")
		}
		for _, set := range sets {
			if got, want := caps[set], own[set]&^dropped; got != want {
				t.Errorf("fences %v: %s is %#x, want %#x", fences, set, got, want)
			}
		}
		// It could not raise the limit then.
		if soft != hard {
			t.Errorf("fences %v: it may open %s files, and %s if it asks", fences, soft, hard)
		}
	}
	// This process has what it had, for who is started otherwise.
	if now, _, _ := status(t, (*exec.Cmd).Start); now["CapBnd"] != own["CapBnd"] || now["CapEff"] != own["CapEff"] {
		t.Errorf("this process has %#x and %#x, and had %#x and %#x", now["CapBnd"], now["CapEff"], own["CapBnd"], own["CapEff"])
	}
}

// That a program cannot be started is told.
func TestStartOfNothing(t *testing.T) {
	if err := Start(exec.Command("/nowhere/program"), false); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// What cannot be started costs no thread, however often it is tried: the runtime of this
// process may be able to begin no other one. It ends none that it has begun itself.
func TestStartCostsNoThread(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		for _, fences := range []bool{false, true} {
			if err := Start(exec.Command("/nowhere/program"), fences); !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		for _, tid := range threads(t) {
			seen[tid] = true
		}
	}
	// A thread that has started what does not live any more has had the time to end.
	cmd := exec.Command("true")
	if err := Start(cmd, false); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	now := threads(t)
	for tid := range seen {
		if !slices.Contains(now, tid) {
			t.Errorf("the thread %s has ended", tid)
		}
	}
}

// threads are those of this process.
func threads(t *testing.T) (tids []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		tids = append(tids, e.Name())
	}
	return tids
}

// A child that is to end with the thread that has started it lives on.
func TestStartedAndNotOrphaned(t *testing.T) {
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(cmd, false); err != nil {
		t.Fatal(err)
	}
	for range 5 { // each by another thread, if the one before it has ended
		other := exec.Command("true")
		if err := Start(other, false); err != nil {
			t.Fatal(err)
		}
		if err := other.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
