package fusefs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// Server is one mount, from [New] (or [Resume]) until [Server.Serve] returns. Its
// methods are safe for concurrent use.
type Server struct {
	fs    *fileSystem
	mount mountpoint
	done  chan struct{} // closed when Serve has returned

	resumed *saved         // what another process has left; nil: the mount is new
	lease   locks.HandleID // of the lease of names that it had
}

// New mounts. Programs that use the mount wait until [Server.Serve] runs. The
// process must not use it itself until then.
//
// It sets the umask of the process to 0, because the modes of files are the
// programs' affair, and raises its limit of open files.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	f, err := newFileSystem(o)
	if err != nil {
		return nil, fmt.Errorf("fusefs: %w", err)
	}
	mount, dev, err := newMount(&o)
	if err != nil {
		f.close()
		return nil, fmt.Errorf("fusefs: %w", err)
	}
	if err := f.connect(dev); err != nil {
		mount.detach(true)
		f.close()
		return nil, fmt.Errorf("fusefs: %w", err)
	}
	if err := mount.raiseReadAhead(); err != nil {
		f.log.Debug("the kernel reads ahead less than it could", "err", err)
	}
	f.ledger.begin(f, mount)
	return &Server{fs: f, mount: mount, done: make(chan struct{})}, nil
}

// newFileSystem prepares everything that needs no mount.
func newFileSystem(o Options) (*fileSystem, error) {
	b := &base{opts: o, log: o.Log, locker: o.Locker, fds: -1, start: time.Now(), pause: newPausing()}
	b.dev = device{fd: -1, pause: b.pause}
	if o.Ledger != nil {
		b.dev.requests = o.Ledger.Requests
	}
	var err error
	if b.ledger, err = newLedger(b, o.Ledger); err != nil {
		return nil, err
	}
	f := &fileSystem{
		notServed:    notServed{fuse.NewDefaultRawFileSystem()},
		base:         b,
		removedRound: removedRound,
	}
	f.assemble()
	unix.Umask(0)
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		f.procs = newProcesses(proc)
		f.fds, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		f.close()
		return nil, fmt.Errorf("/proc is needed and cannot be used: %w", err)
	}
	if err := f.openRoot(); err != nil {
		f.close()
		return nil, fmt.Errorf("shared directory %s: %w", o.Root.Name(), err)
	}
	return f, nil
}

func (f *fileSystem) openRoot() error {
	fd, err := unix.Openat(int(f.opts.Root.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	if f.storage, err = StorageOf(fd); err != nil {
		unix.Close(fd)
		return err
	}
	ids := f.opts.FileIDs
	if ids == FileIDAuto {
		ids = FileIDPath
		if f.storage.StableInodes {
			ids = FileIDInode
		}
	}
	f.devices = newDevices(uint64(st.Dev), f.log)
	f.descriptors.fdLimits = fdLimitsOf(RaiseFileLimit())
	f.tree = newTree(fd, &st, fileIDs{paths: ids == FileIDPath, devices: f.devices}, f.descriptors.anchors)
	f.client.listings.all = f.now() + keptNames.Milliseconds()
	f.acls = hasACLs(fd)
	f.private.open(fd)
	return nil
}

// capabilities of the protocol that go-fuse does not ask for by itself.
const capabilities = fuse.CAP_ATOMIC_O_TRUNC | // O_TRUNC comes with OPEN, after whose lock it is done
	fuse.CAP_DONT_MASK | // the umask depends on the default ACL, see modeIn
	fuse.CAP_HANDLE_KILLPRIV_V2 | // no GETXATTR before every WRITE
	fuse.CAP_SETXATTR_EXT |
	fuse.CAP_READDIRPLUS_AUTO |
	fuse.CAP_ASYNC_DIO | // what one program asks for at once is read at once
	fuse.CAP_HAS_EXPIRE_ONLY

// connect begins the conversation with the kernel over dev, which it takes.
func (f *fileSystem) connect(dev int) error {
	notify, err := unix.FcntlInt(uintptr(dev), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		unix.Close(dev)
		return err
	}
	f.dev.fd = notify
	c, err := newConn(f, dev, f.mountOptions())
	if err != nil {
		return err
	}
	f.conn = c
	const needed = fuse.CAP_ATOMIC_O_TRUNC | fuse.CAP_POSIX_LOCKS | fuse.CAP_FLOCK_LOCKS
	if c.kernel&needed != needed {
		return errors.New("the kernel's FUSE is too old: it does not pass on locks")
	}
	f.greeted()
	return nil
}

// mountOptions are what go-fuse answers the first request of the kernel by.
func (f *fileSystem) mountOptions() *fuse.MountOptions {
	return &fuse.MountOptions{
		AllowOther:        true,
		EnableLocks:       true,
		EnableAcl:         f.acls,
		MaxWrite:          maxPiece,
		MaxBackground:     1024, // of reads that wait for a lock, too
		DisableSplice:     true, // no gain was measured
		ExtraCapabilities: capabilities,
		DisabledCapabilities: fuse.CAP_PASSTHROUGH | // its descriptors cannot be fenced
			fuse.CAP_NO_OPEN_SUPPORT, // an ENOSYS must not switch OPEN off
		Logger:       slog.NewLogLogger(f.log.Handler(), slog.LevelWarn),
		PanicHandler: f.panicked,
		Name:         defaultSubtype,
	}
}

// greeted is called when it is known what the kernel can do.
func (f *fileSystem) greeted() {
	f.attrTTL = f.opts.TTL
	if f.conn.kernel&fuse.CAP_HAS_EXPIRE_ONLY != 0 { // Linux 6.2
		f.entryTTL = f.opts.TTL
	}
	f.leases.open(f.private.folds)
}

// panicked is called when a handler has panicked, and goes on with that. go-fuse
// would answer EIO and serve on, perhaps with mutexes that nobody unlocks any
// more. A daemon that ends is started anew, and the others know that its locks
// are lost.
func (f *fileSystem) panicked(what any) fuse.Status {
	f.log.Error("a request could not be handled, the daemon ends", "panic", what)
	panic(what)
}

// close gives back what newFileSystem and connect have taken.
func (f *fileSystem) close() {
	f.ledger.end()
	for _, h := range f.handles.all() {
		closeFD(h.fd)
	}
	for _, d := range f.dirs.all() {
		closeFD(d.fd)
	}
	if f.tree != nil {
		f.tree.close()
	}
	if f.procs != nil {
		f.procs.close()
	}
	closeFD(f.fds)
	closeFD(f.dev.fd)
	if f.conn != nil {
		f.conn.close()
	}
}

// Storage is what the mount has found out about the shared directory.
func (s *Server) Storage() Storage { return s.fs.storage }

// RulesChanged makes the mount ask again for the rules of files. Locks that
// are held stay as they are.
func (s *Server) RulesChanged() { s.fs.rules.gen.Add(1) }

// Serve answers the kernel until the mount is gone, and returns when
// everything that it started has ended. It must be called once. If ctx ends
// before, the mount is taken away from the programs that use it.
//
// locker is the one of Options if it is nil.
func (s *Server) Serve(ctx context.Context, locker Locker) error {
	defer close(s.done)
	f := s.fs
	if locker != nil {
		f.locker = locker
	}
	if f.locker == nil {
		s.Abort()
		f.close()
		return errors.New("fusefs: no lock engine")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forgetRetries := func(now int64) {
		for _, r := range f.retries.old(now) {
			f.retries.abandonRetry(r)
		}
	}
	g := &guard{f.locker, f.pause}
	f.locker = g
	f.pause.served.Store(g)
	killed := s.resumed != nil && s.resumed.killed
	if s.resumed != nil {
		goOn(ctx, f, s.resumed)
		s.resumed = nil
	}
	if f.leases.over = ctx.Done(); f.leases.on {
		f.background(func() { f.leases.run(ctx) })
	}
	f.background(func() { f.yielder.keepYielding(ctx, func() { forgetRetries(f.now()) }) })
	if !f.storage.ClientCache {
		f.background(func() { f.forgetRemoved(ctx) })
	}
	stop := context.AfterFunc(ctx, func() {
		if err := s.Abort(); err != nil {
			f.log.Error("the mount could not be taken away", "err", err)
		}
	})

	f.conn.serve(killed)

	stop()
	cancel()
	forgetRetries(f.now() + 2*retryAge)
	// Nobody will close what is open now.
	for _, h := range f.handles.all() {
		f.Release(nil, &fuse.ReleaseIn{Fh: h.id})
	}
	f.tasks.Wait()
	f.close()
	return nil
}

// Unmount ends the mount. While programs use it the error is [ErrBusy]; with
// lazy the mount disappears at once, and Serve returns when they have closed
// everything. Without, copies of it in other mount namespaces fail from then on;
// if they cannot be cut off, the error is [ErrCopies].
func (s *Server) Unmount(lazy bool) error {
	if err := s.mount.detach(lazy); err != nil || lazy || s.fs.conn.ended(copiesTime) {
		return err
	}
	s.fs.log.Warn("other mount namespaces have copies of the mount: they fail from now on", "mount", s.mount.path)
	if err := s.fs.conn.cut(s.mount.number); err != nil {
		return fmt.Errorf("unmounted, but %w: %w", ErrCopies, err)
	}
	return nil
}

// Abort takes the mount away: calls of programs that are under way end with
// ECONNABORTED, and files that are open fail with ENOTCONN. (A daemon that is
// not root needs fusectl at its usual place for that. Without, it can only hide
// the mount from those that do not use it yet.)
func (s *Server) Abort() error {
	return errors.Join(s.mount.abort(), s.fs.conn.cut(s.mount.number))
}

// CutOff reports whether the mount is still in its place although Serve has
// returned, so that all that programs do there fails: somebody has cut its
// connection to the kernel, by umount -f while it was in use, say, or by fusectl.
// One that goes within patience was unmounted.
func (s *Server) CutOff(patience time.Duration) bool {
	over := time.NewTimer(patience)
	defer over.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for waits := true; waits; {
		if s.mount.gone() {
			return false
		}
		select {
		case <-look.C:
		case <-over.C:
			waits = false
		}
	}
	var st unix.Statx_t
	return !s.mount.gone() && unix.Statx(unix.AT_FDCWD, s.mount.path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st) == unix.ENOTCONN
}

// Pause brings the mount to rest: it returns when no request is under way but
// those that wait for other hosts, and nothing else that the mount does. Programs
// that ask for something wait from then on, for [Server.Unpause], or the process
// that [Server.Export] tells of all. An error says what has not come to rest
// until ctx ended; then the mount goes on as if nothing had been. It waits for Serve
// to read requests.
func (s *Server) Pause(ctx context.Context) error { return pauseMount(ctx, s.fs, s.mount) }

// Unpause has the mount go on after [Server.Pause]: requests are read again, and
// locks that were given up meanwhile are given up now.
func (s *Server) Unpause() { unpause(s.fs) }

// Export describes the mount for the process that goes on with it, see [Resume];
// fds are the descriptors that it needs, under the numbers that they have here.
// It must be paused, and the lock engine must have left its locks to the other one:
// what waits in [Locker.Lock] or [Locker.Test] ends with locks.ErrBequeathed. There
// is no way back: from now on this process must not touch what the other one goes
// on with. With an error the mount is lost, and this process has to end.
func (s *Server) Export() (state []byte, fds []int, err error) { return export(s.fs, s.mount) }

// Greeting is how the conversation with the kernel began.
func (s *Server) Greeting() Greeting {
	return Greeting{s.fs.conn.first.asked, s.fs.conn.first.answer, s.fs.acls}
}

// Knows reports whether h is an open file of the mount, or of a request that waits for a
// lock, or has the lease of names. After [ResumeKilled], and before Serve, a lock of any
// other one is of a file that is closed.
func (s *Server) Knows(h locks.HandleID) bool { return knows(s, h) }

// LedgerErr is why another process could not go on with this mount: its ledger could not take
// something; nil if it is complete, or there is none.
func (s *Server) LedgerErr() error { return s.fs.ledger.err() }

// Done is closed when Serve has returned.
func (s *Server) Done() <-chan struct{} { return s.done }

// Nested are the paths, below the root, of directories that are the shared
// directory of another cluster, as far as programs have met them. What is below
// them fails with EIO.
func (s *Server) Nested() []string {
	p := s.fs.private
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.nested)
}
