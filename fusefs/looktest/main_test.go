package looktest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/long"
)

// childEnv is set in the child, to the directory that it works in.
const childEnv = "DMXFS_LOOKTEST_CHILD"

// cacheTime is so long that who sees something late sees it too late.
const cacheTime = 6 * time.Second

// plain is the number of a host that knows no leases: an older version, say. What
// it changes others see late, but at once under a lock.
const plain = 2

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve mounts dir/raw at dir/0, dir/1 and dir/2, and answers what keeps names until
// nobody asks any more.
func serve(dir string) error {
	root, err := os.Open(filepath.Join(dir, "raw"))
	if err != nil {
		return err
	}
	s := newService(plain + 1)
	ended := make(chan error, len(s.mounts))
	for i := range s.mounts {
		o := fusefs.Options{
			Root: root, MountPoint: filepath.Join(dir, fmt.Sprint(i)), LeaseHaste: 50,
			Rule: func(string) fusefs.Rule { return fusefs.Rule{} },
		}
		if i != plain {
			o.CacheTime = cacheTime
		}
		s.mounts[i], err = fusefs.New(o)
		if err != nil {
			return err
		}
	}
	for i, m := range s.mounts {
		go func() { ended <- m.Serve(context.Background(), &node{s, i}) }()
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(s.keeper())
	}
	for _, m := range s.mounts {
		if err := m.Abort(); err != nil {
			return err
		}
	}
	for range s.mounts {
		<-ended
	}
	return nil
}

// hosts are mounts of one directory.
type hosts struct {
	t   *testing.T
	raw string
	at  [plain + 1]string
	in  io.Writer
	out *bufio.Reader
}

func mount(t *testing.T) *hosts {
	t.Helper()
	why := ""
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		why = "needs root and /dev/fuse"
	} else if !keepsHere() {
		why = "needs Linux 6.2 and a local file system"
	}
	if why != "" && os.Getenv("DMXFS_TEST_REQUIRE_MOUNTS") != "" {
		t.Fatal(why)
	} else if why != "" {
		t.Skip(why)
	}
	dir, err := os.MkdirTemp("", "dmxfs-looktest-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	long.Limit(t, dir)
	h := &hosts{t: t, raw: filepath.Join(dir, "raw")}
	must(t, os.Mkdir(h.raw, 0o755))
	for i := range h.at {
		h.at[i] = filepath.Join(dir, fmt.Sprint(i))
		must(t, os.Mkdir(h.at[i], 0o755))
	}
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), childEnv+"="+dir)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	must(t, err)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	h.in, h.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		in.Close()
		kill := time.AfterFunc(30*time.Second, func() { child.Process.Kill() })
		if err := child.Wait(); err != nil {
			t.Errorf("the child: %v", err)
		}
		kill.Stop()
		for _, d := range h.at {
			unix.Unmount(d, unix.MNT_DETACH)
		}
	})
	if line, err := h.out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the child says %q: %v", line, err)
	}
	return h
}

// keepsHere reports whether leases are used here: see leases.open in fusefs.
func keepsHere() bool {
	var name unix.Utsname
	unix.Uname(&name)
	var major, minor int
	fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	dir, err := os.Open(os.TempDir())
	if err != nil {
		return false
	}
	defer dir.Close()
	s, err := fusefs.StorageOf(int(dir.Fd()))
	return err == nil && s.Known && s.StableInodes && !s.ClientCache && (major > 6 || major == 6 && minor >= 2)
}

// keeper is the host that keeps names, or -1.
func (h *hosts) keeper() (n int) {
	h.t.Helper()
	fmt.Fprintln(h.in)
	line, err := h.out.ReadString('\n')
	must(h.t, err)
	_, err = fmt.Sscan(strings.TrimSpace(line), &n)
	must(h.t, err)
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
