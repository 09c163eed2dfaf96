package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a program with very many locks costs the others on its host, and those on
// another one: a program beside it on each host locks and unlocks a file of its
// own all the time, and says how long that took at worst, and 99 of 100 times. So
// does one on a host of another cluster, where nothing else happens: what it waits
// for is the machine alone. The figures and the command that prints them are in
// docs/performance.md.

var (
	stallRanges = flag.Int("stall.ranges", 20_000, "how many ranges of a file a program has in BenchmarkNobodyStalls")
	stallFiles  = flag.Int("stall.files", 1000, "how many files are locked, and as many open, in BenchmarkNobodyStalls")
	stallWaits  = flag.Int("stall.waits", 300, "how many read, and as many wait to write, in BenchmarkNobodyStalls")
)

// watched is a cluster with a program beside what is measured on each of two
// hosts.
type watched struct {
	*testCluster
	b      *testing.B
	beside [2]*keeper
	apart  *keeper // on a host of another cluster
}

// step reports how long f takes, and what it costs the programs beside it.
func (w *watched) step(what string, f func()) {
	w.b.Helper()
	for _, k := range append(w.beside[:], w.apart) {
		k.want("ok", "reset")
	}
	began := time.Now()
	f()
	took := time.Since(began)
	line := fmt.Sprintf("%-34s %8.3f s;", what, took.Seconds())
	for i, k := range w.beside {
		k.tell("say")
		s, err := w.mounts[i].status()
		if err != nil {
			w.b.Fatal(err)
		}
		line += fmt.Sprintf(" host %d: %s ms, engine held %.1f ms at worst so far;", i+1, k.answer(), s.EngineLongestMS)
	}
	w.apart.tell("say")
	w.b.Log(line + " the machine alone: " + w.apart.answer() + " ms")
}

// BenchmarkNobodyStalls prints what very many locks cost others. It does
// everything once, whatever b.N is.
func BenchmarkNobodyStalls(b *testing.B) {
	b.Run("ranges", func(b *testing.B) {
		w := newWatched(b, 2)
		hoarder, n := w.mounts[0].converse("hoard"), *stallRanges
		do := func(format string, args ...any) func() {
			return func() { hoarder.want("ok", format, args...) }
		}
		hoarder.want("ok", "open many")
		asks := func(i int) func() {
			return func() { w.mounts[i].converse("hoard").want("locked", "ask many") }
		}
		w.step(fmt.Sprintf("take %d ranges", n), do("take %d", n))
		w.step("ask by F_GETLK from host 1", asks(0))
		w.step("ask by F_GETLK from host 2", asks(1))
		w.step("a third host joins", func() {
			w.add().mount()
			w.awaitMembers(3)
		})
		w.step("list (dmxfs locks)", func() { w.mounts[0].run1("locks", "--json") })
		w.step("replace by one lock", do("whole"))
		w.step("give that up", do("none"))
		w.step("take them again", do("take %d", n))
		w.step("exit", func() {
			hoarder.tell("exit")
			<-hoarder.p.done
			for _, l := range w.mounts[0].locks() {
				if l.Class == "posix" && l.State == "held" {
					b.Fatalf("%+v is still held", l)
				}
			}
		})
	})
	b.Run("files", func(b *testing.B) {
		w := newWatched(b, 2)
		w.mounts[0].converse("hoard").want("ok", "files %d", *stallFiles)
		w.step(fmt.Sprintf("a third host joins, with %d locked and as many open files", *stallFiles), func() {
			w.add().mount()
			w.awaitMembers(3)
		})
	})
	b.Run("waiters", func(b *testing.B) {
		w := newWatched(b, 2)
		hoarder := w.mounts[0].converse("hoard")
		hoarder.want("ok", "open many")
		n := *stallWaits
		w.step(fmt.Sprintf("%d read, %d wait to write", n, n), func() { hoarder.want("ok", "waiters %d", n) })
		w.step("all wait", func() { w.goesOn(2000) })
	})
}

func newWatched(b *testing.B, hosts int) *watched {
	w := &watched{testCluster: newCluster(b, hosts), b: b}
	for i := range w.beside {
		w.beside[i] = w.mounts[i].converse("beside", fmt.Sprint("own", i))
	}
	w.apart = newCluster(b, 1).mounts[0].converse("beside", "own")
	w.step("nothing", func() { w.goesOn(1500) })
	return w
}

// goesOn waits until each program beside has locked n times since the step began, about
// once in a millisecond or two.
func (w *watched) goesOn(n int) {
	for _, k := range append(w.beside[:], w.apart) {
		k.want("ok", "rounds %d", n)
	}
}

func (m *testMount) run1(args ...string) string { return m.c.run(append(args, m.dir)...) }

// beside locks and unlocks a file again and again. "rounds N" is answered when it has done so
// N times since "reset".
func beside(args []string) error {
	fd, err := unix.Open(args[0], unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	type wish struct {
		rounds int // so many, and then they go on; 0: what there are, and it begins anew
		took   chan []time.Duration
	}
	wishes := make(chan wish)
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	go func() {
		var took []time.Duration
		var open *wish
		for range pace.C {
			select {
			case x := <-wishes:
				open = &x
			default:
			}
			if open != nil && len(took) >= open.rounds {
				open.took <- took
				if open.rounds == 0 {
					took = nil
				}
				open = nil
			}
			began := time.Now()
			if err := lockCall("flock", fd, true); err != nil {
				panic(err)
			}
			if err := lockCall("flock", fd, false); err != nil {
				panic(err)
			}
			took = append(took, time.Since(began))
		}
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		x := wish{took: make(chan []time.Duration)}
		word, rest, _ := strings.Cut(in.Text(), " ")
		_, _ = fmt.Sscan(rest, &x.rounds)
		wishes <- x
		took := <-x.took
		if word != "say" {
			fmt.Println("ok")
			continue
		}
		slices.Sort(took)
		if len(took) == 0 {
			fmt.Println("nothing")
			continue
		}
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		fmt.Printf("%.1f (%.1f)\n", ms(took[len(took)-1]), ms(took[len(took)*99/100]))
	}
	return in.Err()
}

// hoard has very many locks.
func hoard() error {
	limit := unix.Rlimit{Cur: 1 << 18, Max: 1 << 18}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		var l unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	}
	fd, fds := -1, []int(nil)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		n, answer, name := 0, "ok", ""
		word, rest, _ := strings.Cut(in.Text(), " ")
		_, _ = fmt.Sscan(rest, &n)
		_, _ = fmt.Sscan(rest, &name)
		var err error
		switch word {
		case "open", "ask":
			if fd, err = unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644); err == nil && word == "ask" {
				l := unix.Flock_t{Type: unix.F_WRLCK}
				if err = unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l); err == nil && l.Type != unix.F_UNLCK {
					answer = "locked"
				}
			}
		case "whole", "none":
			err = setRange(fd, word == "whole", 0, 0)
		case "take":
			// With the permission for all, which one lock brings, no range is asked
			// for elsewhere.
			err = setRange(fd, true, 0, 0)
			if err == nil {
				err = setRange(fd, false, 0, 0)
			}
			for i := 0; i < n && err == nil; i++ {
				err = setRange(fd, true, int64(i)*10, 5)
			}
		case "chdir":
			err = os.Chdir(name)
		case "files":
			beside := n
			if _, rest, ok := strings.Cut(rest, " "); ok {
				_, err = fmt.Sscan(rest, &beside)
			}
			if err == nil {
				fds, err = hoardFiles(n, beside)
			}
		case "check":
			err = checkHoarded(fds)
		case "waiters":
			err = hoardWaiters(n)
		case "exit":
			return nil
		}
		if err != nil {
			answer = err.Error()
		}
		fmt.Println(answer)
	}
	return in.Err()
}

func setRange(fd int, lock bool, start, length int64) error {
	l := unix.Flock_t{Type: unix.F_UNLCK, Start: start, Len: length}
	if lock {
		l.Type = unix.F_WRLCK
	}
	return retry(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_SETLKW, &l) })
}

// hoardFiles has some files locked and others open.
func hoardFiles(locked, open int) (fds []int, err error) {
	for i := range locked + open {
		dir := fmt.Sprintf("d%d", i%100)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		fd, err := unix.Open(filepath.Join(dir, fmt.Sprint(i)), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return nil, err
		}
		if _, err := unix.Write(fd, []byte("x")); err != nil {
			return nil, err
		}
		if i < locked {
			if err := lockCall("flock", fd, true); err != nil {
				return nil, err
			}
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// hoardWaiters has n locks for reading, each of an open file of its own, and n
// threads that wait to write.
func hoardWaiters(n int) error {
	tids := make(chan int, n)
	for i := range 2 * n {
		fd, err := unix.Open("many", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		l := unix.Flock_t{Type: unix.F_RDLCK}
		if i < n {
			if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l); err != nil {
				return err
			}
			continue
		}
		l.Type = unix.F_WRLCK
		go func() {
			runtime.LockOSThread()
			tids <- unix.Gettid()
			_ = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLKW, &l)
		}()
	}
	for range n {
		<-tids
	}
	return nil
}
