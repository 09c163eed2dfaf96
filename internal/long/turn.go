package long

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Turn has a test with processes of its own wait, with the race detector, until fewer such
// tests than twice the processors run, of all packages that go test runs at once: with more,
// each takes several times as long, and what it waits for comes too late. The test keeps its
// turn until it ends, and its subtests share it.
//
// [Limit] does it, too.
func Turn(t testing.TB) {
	if Race {
		allTurns.await(t)
	}
}

// NoTurn is called before [Limit] by a test that does little but wait: it takes no turn.
func NoTurn(t testing.TB) { allTurns.pass(t) }

// OneTurn has all tests of a package share one turn, which lasts until all have ended: those
// of a package with many short ones would wait all the time. It is called before they run.
func OneTurn() { allTurns.one = true }

// allTurns are locks of go.mod, which all packages have, and where no lock leaves anything
// behind.
var allTurns = newTurns(goMod, 2*runtime.NumCPU())

// turns lets a number of tests run at once. A turn is a lock of a byte of a file.
type turns struct {
	file   func() string // called for a turn, not by the programs of a test, which may be on a mount
	atOnce int
	one    bool // all tests of this process share one, which is not given up

	mu sync.Mutex
	of map[string]*turn // those of this process, by test
}

func newTurns(file func() string, atOnce int) *turns {
	return &turns{file: file, atOnce: atOnce, of: map[string]*turn{}}
}

// turn is that of a test and its subtests.
type turn struct {
	users int // those that have not ended; guarded by the mutex of the turns
	once  sync.Once
	file  *os.File // has the lock; nil: the file cannot be locked
}

// await waits for the turn of t, and gives it up when t ends.
func (ts *turns) await(t testing.TB) {
	x := ts.join(t)
	x.once.Do(func() { x.file = ts.take() })
}

// pass has t go without a turn.
func (ts *turns) pass(t testing.TB) { ts.join(t).once.Do(func() {}) }

// join is the turn of t, until it ends; it may have to be taken yet.
func (ts *turns) join(t testing.TB) *turn {
	test, _, _ := strings.Cut(t.Name(), "/")
	if ts.one {
		test = ""
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	x := ts.of[test]
	if x == nil {
		x = &turn{}
		ts.of[test] = x
	}
	x.users++
	t.Cleanup(func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if x.users--; x.users > 0 || ts.one {
			return
		}
		delete(ts.of, test)
		if x.file != nil {
			_ = x.file.Close()
		}
	})
	return x
}

// take waits for a turn: the first byte is for who is next, those behind it are the turns.
// Where the file cannot be locked nobody waits, and it is nil.
func (ts *turns) take() *os.File {
	f, err := os.OpenFile(ts.file(), os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	lock := func(how int, typ int16, at int) error {
		for {
			err := unix.FcntlFlock(f.Fd(), how, &unix.Flock_t{Type: typ, Start: int64(at), Len: 1})
			if err != unix.EINTR {
				return err
			}
		}
	}
	if lock(unix.F_OFD_SETLKW, unix.F_WRLCK, 0) != nil {
		_ = f.Close()
		return nil
	}
	defer func() { _ = lock(unix.F_OFD_SETLK, unix.F_UNLCK, 0) }()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		for i := range ts.atOnce {
			switch lock(unix.F_OFD_SETLK, unix.F_WRLCK, 1+i) {
			case nil:
				return f
			case unix.EAGAIN, unix.EACCES:
			default:
				_ = f.Close()
				return nil
			}
		}
		<-again.C
	}
}

// goMod is the file of this module, seen from the package that is tested.
func goMod() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for ; ; dir = filepath.Dir(dir) {
		name := filepath.Join(dir, "go.mod")
		if _, err := os.Stat(name); err == nil || dir == filepath.Dir(dir) {
			return name
		}
	}
}
