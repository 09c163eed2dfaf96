package engine

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
)

const processEnv = "DMXFS_TEST_ENGINE_PROCESS"

// calls of a program are counted there, in memory that outlives the process, too.
var callCounter = shm.Form{Texts: 1, Tables: []shm.Spec{{Words: 1, Max: 1}}}

func TestMain(m *testing.M) {
	if seed := os.Getenv(processEnv); seed != "" {
		beKilled(seed)
	}
	os.Exit(m.Run())
}

// alone is an engine that is the only member of a view.
func alone(l Ledger) *Engine {
	return New(Options{
		Transport: nothing{}, Files: nothing{}, Recorder: nothing{}, Log: slog.New(slog.DiscardHandler), Algorithms: allAlgorithms,
		Rule: func(path string) string { return everyAlgorithm[int(path[0]-'a')%len(everyAlgorithm)] },
		Live: func(time.Duration) bool { return true }, Ledger: l,
	})
}

// beKilled is a process that makes calls, and counts each before, until it is killed.
func beKilled(seed string) {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		panic(err)
	}
	tables, err := shm.Open(3, 1, ledgerForm(1<<12))
	if err != nil {
		panic(err)
	}
	counter, err := shm.Open(4, 1, callCounter)
	if err != nil {
		panic(err)
	}
	e, rnd := alone(tables), rand.New(rand.NewPCG(n, 5))
	e.Install(&locks.View{Epoch: 1, Self: "n0", Members: []locks.NodeID{"n0"}})
	if err := e.Sync("n0", 1, []byte{0}); err != nil {
		panic(err)
	}
	os.Stdout.WriteString("x")
	for i := uint64(1); ; i++ {
		if counter.Set(0, 1, []uint64{i}) != nil {
			panic("no place to count")
		}
		oneOf(rnd)(e)
	}
}

// oneOf is a call chosen at random.
func oneOf(rnd *rand.Rand) func(*Engine) {
	file := string(rune('a' + rnd.IntN(5)))
	r := req(locks.Classes[rnd.IntN(3)], 1+rnd.IntN(4), locks.Mode(1+rnd.IntN(2)), locks.Whole)
	r.Key.File, r.Path, r.Try = file, file, true
	if r.Key.Class == locks.Posix {
		r.Range.Start = uint64(rnd.IntN(20))
		r.Range.End = r.Range.Start + 1 + uint64(rnd.IntN(10))
	}
	switch op := rnd.IntN(10); {
	case op < 2 && r.Key.Class != locks.Open:
		return func(e *Engine) { e.Unlock(r.Key, r.Owner, r.Range) }
	case op < 3:
		return func(e *Engine) { e.UnlockHandle(r.Key, r.Handle, "closed") }
	case op < 4 && r.Key.Class == locks.Open:
		return func(e *Engine) { e.Share(r.Key, r.Handle, "a test") }
	}
	return func(e *Engine) { e.Lock(nil, r) }
}

// heldBy is what owners have of files in e, by algorithms whose order does not depend on
// what is kept.
func heldBy(e *Engine) (all []string) {
	ls := e.Locks()
	slices.SortFunc(ls, func(a, b LockInfo) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Range.Start, b.Range.Start))
	})
	for _, l := range ls {
		if l.State == Held {
			all = append(all, fmt.Sprint(l.Key, l.Owner, l.Handle, l.Mode, l.Range, l.Program))
		}
	}
	return all
}

// A process that is killed at any instruction leaves all that its programs had got, but
// for the call that it was in: when that is made again, all is as if nothing had been.
func TestProcessesThatAreKilled(t *testing.T) {
	for seed := range uint64(long.Or(8, 20)) {
		tables, err := shm.Create("test", 1, ledgerForm(1<<12))
		if err != nil {
			t.Fatal(err)
		}
		counter, err := shm.Create("test", 1, callCounter)
		if err != nil {
			t.Fatal(err)
		}
		counter.Put(0, []uint64{0})
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), processEnv+"="+strconv.FormatUint(seed, 10))
		cmd.ExtraFiles = []*os.File{duplicate(t, tables), duplicate(t, counter)}
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = io.ReadFull(out, make([]byte, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(seed, 6))
		unix.Nanosleep(&unix.Timespec{Nsec: rnd.Int64N(int64(8 * time.Millisecond))}, nil)
		cmd.Process.Kill()
		cmd.Wait()

		found := reopen(t, tables)
		state, err := ReadLedger(found)
		if err != nil {
			t.Fatal(err)
		}
		e, like := alone(nil), alone(nil)
		if err := e.Inherit(state); err != nil {
			t.Fatal(err)
		}
		said := e.State()
		e.Install(&locks.View{Epoch: 2, Self: "n0x", Members: []locks.NodeID{"n0x"}})
		if err := e.Sync("n0x", 2, said); err != nil {
			t.Fatal(err)
		}
		begin(t, like, "n0", "n0")
		calls, made := rand.New(rand.NewPCG(seed, 5)), counter.Get(0, 1)[0]
		for i := range made {
			call := oneOf(calls)
			if call(like); i == made-1 {
				call(e)
			}
		}
		if is, want := heldBy(e), heldBy(like); !slices.Equal(is, want) {
			t.Errorf("seed %d, killed in call %d: held is\n%v\nand should be\n%v", seed, made, is, want)
		}
		found.Close()
		tables.Close()
		counter.Close()
	}
}

func duplicate(t *testing.T, tables *shm.Tables) *os.File {
	t.Helper()
	f := os.NewFile(uintptr(dup(t, tables)), "tables")
	t.Cleanup(func() { f.Close() })
	return f
}
