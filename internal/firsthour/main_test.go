package firsthour

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

// program is the folder with the program, for PATH.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// They wait for most of their time, so that there can be more than processors.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "dmxfs-firsthour-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // another user runs it, too
	}
	if err == nil {
		program = dir
		var out []byte
		if out, err = exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "dmxfs"), "github.com/dmxfs/dmxfs/cmd/dmxfs").CombinedOutput(); err != nil {
			err = fmt.Errorf("build the program: %w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// need skips a test that is not run by root, or misses a device or a program.
func need(t *testing.T, programs ...string) {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "needs root"
	} else if _, err := os.Stat("/dev/fuse"); err != nil {
		why = "needs /dev/fuse"
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			why = "needs the program " + p
		}
	}
	switch {
	case why == "":
	case os.Getenv("DMXFS_TEST_REQUIRE_MOUNTS") != "":
		t.Fatal(why)
	default:
		t.Skip(why)
	}
}

// apart is bash that runs a script in namespaces of its own: its mounts and
// processes end with it, and what it sends goes nowhere.
func apart(t *testing.T, script, home string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	long.Limit(t, dir) // of which all else in the namespaces is a descendant
	file := filepath.Join(dir, "script")
	if err := os.WriteFile(file, []byte("ip link set lo up || exit\n"+script), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", file)
	c.Env = append(os.Environ(), "PATH="+program+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+home, "LC_ALL=C.UTF-8")
	return c
}
