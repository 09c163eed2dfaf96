package doctor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Turns: the sides take a lock in turns, through the mount that dmxfs uses, and
// each looks whether it finds what the other has left.

// Ways in which programs keep what a lock protects. Each is a file that has the
// number of the turn in it.
const (
	wayKept    = "a descriptor that is kept open"
	wayLarge   = "a large file that is kept open"
	wayAppend  = "appending"
	wayAnew    = "a file that is opened for each turn"
	wayReplace = "a file that is replaced by rename"
	wayNames   = "names that are made and removed"
)

// manyWays are tried after a pause, fewWays many times in a row.
var (
	fewWays  = []string{wayKept, wayAppend}
	manyWays = []string{wayKept, wayLarge, wayAppend, wayAnew, wayReplace, wayNames}
)

const (
	turnSize = 16        // of what is written in a turn
	largeOff = 150 << 10 // where it is in the large file
)

func turnText(n int) []byte { return fmt.Appendf(nil, "%*d\n", turnSize-1, n) }

// turn takes the lock, looks for what turn n-1 has left, leaves the same of
// turn n, and gives the lock away. It tells which ways did not show it, and
// how long it took to have the lock and to have read all.
func (m *mount) turn(n int, ways []string, r *report) error {
	lock, err := m.keep("turn-lock")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := retryEINTR(func() error { return unix.Flock(lock, unix.LOCK_EX) }); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	for _, way := range ways {
		wrong, err := m.look(way, n-1)
		if err != nil {
			wrong = err.Error()
		}
		if wrong != "" && n > 1 {
			r.Names = append(r.Names, way)
			r.Data = wrong
		}
	}
	r.Time = int64(time.Since(began))
	for _, way := range ways {
		if err := m.leave(way, n); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	if err := unix.Flock(lock, unix.LOCK_UN); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	return m.give()
}

func (m *mount) open(name string, flags int) (fd int, err error) {
	err = retryEINTR(func() (err error) {
		fd, err = unix.Open(m.point+"/"+name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	return fd, err
}

// keep opens a file once.
func (m *mount) keep(name string) (int, error) {
	if fd, ok := m.kept[name]; ok {
		return fd, nil
	}
	fd, err := m.open(name, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return -1, fmt.Errorf("open %s on the mount: %w", name, err)
	}
	m.kept[name] = fd
	return fd, nil
}

// file is the descriptor for a way, and where in it the text of turn n is.
func (m *mount) file(way string, n int, flags int) (fd int, off int64, done func(), err error) {
	done = func() {}
	switch way {
	case wayKept:
		fd, err = m.keep("turn-kept")
	case wayLarge:
		off = largeOff
		fd, err = m.keep("turn-large")
	case wayAppend:
		off = int64(n-1) * turnSize
		fd, err = m.keep("turn-append")
	default:
		name := "turn-anew"
		if way == wayReplace {
			name = "turn-replaced"
		}
		fd, err = m.open(name, flags)
		done = func() { unix.Close(fd) }
	}
	return fd, off, done, err
}

// look says what is wrong with what turn n has left; empty if nothing is.
func (m *mount) look(way string, n int) (wrong string, err error) {
	if way == wayNames {
		var st unix.Stat_t
		if err := unix.Lstat(fmt.Sprintf("%s/turn-name-%d", m.point, n), &st); err != nil {
			return fmt.Sprintf("a new name: %v", err), nil
		}
		if err := unix.Lstat(fmt.Sprintf("%s/turn-name-%d", m.point, n-1), &st); err != unix.ENOENT {
			return fmt.Sprintf("a removed name is there (%v)", err), nil
		}
		return "", nil
	}
	fd, off, done, err := m.file(way, n, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer done()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	b := make([]byte, 2*turnSize)
	k, err := unix.Pread(fd, b, off)
	if err != nil {
		return "", err
	}
	if string(b[:k]) != string(turnText(n)) || st.Size != off+turnSize {
		return fmt.Sprintf("%q and a size of %d instead of %q and %d", b[:k], st.Size, turnText(n), off+turnSize), nil
	}
	return "", nil
}

// leave writes what turn n leaves.
func (m *mount) leave(way string, n int) error {
	if way == wayNames {
		fd, err := m.open(fmt.Sprintf("turn-name-%d", n), unix.O_WRONLY|unix.O_CREAT)
		if err != nil {
			return err
		}
		unix.Close(fd)
		if err := unix.Unlink(fmt.Sprintf("%s/turn-name-%d", m.point, n-1)); err != nil && err != unix.ENOENT {
			return err
		}
		return nil
	}
	if way == wayReplace {
		fresh := fmt.Sprintf("turn-fresh-%d", n)
		if err := os.WriteFile(m.point+"/"+fresh, turnText(n), 0o600); err != nil {
			return err
		}
		return os.Rename(m.point+"/"+fresh, m.point+"/turn-replaced")
	}
	fd, off, done, err := m.file(way, n, unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return err
	}
	defer done()
	_, err = unix.Pwrite(fd, turnText(n), off)
	return err
}

// pauseOfTurns is longer than clients of storage keep things that they keep for
// a second.
const pauseOfTurns = 1100 * time.Millisecond

// TurnsInARow is how many turns in a row are made, if there is the time: what goes wrong
// seldom may show in them. Tests make fewer.
var TurnsInARow = 500

// turnPauses is how many are made after a pause, in which what a cache keeps for too long
// shows.
const turnPauses = 6

// turnsTaken is what the turns have shown.
type turnsTaken struct {
	made, paused, inARow int            // turns; those after a pause; those without
	tries, wrong         map[string]int // by the way
	last                 string
	took                 []time.Duration // to have the lock and to have read all
	spent                time.Duration   // on those in a row, all in all
	at                   int             // of the findings, where they are told
}

// turns is what matters most: whether the data comes with the lock. If the
// storage is slow some are left for moreTurns.
func (d *doctor) turns() error {
	for _, side := range []*side{d.here, d.there} {
		r, err := d.do(side, order{Op: "mount"})
		if err != nil {
			return err
		}
		if err := r.err(); err != nil {
			d.found(ResultNote, "data under a lock", "not tried, as it needs a mount %s, which only root can make for itself: %v", side.where, err)
			return nil
		}
	}
	t := &turnsTaken{tries: map[string]int{}, wrong: map[string]int{}, at: len(d.findings)}
	d.taken = t
	for began := time.Now(); t.paused < turnPauses && time.Since(began) < d.upTo(0.2, 30*time.Second); t.paused++ {
		// The sides take turns: with one more, the pause is before the other one's.
		for range 1 + t.paused%2 {
			if err := d.turn(t, manyWays); err != nil {
				return err
			}
		}
		time.Sleep(min(pauseOfTurns, d.upTo(0.05, pauseOfTurns)))
		if err := d.turn(t, manyWays); err != nil {
			return err
		}
	}
	return d.turnsInARow(time.Now().Add(d.upTo(0.15, 20*time.Second)))
}

// moreTurns makes the turns for which there was no time among the other checks,
// with the time that these have left, less what tidying up may need.
func (d *doctor) moreTurns() error {
	return d.turnsInARow(d.began.Add(d.patience - d.upTo(0.1, 10*time.Second)))
}

// turnsInARow makes turns until all are made, or this time is over, or one went wrong.
func (d *doctor) turnsInARow(until time.Time) error {
	t := d.taken
	if t == nil {
		return nil // no mount
	}
	for began := time.Now(); t.inARow < TurnsInARow && time.Now().Before(until) && t.right(); t.inARow++ {
		if err := d.turn(t, fewWays); err != nil {
			return err
		}
		t.spent += time.Since(began)
		began = time.Now()
	}
	d.proven = t.right()
	return nil
}

// right is whether no data was missing; names may be late.
func (t *turnsTaken) right() bool {
	return len(t.wrong) == 0 || len(t.wrong) == 1 && t.wrong[wayNames] > 0
}

// turn has the side whose turn it is take one.
func (d *doctor) turn(t *turnsTaken, ways []string) error {
	t.made++
	side := []*side{d.here, d.there}[t.made%2]
	r, err := d.must(side, order{Op: "turn", Count: t.made, Data: strings.Join(ways, ",")})
	if err != nil {
		d.taken = nil // the error is what there is to tell
		return err
	}
	for _, way := range ways {
		t.tries[way]++
	}
	for _, way := range r.Names {
		t.wrong[way]++
		t.last = fmt.Sprintf("%s: %s", way, r.Data)
	}
	if t.made > 2 {
		t.took = append(t.took, time.Duration(r.Time))
	}
	return nil
}

// tellTurns says what the turns have shown, once.
func (d *doctor) tellTurns() {
	t := d.taken
	if t == nil {
		return
	}
	d.taken = nil
	later := slices.Clone(d.findings[t.at:])
	d.findings = d.findings[:t.at]
	d.foundOfTurns(t)
	d.findings = append(d.findings, later...)
}

func (d *doctor) foundOfTurns(t *turnsTaken) {
	if !t.right() {
		var what []string
		for _, way := range manyWays {
			if t.wrong[way] > 0 && way != wayNames {
				what = append(what, fmt.Sprintf("%s (%d of %d turns)", way, t.wrong[way], t.tries[way]))
			}
		}
		d.found(ResultBad, "data under a lock", "a side did not see under the lock what the other had written under it: %s; the last was %s. %s", strings.Join(what, ", "), t.last, d.lessCaching())
		return
	}
	d.found(ResultOK, "data under a lock", "in %d turns with flock, %d of them after a pause, each side saw what the other had left: through descriptors that stay open and through new ones, appended, and replaced by rename; %s", t.made, t.paused, t.cost())
	if names := t.wrong[wayNames]; names > 0 {
		d.found(ResultNote, "names under a lock", "names that the other side had made or removed were seen late in %d of %d turns, under the lock as well: programs that find their work by names that come and go have to expect that", names, t.tries[wayNames])
	}
}

// cost says how long the turns took, and, if there was no time for all, what
// that means.
func (t *turnsTaken) cost() string {
	if len(t.took) == 0 || t.inARow == 0 {
		return "there was no time for more"
	}
	slices.Sort(t.took)
	s := fmt.Sprintf("to have the lock and read takes %v in the middle, %v at most", t.took[len(t.took)/2].Round(10*time.Microsecond), t.took[len(t.took)-1].Round(time.Millisecond))
	if t.inARow < TurnsInARow {
		s += fmt.Sprintf(". There was time for %d of %d turns in a row, as each took %v with writing and writing out: what caches keep for too long shows after a pause, all the same, but what goes wrong once in some hundred times may not have. With a longer --patience there is time for all",
			t.inARow, TurnsInARow, (t.spent / time.Duration(t.inARow)).Round(time.Millisecond))
	}
	return s
}

// lessCaching says what to set on storage that keeps old data.
func (d *doctor) lessCaching() string {
	switch t := d.storage.Type; {
	case strings.Contains(t, "gluster"):
		return "Set for the volume: performance.quick-read off, and performance.stat-prefetch off"
	case strings.HasPrefix(t, "nfs"):
		return "Use NFS 4, without nocto, and with lookupcache=none or actimeo=0 if that does not help"
	case strings.Contains(t, "sshfs"):
		return "Mount it without kernel_cache, with -o cache=no or dcache_timeout=0"
	}
	return "Mount the storage with less caching of data and attributes"
}
