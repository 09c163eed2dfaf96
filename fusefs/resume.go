package fusefs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// Resume goes on with the mount of another process, which [Server.Export] has
// described in state. fds tells the number that a descriptor has here, -1 if it is
// missing; after execve(2) that is the one which it had. o is as for [New], but
// that nothing is mounted: MountPoint and Mount are not used, and Root is used
// only to describe the storage. What FileIDs, TTL and CacheTime say may have changed
// since, but not whether locks go by path.
//
// [Server.Serve] then does what the other process has left, and goes on. An error
// means that nothing was taken, and that nothing of the mount was changed:
// [ErrStateVersion] if the state is of another version.
func Resume(o Options, state []byte, fds func(old int) int) (*Server, error) {
	x, err := decode(state, fds)
	if err != nil {
		return nil, notTakenOver(err)
	}
	return resume(o, x)
}

func notTakenOver(err error) error {
	return fmt.Errorf("fusefs: the mount of another process is not taken over: %w", err)
}

// resume goes on with what x has, which is consistent.
func resume(o Options, x *saved) (_ *Server, err error) {
	fail := func(err error) (*Server, error) { return nil, notTakenOver(err) }
	if o.MountPoint == "" {
		o.MountPoint = x.Mount.Path
	}
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	f, err := newFileSystem(o)
	if err != nil {
		return fail(err)
	}
	if f.tree.ids.paths != x.Paths {
		f.close()
		return fail(errors.New("locks would go by other names of files than until now"))
	}
	if x.Nodes[x.root()].Key != f.tree.root.key {
		f.close()
		return fail(errors.New("it is the mount of another shared directory"))
	}
	if err := reconnect(f, x); err != nil {
		f.close()
		return fail(err)
	}
	restore(f, x)
	m := mountpoint{x.Mount.Path, x.Mount.ID, x.Mount.Number, x.Mount.Helper}
	f.conn.left.keep(f.conn, x.unlocks)
	f.fence.touches.adopt(f.conn.left.requests)
	f.ledger.begin(f, m) // from now on this one counts, with the requests that it has kept
	if x.killed {
		f.redo.dropped = make(chan struct{}) // before anybody asks
	}
	return &Server{fs: f, mount: m, done: make(chan struct{}), resumed: x, lease: x.LeaseHandle}, nil
}

func (s *saved) root() int {
	for i := range s.Nodes {
		if s.Nodes[i].ID == rootID {
			return i
		}
	}
	return -1
}

// reconnect goes on with the conversation: go-fuse is told how it began, and must
// answer as the kernel was answered.
func reconnect(f *fileSystem, x *saved) error {
	notify, err := unix.FcntlInt(uintptr(x.Dev), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("the connection to the kernel: %w", err)
	}
	f.dev.fd = notify
	c := newConnOf(f, f.mountOptions())
	if err := c.repeatGreeting(x.Asked, x.Answered); err != nil {
		return err
	}
	if !isConnected(x.Dev) { // umount -f, or by fusectl; the descriptor stays the caller's
		return errors.New("its connection to the kernel was cut off")
	}
	if err := c.takes(x.Dev); err != nil {
		return err
	}
	f.conn = c
	f.greeted()
	return nil
}

// Greeting is how the conversation with the kernel began, which stays agreed for as
// long as the mount lasts.
type Greeting struct {
	Asked, Answered []byte
	ACLs            bool // the storage has POSIX ACLs
}

// Check is an error if this program would answer the kernel in another way, so that
// [Resume] would fail.
func (g Greeting) Check() error {
	if n := len(g.Asked); n < headSize || n > int(unsafe.Sizeof(fuse.InitIn{})) || head(g.Asked).Opcode != opInit {
		return errors.New("that is not how the conversation with a kernel begins")
	}
	o := Options{Log: slog.New(slog.DiscardHandler)}
	f := &fileSystem{
		notServed: notServed{fuse.NewDefaultRawFileSystem()},
		base:      &base{opts: o, log: o.Log, pause: newPausing(), acls: g.ACLs},
	}
	return newConnOf(f, f.mountOptions()).repeatGreeting(g.Asked, g.Answered)
}

// repeatGreeting has go-fuse answer the first request of the kernel once more.
func (c *conn) repeatGreeting(asked, answered []byte) error {
	var init fuse.InitIn
	copy(rawBytes(&init), asked)
	c.kernel = init.Flags64()
	out := make([]byte, smallSize)
	n, st := c.proto.HandleRequest([][]byte{asked}, [][]byte{out})
	if !st.Ok() || !bytes.Equal(out[:n], answered) {
		return errors.New("this program would not speak to the kernel as the other one has agreed with it; the mount has to be made anew (dmxfs unmount, dmxfs mount)")
	}
	c.first = first{asked, answered}
	return nil
}

// restorer puts what was saved in its place.
type restorer struct {
	*fileSystem
	*saved
	processes []*process // and nil before them
}

// restore takes over what x has, which is consistent.
func restore(f *fileSystem, x *saved) {
	r := &restorer{fileSystem: f, saved: x}
	if now, err := monotonic(); err == nil {
		f.start = time.Now().Add(-time.Duration(now - x.Start))
	}
	f.client.listings.all = f.now() + keptNames.Milliseconds() // by the clock that goes on
	f.lastID.Store(x.LastHandle)
	f.records.turns.Store(x.Turns)
	f.records.unlocks.Store(x.unlocks)
	f.arrivals.all.Store(x.Arrivals)
	f.arrivals.explicit.Store(x.ExplicitArrivals)
	if x.Arrived {
		now := time.Now()
		f.arrivals.last.Store(&now)
	}
	for _, d := range x.Devices {
		f.devices.known[d.Dev] = &subDevice{index: d.Index, path: d.Path, warned: d.Warned}
	}
	r.restoreTree()
	r.restoreProcesses()
	r.restoreOpen()
	r.restoreRecords()
	for _, y := range x.Retries {
		f.retries.put(y.TID, &retry{flags: y.Flags, at: y.At, truncate: y.Truncate})
	}
	f.private.nested = x.Nested
	f.conn.left.requests, f.conn.answers = x.Requests, x.answers
	begun := 0
	for i := range x.Requests {
		if p := x.Requests[i].past; p != nil && p.phase == phaseBegun {
			begun++
		}
	}
	f.redo.expect(begun)
	// Names that the kernel was told may be valid for that long.
	f.entries.full = f.now() + (f.opts.TTL + tickSlack).Milliseconds()
	k := f.longCache
	if len(x.CachedNames)+len(x.CachedNodes) > 0 {
		k.begin()
		for _, y := range x.CachedNames {
			k.names[cachedName{y.Dir, y.Name}] = cachedThing{node: y.Node, listing: y.Listing, at: y.At}
		}
		for _, y := range x.CachedNodes {
			k.nodes[y.Node] = cachedThing{node: y.Node, listing: y.Listing, at: y.At}
		}
		for _, y := range x.CachedBy {
			k.tids[y.TID] = cachedAnswer{at: y.At}
		}
	}
}

func (r *restorer) restoreTree() {
	t := r.tree
	t.last = r.LastNode
	for i := range r.saved.Nodes {
		x := &r.saved.Nodes[i]
		n := t.root
		if x.ID == rootID {
			closeFD(n.fd)
			n.fd, n.lookups = x.FD, x.Lookups
		} else {
			n = &node{id: x.ID, key: x.Key, kind: x.Kind, fd: -1, lookups: x.Lookups, path: x.Path, spare: x.Spare}
			t.byID[n.id] = n
			if x.Primary {
				t.byKey[n.key] = n
			}
			if x.FD >= 0 {
				n.fd, n.slot, n.used = x.FD, len(t.anchors.nodes), true
				t.anchors.nodes = append(t.anchors.nodes, n)
			}
			t.setFile(n, x.File)
		}
		n.cluster.Store(x.Cluster)
		n.restore(x)
		if x.AttrTold {
			r.entries.toldAttr(n.id, x.ToldAt)
		}
	}
	for i := range r.saved.Nodes {
		x := &r.saved.Nodes[i]
		n := t.byID[x.ID]
		for _, l := range x.Names {
			dir := t.byID[l.Dir]
			if dir.children == nil {
				dir.children = make(map[string]*node)
			}
			n.names = append(n.names, dirName{dir: dir, name: l.Name})
			dir.children[l.Name] = n
		}
	}
}

// restore is about the parts of a node that have nothing to do with the tree.
func (n *node) restore(x *savedNode) {
	n.replaced.Store(x.Replaced)
	n.sole.known, n.sole.spoiled, n.sole.st = x.Sole.Known, x.Sole.Spoiled, x.Sole.St
	n.sole.reopened.Store(x.Sole.Reopened)
	u := &n.unwritten
	u.count.Store(x.Failures)
	u.pages.Store(x.PageFailures)
	if u.told, u.owed = x.Told, x.Owed; x.Error != 0 {
		u.err = x.Error
	}
	n.appends.end = x.AppendEnd
	for _, p := range x.Appended {
		if n.appends.wrote == nil {
			n.appends.wrote = make(map[int64]int64)
		}
		n.appends.wrote[p.Off] = p.Size
	}
	n.cached.Store(x.Cached)
	n.attrTold.Store(x.AttrTold)
	n.longCached.Store(x.LongCached)
	n.toldAt.Store(x.ToldAt)
	n.filled.Store(x.Filled)
	n.empty.Store(x.Empty)
	n.bounds.least.Store(x.Bounds.Least)
	n.bounds.most.Store(x.Bounds.Most)
	n.bounds.late.Store(x.Bounds.Late)
	n.made.size.Store(x.Made)
	if x.Rereads {
		a := newRereading(x.Rereading.TID, 0, x.Rereading.At)
		a.request.Store(x.Rereading.Request)
		n.again.Store(a)
	}
	n.version, n.told, n.sizes = x.Version, x.TheyKnow, x.Sizes
	for _, a := range x.Answers {
		if n.answers == nil {
			n.answers = make(map[*sizeAnswer]struct{})
		}
		n.answers[&sizeAnswer{a.Request, a.TID, a.Size, a.At}] = struct{}{}
	}
}

func (r *restorer) restoreProcesses() {
	ps := r.procs
	ps.owners = max(r.LastOwner, firstOwner)
	ps.tasks.Store(r.LastTask)
	r.processes = make([]*process, len(r.Processes)+1)
	for i := range r.Processes {
		x := &r.Processes[i]
		p := &process{pid: x.PID, owner: x.Owner, comm: -1}
		p.name.Store(&x.Name)
		p.selfLocking.Store(x.Self)
		r.processes[i+1] = p
	}
	for i := range r.Processes {
		if x := &r.Processes[i]; x.UpKnown {
			r.processes[i+1].up.Store(&lineage{r.processes[x.Up], x.Depth})
		}
	}
	for _, x := range r.Threads {
		p := r.processes[x.Process]
		ps.threads[x.TID] = &thread{comm: x.Comm, leader: x.Leader, p: p, task: x.Task}
		if x.Leader {
			p.comm = x.Comm
		} else {
			p.tids = append(p.tids, x.TID)
		}
	}
	ps.sweepAt = max(sweepFrom, 2*len(ps.threads))
}

func (r *restorer) restoreOpen() {
	o := r.openLocks
	for i := range r.saved.Handles {
		x := &r.saved.Handles[i]
		h := &handle{
			id: x.ID, n: r.tree.byID[x.Node], fd: x.FD, flags: x.Flags, write: x.Write, appends: x.Appends, mixed: x.Mixed,
			proc: r.processes[x.Process], sole: x.SoleFile, filled: x.Filled,
		}
		h.open = openLock{
			req: x.Request, yields: x.Yields, untilClose: x.UntilClose, alone: x.Alone, stream: x.Stream, shared: x.Shared,
			tenure: x.Tenure, token: x.Token,
			gen: ^uint64(0), // the rules may be others here
		}
		h.open.req.Range = x.Request.Range
		n := h.n
		sole := n.sole.known
		spoiled := n.sole.spoiled
		o.attach(h, x.State)
		n.sole.known, n.sole.spoiled = sole, spoiled // as it was
		held := x.State == openHeld || x.State == openShared
		if h.holds.Store(held); held {
			h.since.Store(uint64(x.Tenure) + 1)
		}
		h.lost.Store(x.Lost)
		// The ledger does not say whether something was written: its client may keep it.
		h.wrote.Store(x.Wrote && (!r.killed || r.storage.ClientCache))
		h.touched.Store(x.Touched)
		h.fresh.Store(x.Fresh)
		h.knows.Store(x.Knows)
		h.used.Store(x.Used)
		h.dropped.Store(x.Dropped)
		h.flocked.Store(x.FlockedBefore)
		h.posixed.Store(x.PosixUsed)
		if x.AloneSince > 0 {
			r.records.ownAlone(h.proc, h, locks.Tenure(x.AloneSince-1))
		}
		r.fileSystem.handles.put(h.id, h)
	}
	for i := range r.saved.Dirs {
		x := &r.saved.Dirs[i]
		d := &dirHandle{n: r.tree.byID[x.Node], fd: x.FD, rest: x.Rest, next: x.Next, read: x.Read}
		d.in.Uid, d.in.Gid, d.in.Pid = x.UID, x.GID, x.PID
		if x.Lists {
			d.lease = ^uint64(0) // one that has ended
		}
		r.tree.pin(d.n)
		r.fileSystem.dirs.put(x.ID, d)
	}
}

func (r *restorer) restoreRecords() {
	for i := range r.Records {
		x := &r.Records[i]
		n, h, p := r.tree.byID[x.Node], r.fileSystem.handles.get(x.Handle), r.processes[x.Process]
		y := &lockRecord{
			recordKey: recordKey{x.Class, x.Owner}, n: n, h: h, p: p, ranges: x.Ranges, tenure: x.Tenure, token: x.Token, turn: x.Turn, first: x.first,
		}
		if y.first == 0 {
			y.first = x.Turn
		}
		n.lockMu.Lock()
		if n.records == nil {
			n.records = make(map[recordKey]*lockRecord, 1)
		}
		n.records[y.recordKey] = y
		r.records.explicit.Add(1)
		if x.Class == locks.Posix {
			n.posixUse.Add(1)
		}
		h.gets(y)
		p.own(y)
		h.proc.own(y)
		n.lockMu.Unlock()
	}
}

// goOn begins what the process before this one has left, when there is a lock
// engine and nobody reads requests yet.
func goOn(ctx context.Context, f *fileSystem, x *saved) {
	for i := range x.Owed {
		x.Owed[i].giveUp(f.locker)
	}
	if x.killed {
		goOnKilled(ctx, f) // before a lock can be granted
	}
	for i := range x.Handles {
		y := &x.Handles[i]
		if h := f.handles.get(y.ID); y.Asks {
			h.mu.Lock()
			f.openLocks.lockLater(h, y.Again)
			h.mu.Unlock()
		}
	}
	// The lease of names is not gone on with; it is given up when the kernel has
	// dropped what it keeps, which may have to wait for requests.
	if x.LeaseHandle != 0 {
		f.leases.former, f.leases.given = x.LeaseHandle, make(chan struct{})
		f.background(func() {
			defer close(f.leases.given)
			if x.killed { // what the kernel keeps is not known, but for how long
				select {
				case <-time.After(f.opts.CacheTime):
				case <-ctx.Done():
				}
			}
			f.longCache.drop(ctx)
			f.locker.UnlockHandle(leaseKey, x.LeaseHandle, "the daemon was replaced")
		})
	}
}

// goOnKilled makes the kernel drop what it may have of files: the process that was killed
// may have been about to, and owe that to a lock that was coming or going. Until it is
// done no lock is used that is granted. The first refresh is not to do it all once more:
// it waits for this one.
//
// The pages of a file that is under an open lock stay: that was had when what others had
// changed was dropped, and nobody has changed it since.
func goOnKilled(ctx context.Context, f *fileSystem) {
	f.tree.mu.Lock()
	var ns []*node
	for _, n := range f.tree.byID {
		n.pins++
		ns = append(ns, n)
	}
	f.tree.mu.Unlock()
	f.background(func() {
		defer close(f.redo.dropped)
		defer f.tree.unpinAll(ns)
		select {
		case <-f.conn.serving: // all that was queued is taken, and what comes is read
		case <-ctx.Done():
		}
		f.entries.expireEntries()
		if dropOfKilled(ctx, f, ns); ctx.Err() == nil {
			f.unprotected.forgot(ns)
		}
	})
}

// dropOfKilled is for some files what a refresh is that concerns all.
func dropOfKilled(ctx context.Context, f *fileSystem, ns []*node) {
	var opened []*node
	for _, n := range ns {
		switch {
		case ctx.Err() != nil:
			return
		case n.isRegular() && n.cached.Load() && !n.holds():
			f.pages.dropLogged(n)
		default:
			f.attrs.forgetAttr(n)
		}
		if n.isRegular() && len(n.openHandles()) > 0 && !n.holds() {
			opened = append(opened, n)
		}
	}
	for _, n := range f.attrs.growAll(opened) {
		f.pages.dropLogged(n)
	}
}
