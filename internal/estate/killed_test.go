package estate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/keeper"
	"github.com/dmxfs/dmxfs/internal/shm"
)

const roleEnv = "DMXFS_TEST_ESTATE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(roleEnv); dir != "" {
		if err := testate(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	// The keepers of processes that are killed go to this one.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// manyFiles is more than a process has room for that has opened little.
const manyFiles = 3000

// says is what a process says that is going to be killed.
type says struct {
	Will Will
	Addr string // where it listens
}

// testate is that process: it listens for hosts, and on control in dir for others, is connected
// to one that comes, and has many files open. Descriptor 3 is the lifeline.
func testate(dir string) error {
	control, err := net.Listen("unix", filepath.Join(dir, "control"))
	if err != nil {
		return err
	}
	defer control.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o, err := Begin(1, "test", 3, os.Getppid())
	if err != nil {
		return err
	}
	for range manyFiles {
		if _, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
	}
	w := o.Will()
	w.InForce = true
	if err := json.NewEncoder(os.Stdout).Encode(says{w, l.Addr().String()}); err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1)) // it is killed in this
	return err
}

// killed is what such a process has left, and a connection that it had.
func killed(t *testing.T, dir string) (s says, c net.Conn) {
	t.Helper()
	life, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close() })
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+dir)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{life}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	life.Close()
	if err == nil {
		err = json.NewDecoder(out).Decode(&s)
	}
	if err == nil {
		c, err = net.Dial("tcp", s.Addr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Cleanup(func() {
		if err := End([]Will{s.Will}); err != nil {
			t.Error(err)
		}
	})
	return s, c
}

// The connections of the dead to other hosts end, and nobody listens any more where it did;
// what is no such socket stays as it was, as the control socket.
func TestHangUp(t *testing.T) {
	dir := t.TempDir()
	s, c := killed(t, dir)
	if l, err := net.Listen("tcp", s.Addr); err == nil {
		l.Close()
		t.Fatal("the address of the dead is free: the keeper has nothing open")
	}
	k, err := keeper.Find(s.Will.Keeper)
	if err != nil {
		t.Fatal(err)
	}
	left := &Left{keepers: map[uint64]*keeper.Found{1: k}}
	t.Cleanup(left.Close)
	left.Add(s.Will)
	fd, err := k.Take(s.Will.Mount)
	if err != nil {
		t.Fatal(err)
	}
	if left.mount, err = shm.Open(fd, 1, mountForm()); err != nil {
		t.Fatal(err)
	}
	left.HangUp()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the connection to another host: %d, %v, want its end", n, err)
	}
	c.Close()
	l, err := net.Listen("tcp", s.Addr)
	if err != nil {
		t.Errorf("the address of the dead is not free: %v", err)
	} else {
		l.Close()
	}
	u, err := net.Dial("unix", filepath.Join(dir, "control"))
	if err != nil {
		t.Fatalf("nobody listens on the control socket any more: %v", err)
	}
	u.Close()
}

// tableSize is for how many descriptors this process has room, without another table.
func tableSize(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "FDSize:"); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// Who opens an estate has room for all descriptors of the dead, before it takes them.
func TestOpenMakesRoom(t *testing.T) {
	if st, err := os.Stat("/proc/self/fd"); err != nil || st.Size() == 0 {
		t.Skip("Linux before 6.2 does not tell how many descriptors a process has")
	}
	s, _ := killed(t, t.TempDir())
	if n := tableSize(t); n >= manyFiles {
		t.Fatalf("there is room for %d descriptors before", n)
	}
	if _, err := (Estate{Wills: []Will{s.Will}}).Open(); !errors.Is(err, shm.ErrNotBegun) {
		t.Errorf("nothing was begun: %v", err)
	}
	if n := tableSize(t); n < manyFiles {
		t.Errorf("there is room for %d descriptors, and the dead has %d", n, manyFiles)
	}
}

// A keeper that was killed itself is waited for by whom it has come to, if that has to; but not
// a process that has the number of one.
func TestEndOfAKeeperThatWasKilled(t *testing.T) {
	s, _ := killed(t, t.TempDir())
	id := s.Will.Keeper
	if err := unix.Kill(id.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := unix.Siginfo{}
	if err := unix.Waitid(unix.P_PID, id.PID, &ended, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err) // it has not come to this process
	}
	other := s.Will
	other.Keeper.Start++
	for _, x := range []struct {
		will Will
		left bool
	}{{other, true}, {s.Will, false}} {
		if err := End([]Will{x.will}); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", id.PID)); err == nil != x.left {
			t.Errorf("left of %+v: %v, want %v", x.will.Keeper, err == nil, x.left)
		}
	}
}
