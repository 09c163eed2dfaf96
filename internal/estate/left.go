package estate

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/keeper"
	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Left is an estate, opened by the process that takes it. The memory of the dead is mapped
// until Close, and of what it had open there are copies.
type Left struct {
	Estate
	// Locks is what [engine.Engine.Inherit] needs, and Heir what [member.Config] does.
	Locks []byte
	Heir  member.Heir

	keepers  map[uint64]*keeper.Found // by generation
	mount    *shm.Tables
	requests *fusefs.Requests
	locks    *shm.Tables
}

// Open finds what counts of an estate. Nothing that counts is changed by it, also with an
// error; but tables are made void that others have come after, see [shm.OpenNewest]. So it
// can be done again, by the next process if this one is killed.
func (e Estate) Open() (*Left, error) {
	l := &Left{Estate: e, keepers: map[uint64]*keeper.Found{}}
	if err := l.open(); err != nil {
		l.Close()
		return nil, fmt.Errorf("what the daemon that was killed has left: %w", err)
	}
	return l, nil
}

func (l *Left) open() (err error) {
	if !l.Complete() {
		return errors.New("there is no will that was in force")
	}
	for _, w := range l.Wills {
		if l.keepers[w.Generation], err = keeper.Find(w.Keeper); err != nil {
			return err
		}
	}
	room := l.keepers[l.Wills[0].Generation]
	made := make(chan error, 1)
	go func() { made <- room.MakeRoom() }() // the processors have time for that meanwhile
	defer func() { <-made }()               // if it fails the table grows as it is needed
	if l.mount, err = l.newest(mountForm(), fusefs.LedgerWhose, func(w *Will) int { return w.Mount }); err != nil {
		return fmt.Errorf("of its mount: %w", err)
	}
	g := l.mount.Generation()
	fd, err := l.keepers[g].Take(l.will(g).Requests)
	if err != nil {
		return err
	}
	if l.requests, err = fusefs.OpenRequests(fd, g); err != nil {
		unix.Close(fd)
		return err
	}
	if l.locks, err = l.newest(locksForm(), engine.LedgerWhose, func(w *Will) int { return w.Locks }); err != nil {
		return fmt.Errorf("of its locks: %w", err)
	}
	v, err := engine.ReadLedgerView(l.locks)
	if err != nil {
		return err
	}
	if l.Heir.Of, err = member.ParseNode(v.Self); err != nil {
		return err
	}
	l.Heir.Epoch = v.Epoch
	if err := l.readClaims(); err != nil {
		return err
	}
	l.Locks, err = engine.ReadLedger(l.locks)
	return err
}

// newest are the tables that count, of those whose descriptors fd tells.
func (l *Left) newest(f shm.Form, whose int, fd func(*Will) int) (t *shm.Tables, err error) {
	var all []shm.Candidate
	defer func() {
		for _, c := range all {
			if t == nil || c.FD != t.FD() {
				unix.Close(c.FD)
			}
		}
	}()
	for i := range l.Wills {
		w := &l.Wills[i]
		got, err := l.keepers[w.Generation].Take(fd(w))
		if err != nil {
			return nil, err
		}
		all = append(all, shm.Candidate{FD: got, Generation: w.Generation})
	}
	return shm.OpenNewest(f, whose, all)
}

// readClaims finds who has claimed the place: the last claims are complete, since each
// that is made has those before it, and counts if it is of that place.
func (l *Left) readClaims() error {
	for i := len(l.Wills) - 1; i >= 0; i-- {
		w := &l.Wills[i]
		fd, err := l.keepers[w.Generation].Take(w.Claims)
		if err != nil {
			return err
		}
		t, err := shm.Open(fd, w.Generation, claimsForm())
		if err != nil {
			unix.Close(fd)
			return fmt.Errorf("who has claimed its place: %w", err)
		}
		x, err := readClaims(t)
		t.Close()
		if err != nil {
			return err
		}
		if x.Of == l.Heir.Of {
			l.Heir.Claimed = x.By
			return nil
		}
	}
	return nil
}

func (l *Left) will(generation uint64) *Will {
	for i := range l.Wills {
		if l.Wills[i].Generation == generation {
			return &l.Wills[i]
		}
	}
	return &Will{}
}

// Resume goes on with the mount, see [fusefs.ResumeKilled].
func (l *Left) Resume(o fusefs.Options) (*fusefs.Server, error) {
	return fusefs.ResumeKilled(o, l.mount, l.requests, l.keepers[l.mount.Generation()].TakePath)
}

// recent is what the last process has noted of its changes. It has that of those before it.
func (l *Left) recent() (*recent.Memory, error) {
	w := l.Newest()
	fd, err := l.keepers[w.Generation].Take(w.Recent)
	if err != nil {
		return nil, err
	}
	m, err := recent.Open(fd)
	if err != nil {
		unix.Close(fd)
	}
	return m, err
}

// StateLock is the lock of the state directory, which stays locked.
func (l *Left) StateLock() (*os.File, error) {
	w := l.Newest()
	fd, err := l.keepers[w.Generation].Take(w.State)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "lock"), nil
}

// Control is the control socket.
func (l *Left) Control() (*os.File, error) {
	w := l.Newest()
	fd, err := l.keepers[w.Generation].Take(w.Control)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "control"), nil
}

// HangUp ends the connections of the dead to other hosts, and has it listen no more: the
// others hear of its death, and this process can listen where that did.
func (l *Left) HangUp() {
	for _, w := range l.Wills {
		known := func(int) bool { return false }
		if w.Generation == l.mount.Generation() {
			files := fusefs.LedgerFiles(l.mount)
			known = func(fd int) bool { return files[fd] }
		}
		sockets, _ := l.keepers[w.Generation].Sockets(known) // if it has ended there is nobody to hang up
		for _, old := range sockets {
			fd, err := l.keepers[w.Generation].Take(old)
			if err != nil {
				continue
			}
			if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil && (domain == unix.AF_INET || domain == unix.AF_INET6) {
				_ = unix.Shutdown(fd, unix.SHUT_RDWR) // it may be connected to nobody
			}
			unix.Close(fd)
		}
	}
}

// Supersede makes void what was left. What own has counts: the engine has inherited, and
// the mount was resumed.
func (l *Left) Supersede(own *Own) error {
	if own == nil { // nobody can go on after this process
		l.locks.Clear()
		l.mount.Clear()
		return nil
	}
	return errors.Join(own.locks.Supersede(l.locks, engine.LedgerWhose), own.mount.Supersede(l.mount, fusefs.LedgerWhose))
}

// Close gives up what was opened to read it. The Estate stays good.
func (l *Left) Close() {
	for _, k := range l.keepers {
		if k != nil {
			k.Close()
		}
	}
	for _, t := range []*shm.Tables{l.mount, l.locks} {
		if t != nil {
			t.Close()
		}
	}
	if l.requests != nil {
		l.requests.Close()
	}
	l.keepers, l.mount, l.locks, l.requests, l.Locks = nil, nil, nil, nil, nil
}
