package fusefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// exportTime is how long Export waits for requests that wait for the lock engine,
// which has been left to the successor before. They wait for nothing else, neither the storage
// nor another host; but there is no way back, so that a host that is very busy, or
// was suspended, gets all the time that its members give it, and more.
const exportTime = time.Minute

// export is [Server.Export].
func export(f *fileSystem, m mountpoint) (state []byte, fds []int, err error) {
	if !f.pause.shut.Load() || closed(f.pause.succeeded) {
		return nil, nil, errors.New("fusefs: only a paused mount can be left to a successor, and once")
	}
	close(f.pause.succeeded)
	ctx, cancel := context.WithTimeout(context.Background(), exportTime)
	defer cancel()
	t := time.NewTicker(pauseLook)
	defer t.Stop()
	for {
		_, serving := f.conn.readers.atWork()
		if serving == 0 && f.pause.telling.Load() == 0 {
			break
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("fusefs: %d requests, which wait for locks, are not left to the successor by the lock engine", serving)
		}
	}
	// Tasks in the background may end, and give up nodes or threads, after that was
	// written down.
	f.tree.closings.leave()
	f.procs.leave()
	x, err := save(f, m)
	if err != nil {
		return nil, nil, fmt.Errorf("fusefs: %w", err)
	}
	state, fds = x.encode()
	return state, fds, nil
}

// saver writes down a mount at rest.
type saver struct {
	*fileSystem
	*saved
	processes map[*process]int // their places in the list, plus one
}

func save(f *fileSystem, m mountpoint) (*saved, error) {
	s := &saver{fileSystem: f, saved: new(saved), processes: make(map[*process]int)}
	s.Paths = f.tree.ids.paths
	s.Asked, s.Answered = f.conn.first.asked, f.conn.first.answer
	s.Mount = savedMount{m.path, m.id, m.number, m.helper}
	if err := f.conn.file.raw.Control(func(fd uintptr) { s.Dev = int(fd) }); err != nil {
		return nil, err
	}
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	s.Start = now - int64(time.Since(f.start))
	s.LastHandle, s.Turns = f.lastID.Load(), f.records.turns.Load()
	s.Arrivals, s.ExplicitArrivals = f.arrivals.all.Load(), f.arrivals.explicit.Load()
	s.Arrived = f.arrivals.last.Load() != nil
	s.saveTree()
	s.saveOpen()
	s.saveThreads()
	s.saveLongCache()
	for dev, d := range f.devices.known {
		s.Devices = append(s.Devices, savedDevice{dev, d.index, d.path, d.warned})
	}
	for tid, r := range f.retries.byID {
		s.Retries = append(s.Retries, savedRetry{tid, r.flags, r.at, r.truncate})
	}
	s.Nested = slices.Clone(f.private.nested)
	s.Requests = f.conn.left.requests
	slices.SortFunc(s.Requests, func(a, b leftRequest) int {
		return cmp.Compare(head(a.Bytes).Unique, head(b.Bytes).Unique)
	})
	f.pause.mu.Lock()
	s.Owed = f.pause.owed
	f.pause.mu.Unlock()
	return s.saved, nil
}

// monotonic is CLOCK_MONOTONIC, which does not begin anew with a process.
func monotonic() (int64, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano(), err
}

// process is the number of p, which is in the list then.
func (s *saver) process(p *process) int {
	if p == nil {
		return 0
	}
	if n := s.processes[p]; n != 0 {
		return n
	}
	s.Processes = append(s.Processes, savedProcess{PID: p.pid, Owner: p.owner, Name: p.command(), Self: p.selfLocking.Load()})
	n := len(s.Processes)
	s.processes[p] = n
	if l := p.up.Load(); l != nil {
		up := s.process(l.parent)
		x := &s.Processes[n-1]
		x.UpKnown, x.Up, x.Depth = true, up, l.depth
	}
	return n
}

func (s *saver) saveThreads() {
	s.procs.mu.RLock()
	defer s.procs.mu.RUnlock()
	s.LastOwner, s.LastTask = s.procs.owners, s.procs.tasks.Load()
	for tid, t := range s.procs.threads {
		s.Threads = append(s.Threads, savedThread{tid, t.comm, s.process(t.p), t.leader, t.task})
	}
}

func (s *saver) saveTree() {
	t := s.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	s.LastNode = t.last
	s.saved.Nodes = make([]savedNode, 0, len(t.byID))
	for _, n := range t.byID {
		x := savedNode{
			ID: n.id, Key: n.key, Primary: t.byKey[n.key] == n, Kind: n.kind, FD: n.fd, Cluster: n.cluster.Load(), Spare: n.spare,
			Lookups: n.lookups, Path: t.pathOf(n), File: n.file, Replaced: n.replaced.Load(),
			Sole:     savedSole{n.sole.known, n.sole.spoiled, n.sole.st, n.sole.reopened.Load()},
			Failures: n.unwritten.count.Load(), PageFailures: n.unwritten.pages.Load(), Told: n.unwritten.told, Owed: n.unwritten.owed,
			AppendEnd: n.appends.end,
			Cached:    n.cached.Load(), AttrTold: n.attrTold.Load(), LongCached: n.longCached.Load(), ToldAt: n.toldAt.Load(),
			Filled: n.filled.Load(), Empty: n.empty.Load(), Version: n.version, TheyKnow: n.told, Sizes: n.sizes,
			Bounds: savedBounds{n.bounds.least.Load(), n.bounds.most.Load(), n.bounds.late.Load()}, Made: n.made.size.Load(),
		}
		if a := n.again.Load(); a != nil {
			x.Rereads, x.Rereading = true, savedRereading{a.tid, a.at.Load(), a.request.Load()}
		}
		if n != t.root && len(n.names) > 0 {
			x.Path = ""
		}
		if err := n.unwritten.err; err != nil {
			if x.Error = unix.EIO; !errors.As(err, &x.Error) {
				x.Error = unix.EIO
			}
		}
		for _, l := range n.names {
			x.Names = append(x.Names, savedName{l.dir.id, l.name})
		}
		for off, size := range n.appends.wrote {
			x.Appended = append(x.Appended, savedPiece{off, size})
		}
		for a := range n.answers {
			x.Answers = append(x.Answers, savedAnswer{a.request, a.tid, a.size, a.at})
		}
		s.saved.Nodes = append(s.saved.Nodes, x)
	}
}

func (s *saver) saveOpen() {
	nodes := make(map[*node]struct{})
	for _, h := range s.handles.all() {
		x := savedHandle{
			ID: h.id, Node: h.n.id, FD: h.fd, Flags: h.flags, Process: s.process(h.proc), Write: h.write, Appends: h.appends, Mixed: h.mixed,
			State: h.open.state, Request: h.open.req, Yields: h.open.yields, UntilClose: h.open.untilClose, Alone: h.open.alone,
			Stream: h.open.stream, Shared: h.open.shared, Tenure: h.open.tenure, Token: h.open.token,
			Lost: h.lost.Load(), Wrote: h.wrote.Load(), Touched: h.touched.Load(), Fresh: h.fresh.Load(), SoleFile: h.sole,
			Knows: h.knows.Load(), Filled: h.filled, Used: h.used.Load(), Dropped: h.dropped.Load(),
			FlockedBefore: h.flocked.Load(), PosixUsed: h.posixed.Load(),
		}
		x.Request.Waits, x.Request.Try = nil, false
		if a := h.open.wait; h.open.state == openWaiting {
			x.Asks, x.Again, x.State = true, a == nil || a.again, openIdle
			if a != nil && a.shared.Load() {
				x.State = openShared
			}
		}
		if p := h.proc; p != nil {
			if t, ok := p.alone[h]; ok {
				x.AloneSince = uint64(t) + 1
			}
		}
		s.saved.Handles = append(s.saved.Handles, x)
		if len(h.n.records) > 0 {
			nodes[h.n] = struct{}{}
		}
	}
	for n := range nodes {
		for k, r := range n.records {
			s.Records = append(s.Records, savedRecord{n.id, k.class, k.owner, r.h.id, s.process(r.p), r.ranges, r.tenure, r.token, r.turn, r.first})
		}
	}
	s.saved.Dirs = make([]savedDir, 0, s.dirs.len())
	for id, d := range s.dirs.m {
		s.saved.Dirs = append(s.saved.Dirs, savedDir{
			ID: id, Node: d.n.id, FD: d.fd, Rest: d.rest, Next: d.next, Read: d.read, Lists: d.lease != 0,
			UID: d.in.Uid, GID: d.in.Gid, PID: d.in.Pid,
		})
	}
}

func (s *saver) saveLongCache() {
	s.LeaseHandle = s.leases.handle
	k := s.longCache
	for x, t := range k.names {
		s.CachedNames = append(s.CachedNames, savedLongCached{x.dir, x.name, t.node, t.listing, t.at})
	}
	for _, t := range k.nodes {
		s.CachedNodes = append(s.CachedNodes, savedLongCached{Node: t.node, Listing: t.listing, At: t.at})
	}
	for tid, a := range k.tids {
		s.CachedBy = append(s.CachedBy, savedCachedBy{tid, a.at})
	}
}
