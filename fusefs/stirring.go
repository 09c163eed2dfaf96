package fusefs

import (
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A client of NFS keeps names, and that there is none of a name, for as long as
// the directory has the time of change that it had. NFS 3 has nothing better,
// and NFS 4 counts changes only if the server's file system does. Those times
// come in steps: of a clock tick, up to 10 ms, on Linux, of a second on old file
// systems. Of two changes within a step, a client that looks between them never
// sees the second one, however long it waits, not even if it asks.
//
// So whoever has changed names in a directory stirs it: when the time of the
// server has moved on, it changes something that matters to nobody, the time of
// the last access. That is done before a lock goes to another host, and soon in
// any case. What other hosts have looked up before is void from then on.

// stirring are the directories in which names have changed.
type stirring struct {
	*base
	actor *actor

	mu   sync.Mutex
	dirs map[*node]*stirred // pinned

	one sync.Mutex // held by who stirs: the others wait until it is done

	seconds sync.Once // that times are in seconds was logged
	refused time.Time // when it was logged last that a touch is refused; guarded by one
}

// stirred is one of them.
type stirred struct {
	in    fuse.InHeader // the last program that changed it, which may therefore touch it
	had   unix.StatxTimestamp
	known bool // had is known
}

const (
	// stirDelay is when a directory is stirred that no lock waits for: many
	// changes are often made at once.
	stirDelay = 20 * time.Millisecond
	// stirMax is longer than the longest step, of FAT.
	stirMax = 2500 * time.Millisecond
	// stirPause is how long to wait at first, and at most, before the time of the
	// server is looked at again.
	stirPause, stirLongPause = time.Millisecond, 50 * time.Millisecond
)

// changedNames is called after a program has changed names in dirs, which are
// pinned, or may be nil, and before it is told.
func (s *stirring) changedNames(in *fuse.InHeader, dirs ...*node) {
	if !s.storage.NamesByTime {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range dirs {
		if dir == nil {
			continue
		}
		if s.dirs == nil {
			s.dirs = make(map[*node]*stirred)
			s.background(func() {
				time.Sleep(stirDelay)
				s.stir()
			})
		}
		if s.dirs[dir] == nil {
			s.tree.pin(dir)
			s.dirs[dir] = new(stirred)
		}
		s.dirs[dir].in = *in
	}
}

// stir stirs all directories in which names have changed before, and waits until
// that is done. It waits for the storage.
func (s *stirring) stir() {
	if !s.storage.NamesByTime {
		return
	}
	s.one.Lock()
	defer s.one.Unlock()
	s.mu.Lock()
	dirs := s.dirs
	s.dirs = nil
	s.mu.Unlock()
	pause := stirPause
	for began := time.Now(); ; pause = min(2*pause, stirLongPause) {
		late := time.Since(began) > stirMax
		for n, x := range dirs {
			switch moved, err := s.stirOne(n, x); {
			case err != nil && err != unix.ENOENT && err != unix.ESTALE || !moved && late:
				s.stirRefused(n, err)
			case err == nil && !moved:
				continue
			}
			delete(dirs, n)
			s.tree.unpin(n)
		}
		if len(dirs) == 0 {
			return
		}
		time.Sleep(pause)
	}
}

// refusedPause is how often it is logged, at most, that a touch is refused.
const refusedPause = time.Minute

// stirRefused: others see the new names when their clients look again by
// themselves. REQUIRES: stirring.one held.
func (s *stirring) stirRefused(n *node, err error) {
	if s.refused.IsZero() || time.Since(s.refused) > refusedPause {
		s.refused = time.Now()
		s.log.Warn("a directory in which names have changed could not be touched: other hosts may see the old names for as long as their clients keep them",
			"path", s.tree.pathTo(n), "err", err)
	}
}

// stirOne touches a directory, and reports whether its time has moved on.
func (s *stirring) stirOne(n *node, x *stirred) (moved bool, err error) {
	if !x.known {
		if x.had, err = changeTime(n.fd); err != nil {
			return false, err
		}
		x.known = true
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}
	err = s.actor.allowed(&x.in, func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(n.fd), times, 0) })
	if err != nil {
		return false, err
	}
	now, err := changeTime(n.fd)
	if err == nil && now.Nsec == 0 && x.had.Nsec == 0 {
		s.seconds.Do(func() {
			s.log.Warn("the times of this storage are in whole seconds: a lock under which names were changed takes up to a second to get to another host")
		})
	}
	return now != x.had, err
}

// changeTime asks the storage when a file or directory was changed.
func changeTime(fd int) (unix.StatxTimestamp, error) {
	var st unix.Statx_t
	err := retryEINTR(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_CTIME, &st)
	})
	return st.Ctime, err
}
