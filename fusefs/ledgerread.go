package fusefs

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// ResumeKilled goes on with the mount of another process, which was killed and had a
// ledger: from and requests are what it has left, and may be closed when ResumeKilled has
// returned. fds tells the number that a descriptor of it has here, -1 if it was not open:
// another process has to have kept its table of descriptors (clone(2) with CLONE_FILES), of
// which pidfd_getfd(2) gets them. (Those that were opened with O_PATH, as most are, it
// refuses with EBADF: they are opened by their name in /proc/PID/fd, with O_PATH.) An error
// of fds is that it cannot be known, and one of ResumeKilled: a file that is missing for
// that must not look like one that was closed. o is as for [Resume]; Options.Ledger is
// another one than that, and counts when ResumeKilled returns, with all requests that are
// under way. Nobody uses the mount before Serve runs.
//
// That process must do nothing any more, see [Requests.Ended]. What it has written down
// must belong together with what the lock engine has: if that goes on with nothing the
// caller calls [Server.Expelled], and otherwise it gives up the locks of open files that
// [Server.Knows] does not know. An error means that nothing was taken and nothing was
// changed: then the mount has to be made anew.
func ResumeKilled(o Options, from LedgerReader, requests *Requests, fds func(old int) (int, error)) (*Server, error) {
	x, err := readMountLedger(from, requests, fds)
	if err != nil {
		return nil, fmt.Errorf("fusefs: the mount of a process that was killed is not taken over: %w", err)
	}
	return resume(o, x)
}

// LedgerFiles are descriptors of files: of what is open, and of names. There may be others.
func LedgerFiles(from LedgerReader) map[int]bool {
	files := map[int]bool{}
	for table, word := range map[int]int{tableNodes: nodeFD, tableHandles: handleFD, tableDirs: dirFD} {
		for _, w := range from.All(table) {
			if fd := w[word]; fd > 0 && fd <= math.MaxInt32 {
				files[int(fd)-1] = true
			}
		}
	}
	return files
}

// ledgerReader makes of a ledger what an Export would have left.
type ledgerReader struct {
	from LedgerReader
	fd   func(word uint64) int
	*saved
	now     int64          // on the server's clock
	nodes   map[uint64]int // their places
	owners  map[uint64]int // of processes: their places, plus one
	handles map[uint64]int
}

func readMountLedger(from LedgerReader, requests *Requests, fds func(old int) (int, error)) (*saved, error) {
	known, unknown := map[int]int{}, error(nil)
	take := func(old int) int {
		fd, ok := known[old]
		if !ok {
			var err error
			if fd, err = fds(old); err != nil {
				fd, unknown = -1, cmp.Or(unknown, err)
			}
			known[old] = fd
		}
		return fd
	}
	r := &ledgerReader{from: from, saved: &saved{killed: true}, nodes: map[uint64]int{}, owners: map[uint64]int{}, handles: map[uint64]int{}}
	r.fd = func(word uint64) int {
		if word == 0 || word > math.MaxInt32 {
			return -1
		}
		return take(int(word) - 1)
	}
	if err := r.mount(); err != nil {
		return nil, err
	}
	var err error
	if r.Requests, r.answers, err = requests.leftOf(take); err != nil {
		return nil, err
	}
	r.unlocks = requests.h.unlocks.Load()
	r.readNodes()
	r.readSizes(requests.sizes.notes)
	r.readNames()
	r.readProcesses()
	r.readOpen()
	r.readLocks()
	for _, w := range from.All(tableDevices) {
		r.Devices = append(r.Devices, savedDevice{Path: from.String(w[devicePath]), Dev: w[deviceDev], Index: w[deviceIndex], Warned: w[deviceFlags]&1 != 0})
	}
	if unknown != nil {
		return nil, unknown
	}
	if err := r.check(); err != nil {
		return nil, badLedger("%v", err)
	}
	return r.saved, nil
}

func (r *ledgerReader) mount() error {
	found := false
	for _, w := range r.from.All(tableMount) {
		if found || len(w) != mountWords {
			return badLedger("it is of two mounts")
		}
		found = true
		r.Mount = savedMount{r.from.String(w[mountPath]), int(int32(w[mountOwnID])), r.from.String(w[mountNumber]), w[mountBits]&1 != 0}
		r.Asked, r.Answered = []byte(r.from.String(w[mountAsked])), []byte(r.from.String(w[mountAnswered]))
		r.Paths, r.Start = w[mountBits]&2 != 0, int64(w[mountStart])
		r.Dev, r.LeaseHandle = r.fd(w[mountDev]+1), locks.HandleID(w[mountLease])
		r.LastHandle, r.LastNode, r.LastOwner = w[mountIDs+handleIDs], w[mountIDs+nodeIDs], w[mountIDs+ownerIDs]
		r.LastTask, r.Turns = w[mountIDs+taskIDs], w[mountIDs+turnIDs]
	}
	if !found {
		return badLedger("it has no mount")
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	if r.Start > now {
		return badLedger("it begins in the future")
	}
	r.now = (now-r.Start)/1e6 + 1
	r.Arrivals, r.ExplicitArrivals, r.Arrived = 1, 1, true
	return nil
}

// readNodes finds the nodes. Of two that claim the same file, as between two writes,
// it is the newer one's.
func (r *ledgerReader) readNodes() {
	byKey := map[fileKey]int{}
	for _, w := range r.from.All(tableNodes) {
		f := w[nodeFlags]
		x := savedNode{
			ID: w[nodeID], Key: fileKey{w[nodeDev], w[nodeIno]}, Primary: f&nodePrimary != 0, Kind: uint32(f & unix.S_IFMT),
			FD: r.fd(w[nodeFD]), Spare: f&nodeSpare != 0, Lookups: w[nodeLookups],
			Path: r.from.String(w[nodePath]), File: r.from.String(w[nodeFile]), Replaced: f&nodeReplaced != 0,
			Failures: w[nodeFailures], PageFailures: w[nodePageFailures], Error: unix.Errno(w[nodeError] % maxErrno),
			Told: f&nodeTold != 0, Owed: f&nodeOwed != 0,
			// Whatever the kernel may have been told, and have taken over.
			AttrTold: true, ToldAt: r.now, Bounds: savedBounds{Least: 0, Most: int64(min(w[nodeMost], math.MaxInt64))},
			Sizes: toldSizes{any: true, mixed: true, last: r.now},
		}
		if f&nodePages != 0 && x.Kind == unix.S_IFREG {
			x.Cached, x.Filled = true, 1
		}
		if x.Kind != unix.S_IFREG {
			x.Sizes = toldSizes{}
		}
		i := len(r.Nodes)
		if j, ok := byKey[x.Key]; ok && x.Primary {
			if r.Nodes[j].ID > x.ID {
				x.Primary = false
			} else {
				r.Nodes[j].Primary = false
			}
		}
		if x.Primary {
			byKey[x.Key] = i
		}
		r.nodes[x.ID] = i
		r.Nodes = append(r.Nodes, x)
	}
}

func (r *ledgerReader) readNames() {
	seen := map[savedName]int{} // the node
	for _, w := range r.from.All(tableNames) {
		i, ok := r.nodes[w[nameNode]]
		j, isDir := r.nodes[w[nameDir]]
		l := savedName{w[nameDir], r.from.String(w[nameText])}
		if !ok || !isDir || r.Nodes[j].Kind != unix.S_IFDIR || r.Nodes[i].ID == rootID {
			continue // it was about to be forgotten
		}
		drop := func(i int, l savedName) {
			x := &r.Nodes[i]
			x.Names = slices.DeleteFunc(x.Names, func(o savedName) bool { return o == l })
			delete(seen, l)
		}
		if old, ok := seen[l]; ok {
			drop(old, l)
		}
		if x := &r.Nodes[i]; x.Kind == unix.S_IFDIR && len(x.Names) > 0 {
			drop(i, x.Names[0])
		}
		seen[l] = i
		r.Nodes[i].Names = append(r.Nodes[i].Names, l)
	}
}

func (r *ledgerReader) readProcesses() {
	ups := map[int]uint64{}
	for _, w := range r.from.All(tableProcesses) {
		x := savedProcess{PID: int(int32(w[processPID])), Owner: locks.OwnerID(w[processOwner]), Name: r.from.String(w[processName]), Self: w[processFlags]&1 != 0}
		if r.owners[w[processOwner]] != 0 || x.Owner <= sharedOwner {
			continue
		}
		if w[processFlags]&2 != 0 && w[processDepth] <= maxAncestors {
			x.UpKnown, x.Depth = true, int(w[processDepth])
			ups[len(r.Processes)] = w[processUp]
		}
		r.Processes = append(r.Processes, x)
		r.owners[w[processOwner]] = len(r.Processes)
	}
	for i, up := range ups {
		if x := &r.Processes[i]; up != 0 {
			if x.Up = r.owners[up]; x.Up == 0 {
				x.UpKnown = false
			}
		}
	}
	leaders, byTID := map[int]bool{}, map[uint32]savedThread{}
	for _, w := range r.from.All(tableThreads) {
		t := savedThread{TID: uint32(w[threadTID]), Comm: r.fd(w[threadComm]), Process: r.owners[w[threadProcess]], Leader: w[threadFlags]&1 != 0, Task: w[threadTask]}
		if t.Process == 0 || t.Comm < 0 || t.Leader != (uint32(r.Processes[t.Process-1].PID) == t.TID) {
			continue // it is looked at anew
		}
		if old, ok := byTID[t.TID]; !ok || old.Task < t.Task {
			byTID[t.TID] = t
		}
	}
	for _, t := range byTID {
		leaders[t.Process] = leaders[t.Process] || t.Leader
	}
	for _, t := range byTID {
		if leaders[t.Process] {
			r.Threads = append(r.Threads, t)
		}
	}
	slices.SortFunc(r.Threads, func(a, b savedThread) int { return cmp.Compare(a.TID, b.TID) })
}

func (r *ledgerReader) readOpen() {
	unknown := map[uint64]bool{}
	for i := range r.Requests {
		if h := r.Requests[i].opened; h != 0 {
			unknown[h] = true
		}
	}
	for _, w := range r.from.All(tableHandles) {
		if _, ok := r.nodes[w[handleNode]]; !ok || unknown[w[handleID]] {
			continue // it is being closed; or is opened anew, and has perhaps the same number
		}
		f := w[handleFlags]
		x := savedHandle{
			ID: w[handleID], Node: w[handleNode], FD: r.fd(w[handleFD]), Flags: int(w[handleOpenFlags]), Process: r.owners[w[handleProcess]],
			Write: f&handleWrites != 0, Appends: f&handleAppends != 0, Mixed: f&handleMixed != 0, State: openState(f & 0xff),
			UntilClose: f&handleUntilClose != 0, Alone: f&handleIsAlone != 0, Stream: f&handleStream != 0, Shared: f&handleShared != 0,
			Tenure: locks.Tenure(w[handleTenure]), Token: locks.Token(w[handleToken]), AloneSince: w[handleAlone],
			Lost: f&handleLost != 0, Wrote: f&handleWrites != 0, Touched: true, Fresh: f&handleFresh != 0,
			Knows: w[handleKnows], Used: r.now, FlockedBefore: f&handleFlocked != 0, PosixUsed: f&handlePosixed != 0,
		}
		if x.State == openWaiting {
			x.State, x.Asks, x.Again = openIdle, true, f&handleAgain != 0
		}
		if x.State != openNone {
			x.Yields = yields{int64(w[handleYields]), int64(w[handleYieldsShared]), int64(w[handleYieldsStream])}
			x.Request = locks.Request{
				Key: locks.Key{File: r.from.String(w[handleFile]), Class: locks.Open}, Path: r.from.String(w[handlePath]),
				Owner: locks.OwnerID(w[handleOwner]), Handle: locks.HandleID(x.ID), Mode: locks.Mode(w[handleMode]), Range: locks.Whole,
				Born: locks.Moment(w[handleBorn]), Patience: int64(w[handlePatience]),
				Program: locks.Program{PID: int(int32(w[handlePID] >> 32)), TID: int(int32(w[handlePID])), Process: w[handleProgram],
					Task: w[handleTask], UID: uint32(w[handleUser]), Command: r.from.String(w[handleCommand])},
			}
		}
		r.handles[x.ID] = len(r.Handles)
		r.Handles = append(r.Handles, x)
	}
	for _, w := range r.from.All(tableDirs) {
		if _, ok := r.nodes[w[dirNode]]; !ok {
			continue
		}
		r.Dirs = append(r.Dirs, savedDir{
			ID: w[dirID], Node: w[dirNode], FD: r.fd(w[dirFD]), Next: math.MaxUint64, Read: true, Lists: w[dirFlags]&1 != 0,
			UID: uint32(w[dirUser] >> 32), GID: uint32(w[dirUser]), PID: uint32(w[dirPID]),
		})
	}
}

func (r *ledgerReader) readLocks() {
	type key struct {
		node  uint64
		class locks.Class
		owner locks.OwnerID
	}
	byKey := map[key]int{}
	for _, w := range r.from.All(tableLocks) {
		i, ok := r.handles[w[lockHandle]]
		if !ok || r.Handles[i].Node != w[lockNode] {
			continue // it is being closed
		}
		x := savedRecord{
			Node: w[lockNode], Class: locks.Class(w[lockClass]), Owner: locks.OwnerID(w[lockOwner]), Handle: w[lockHandle],
			Process: r.owners[w[lockProcess]], Tenure: locks.Tenure(w[lockTenure]), Token: locks.Token(w[lockToken]), Turn: w[lockTurn], first: w[lockFirst],
		}
		b := []byte(r.from.String(w[lockRanges]))
		for ; len(b) >= 16; b = b[16:] {
			x.Ranges = append(x.Ranges, locks.Range{Start: binary.LittleEndian.Uint64(b), End: binary.LittleEndian.Uint64(b[8:])})
		}
		k := key{x.Node, x.Class, x.Owner}
		if j, ok := byKey[k]; ok {
			if r.Records[j].Turn < x.Turn {
				r.Records[j] = x
			}
			continue
		}
		byKey[k] = len(r.Records)
		r.Records = append(r.Records, x)
	}
}

// knows is [Server.Knows].
func knows(s *Server, h locks.HandleID) bool {
	f := s.fs
	if f.handles.get(uint64(h)) != nil {
		return true
	}
	f.leases.mu.Lock()
	lease := f.leases.handle
	f.leases.mu.Unlock()
	if h == lease || s.lease == h {
		return true
	}
	l := &f.conn.left
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.reserved {
		if r.handle == h {
			return true
		}
	}
	for i := range l.requests {
		if l.requests[i].Handle == h {
			return true
		}
	}
	return false
}
