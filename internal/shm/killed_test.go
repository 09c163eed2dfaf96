package shm

import (
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// counter is the form of tables in which a process that will be killed counts its steps.
var counter = Form{Texts: 1, Tables: []Spec{{Words: 1, Max: 1}}}

const writerEnv = "DMXFS_TEST_SHM_WRITER"

func TestMain(m *testing.M) {
	if seed := os.Getenv(writerEnv); seed != "" {
		write(seed)
	}
	os.Exit(m.Run())
}

// write makes the steps of a seed, each of which it counts before, until it is killed.
func write(seed string) {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		panic(err)
	}
	tables, err := Open(3, 5, small)
	if err != nil {
		panic(err)
	}
	steps, err := Open(4, 5, counter)
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString("x")
	m, rnd := newModel(), rand.New(rand.NewPCG(n, 9))
	for i := uint64(1); ; i++ {
		if steps.Set(0, 1, []uint64{i}) != nil {
			panic("no place to count")
		}
		m.step(tables, rnd)
	}
}

// A process that is killed leaves what it had done, and the last step either done or
// not, and another one goes on with that.
func TestKilled(t *testing.T) {
	for seed := range uint64(25) {
		tables, steps := create(t, small), create(t, counter)
		steps.Put(0, []uint64{0})
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), writerEnv+"="+strconv.FormatUint(seed, 10))
		cmd.ExtraFiles = []*os.File{file(t, tables), file(t, steps)}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		// At whatever moment: so long does nobody look.
		rnd := rand.New(rand.NewPCG(seed, 10))
		unix.Nanosleep(&unix.Timespec{Nsec: rnd.Int64N(int64(3 * time.Millisecond))}, nil)
		cmd.Process.Kill()
		cmd.Wait()

		n, next := reopen(t, steps, counter).Get(0, 1)[0], reopen(t, tables, small)
		before, after := newModel(), newModel()
		// The model needs tables of its own to make the same steps.
		for i, m := range []*model{before, after} {
			scratch, rnd := create(t, small), rand.New(rand.NewPCG(seed, 9))
			for m.serial+1 < n+uint64(i) {
				m.step(scratch, rnd)
			}
			scratch.Close()
		}
		errBefore, errAfter := before.differs(next), after.differs(next)
		if errBefore != nil && errAfter != nil {
			t.Fatalf("seed %d, killed in step %d: neither before it (%v) nor after it (%v)", seed, n, errBefore, errAfter)
		}
		m := before
		if errAfter == nil {
			m = after
		}
		for range 300 {
			m.step(next, rnd)
		}
		if err := m.differs(reopen(t, next, small)); err != nil {
			t.Fatalf("seed %d: after it went on: %v", seed, err)
		}
		next.Close()
	}
}

func file(t *testing.T, tables *Tables) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(tables.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "tables")
	t.Cleanup(func() { f.Close() })
	return f
}
