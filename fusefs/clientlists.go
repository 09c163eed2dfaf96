package fusefs

import (
	"math"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Which file a name is of, the client of GlusterFS tells from what it knows of the file that it
// takes it to be, as long as that is new: who looks at a directory by the name that another host
// has given it keeps the old name alive, too, and for as long. An xattr that tells the path of a
// directory is no help: some are old on some kinds of volumes, and others have none. What lists
// the parent asks the server.
//
// To list a directory takes some 70 µs a name. So this is done once, and then only the place is
// read again where the name was. It is found there if another directory has got the name, too,
// where that is what the places go by (ext4), or else the directory is listed again.

// dirLists are what is in the directories that a client that lingers was made to list last.
type dirLists struct {
	*base
	descriptors *descriptors
	leases      *leases

	told atomic.Bool // a listing has told the inode number that a lookup tells: they can be compared

	mu   sync.Mutex
	last [32]dirList
	next int
}

// dirList is what listings have told of a directory.
type dirList struct {
	dir   uint64 // its node; 0: none
	names map[string]listedName
	gen   uint64 // arrivals.explicit before it was listed from its beginning
	at    int64  // when that was, on the server's clock
	err   error  // of that; names are those before
	most  int    // how many names it would have read
	whole bool   // it was read to the end nevertheless, but while nobody waited
	next  int64  // when it may be listed in the background again, on the server's clock
	dirs  bool   // of more than maxKept names it has no others than those of directories
}

// listedName is what a listing has told of a name.
type listedName struct {
	ino  uint64 // 0: nothing
	from uint64 // what is read from there begins with it
	gen  uint64 // arrivals.explicit before it was read
}

// maxListed bounds the names of a directory that are read. While somebody waits for the name of a
// directory these are no more than maxAwaited: the rest is read in the background.
const (
	maxListed  = 100_000
	maxAwaited = 500
)

// maxKept is of how many names a list is kept when it is old, for the places. A longer one that is
// made for the names of directories has no others beyond them.
const maxKept = 2000

// tooLargeTime is for how long a directory counts as one with more than maxListed names, in
// milliseconds.
const tooLargeTime = 60_000

// tell looks whether a name in dir is that of the file with this inode number, by what the server
// has listed since a lock came here last. The error is errOtherFile if it is not, errUnlisted if
// that is not known, and errUnknown if it was known before, and is where it was no more. dirs: the
// file is a directory, and nobody waits for long. dir is pinned and has its anchor.
func (l *dirLists) tell(dir *node, name string, ino uint64, dirs bool) error {
	gen := l.arrivals.explicit.Load()
	x, was := l.of(dir.id, name)
	if was.ino == ino && was.gen == gen {
		return nil
	}
	unlisted := errUnlisted
	// If it was listed, another program of this host may have made the name meanwhile.
	if was.ino != 0 {
		if now, ok := l.listPart(dir, name, was.from, gen); ok {
			return l.agreed(now.ino == ino)
		}
		unlisted = errUnknown
	}
	most := maxListed
	if dirs {
		most = maxAwaited
	}
	switch {
	case x.err == nil || x.most < most:
	case x.err == unix.EOVERFLOW && dirs:
		l.listBehind(dir)
		return unlisted
	case x.err == unix.EOVERFLOW && l.now() < x.at+tooLargeTime || x.gen == gen:
		return unlisted
	}
	x = l.listAll(dir, most, dirs, false)
	now := x.names[name]
	l.put(x)
	switch {
	case now.ino != 0:
		return l.agreed(now.ino == ino)
	case x.err == nil:
		return errOtherFile
	case x.err == unix.EOVERFLOW && dirs:
		l.listBehind(dir)
	}
	return unlisted
}

// listBehind lists a directory that is too large to wait for, a quarter of the time at most.
func (l *dirLists) listBehind(dir *node) {
	if !l.begin(dir.id, l.now()) {
		return
	}
	l.tree.pin(dir)
	l.background(func() {
		defer l.tree.unpin(dir)
		x := l.listAll(dir, maxListed, true, true)
		x.whole = x.err == nil
		x.err, x.most = unix.EOVERFLOW, maxAwaited // nobody waits for it
		x.next = l.now() + 3*(l.now()-x.at)
		l.put(x)
	})
}

// meets is called when a directory is looked up for the first time: to have its place, where nobody
// waits for that, before another host gives the name away.
func (l *dirLists) meets(dir *node, name string) {
	if x, was := l.of(dir.id, name); was.ino == 0 && x.most == maxAwaited && x.err == unix.EOVERFLOW {
		l.listBehind(dir)
	}
}

// begin reports whether a directory is to be listed in the background now.
func (l *dirLists) begin(dir uint64, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.last {
		if x := &l.last[i]; x.dir == dir && now >= x.next {
			x.next = math.MaxInt64 // until there is another list in its place
			return true
		}
	}
	return false
}

// agreed notes that a listing has told what a lookup tells, or not.
func (l *dirLists) agreed(is bool) error {
	if !is {
		return errOtherFile
	}
	if !l.told.Load() {
		l.told.Store(true)
	}
	return nil
}

// of is the list of a directory, and what it tells of a name.
func (l *dirLists) of(dir uint64, name string) (dirList, listedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.last {
		if x := &l.last[i]; x.dir == dir {
			return *x, x.names[name]
		}
	}
	return dirList{}, listedName{}
}

// put takes a list in. If it is of a part, an older one may know the places of others.
func (l *dirLists) put(x dirList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := -1
	for i := range l.last {
		switch y := &l.last[i]; {
		case y.dir == x.dir:
			if place = i; x.err != nil && !x.whole {
				for name, was := range y.names {
					if _, ok := x.names[name]; !ok {
						x.names[name] = was
					}
				}
			}
		case y.gen != x.gen && len(y.names) > maxKept:
			*y = dirList{}
		}
	}
	if place < 0 {
		place, l.next = l.next, (l.next+1)%len(l.last)
	}
	l.last[place] = x
}

// again takes in what was read of a directory anew. A name that was not found has no place.
func (l *dirLists) again(dir uint64, name string, names map[string]listedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.last {
		x := &l.last[i]
		if x.dir != dir {
			continue
		}
		for name, now := range names {
			if x.names[name].gen <= now.gen {
				x.names[name] = now
			}
		}
		if names[name].ino == 0 {
			delete(x.names, name)
		}
	}
}

// listPart reads a little of a directory, from a place on, where there was a name.
func (l *dirLists) listPart(dir *node, name string, from, gen uint64) (now listedName, ok bool) {
	x := dirList{dir: dir.id, names: make(map[string]listedName), gen: gen}
	err := l.listNames(dir, from, &x, pageSize, func(int) bool { return false })
	l.tree.listed(dir, &x)
	l.again(dir.id, name, x.names)
	now, ok = x.names[name]
	return now, ok && err == nil
}

// listAll reads so many names of a directory, or all. dirs: the list is for the names of
// directories; behind: nobody waits for it.
func (l *dirLists) listAll(dir *node, most int, dirs, behind bool) dirList {
	x := dirList{dir: dir.id, names: make(map[string]listedName), gen: l.arrivals.explicit.Load(), at: l.now(), most: most, dirs: dirs}
	stops := false
	x.err = l.listNames(dir, 0, &x, dirBufferSize, func(read int) bool {
		stops = read > most || behind && l.pause.on.Load()
		return !stops
	})
	if stops && x.err == nil {
		x.err = unix.EOVERFLOW
	}
	l.tree.listed(dir, &x)
	return x
}

// listNames reads a directory from a place on, so many bytes at a time, for as long as goOn says
// so of how many names it has read.
func (l *dirLists) listNames(dir *node, from uint64, x *dirList, bytes int, goOn func(read int) bool) error {
	opened := l.now()
	fd, err := l.descriptors.withReserve(func() (int, error) {
		return unix.Openat(dir.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if from != 0 {
		if _, err := unix.Seek(fd, int64(from), unix.SEEK_SET); err != nil {
			return err
		}
	}
	buf := dirBuffers.Get().(*[]byte)
	defer dirBuffers.Put(buf)
	for read := 0; ; {
		n := 0
		err := retryEINTR(func() (err error) {
			n, err = unix.Getdents(fd, (*buf)[:bytes])
			return err
		})
		l.leases.reads(opened)
		if err != nil || n == 0 {
			return err
		}
		for rest := (*buf)[:n]; len(rest) > 0; read++ {
			e, size := parseDirent(rest)
			if !x.dirs || e.Mode == unix.S_IFDIR || len(x.names) < maxKept {
				x.names[e.Name] = listedName{e.Ino, from, x.gen}
			}
			from, rest = e.Off, rest[size:]
		}
		if !goOn(read) {
			return nil
		}
	}
}
