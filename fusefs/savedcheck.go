package fusefs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// check reports what in s contradicts itself: nothing is taken from such a state.
func (s *saved) check() error {
	nodes := make(map[uint64]*savedNode, len(s.Nodes))
	for i := range s.Nodes {
		x := &s.Nodes[i]
		if nodes[x.ID] != nil || x.ID == 0 || x.ID > s.LastNode {
			return fmt.Errorf("the state has the node %d twice, or not yet", x.ID)
		}
		nodes[x.ID] = x
	}
	if r := nodes[rootID]; r == nil || r.FD < 0 || r.Kind != unix.S_IFDIR || !r.Primary {
		return fmt.Errorf("the state has no root")
	}
	if err := s.checkNames(nodes); err != nil {
		return err
	}
	if err := s.checkProcesses(); err != nil {
		return err
	}
	return s.checkOpen(nodes)
}

func (s *saved) checkNames(nodes map[uint64]*savedNode) error {
	seen, keys := make(map[savedName]bool), make(map[fileKey]bool)
	for i := range s.Nodes {
		x := &s.Nodes[i]
		if x.Primary && keys[x.Key] {
			return fmt.Errorf("the state has two nodes of one file")
		}
		keys[x.Key] = keys[x.Key] || x.Primary
		if x.Kind == unix.S_IFDIR && len(x.Names) > 1 || x.ID == rootID && len(x.Names) > 0 {
			return fmt.Errorf("the directory %d has two names in the state", x.ID)
		}
		for _, l := range x.Names {
			if d := nodes[l.Dir]; d == nil || d.Kind != unix.S_IFDIR || seen[l] {
				return fmt.Errorf("the state has no place for the name %q", l.Name)
			}
			seen[l] = true
		}
	}
	return nil
}

// isProcess reports whether a process has this number; 0 is none.
func (s *saved) isProcess(n int) bool { return n >= 0 && n <= len(s.Processes) }

func (s *saved) checkProcesses() error {
	for _, p := range s.Processes {
		if !s.isProcess(p.Up) || p.Owner <= sharedOwner || p.Depth < 0 || p.Depth > maxAncestors {
			return fmt.Errorf("the state has the process %d wrong", p.PID)
		}
	}
	tids := make(map[uint32]bool, len(s.Threads))
	leaders := make(map[int]bool, len(s.Processes))
	for _, t := range s.Threads {
		if t.Process == 0 || !s.isProcess(t.Process) || t.Comm < 0 || tids[t.TID] || t.Leader && leaders[t.Process] {
			return fmt.Errorf("the state has the thread %d wrong", t.TID)
		}
		tids[t.TID] = true
		leaders[t.Process] = leaders[t.Process] || t.Leader
	}
	for _, t := range s.Threads {
		if p := s.Processes[t.Process-1]; !leaders[t.Process] || t.Leader != (uint32(p.PID) == t.TID) {
			return fmt.Errorf("the state has the thread %d of no process", t.TID)
		}
	}
	return nil
}

func (s *saved) checkOpen(nodes map[uint64]*savedNode) error {
	open := make(map[uint64]uint64, len(s.Handles)) // the nodes of handles
	for i := range s.Handles {
		h := &s.Handles[i]
		if n := nodes[h.Node]; n == nil || h.FD < 0 || h.ID == 0 || h.ID > s.LastHandle || open[h.ID] != 0 || !s.isProcess(h.Process) {
			return fmt.Errorf("the state has the open file %d wrong", h.ID)
		}
		if h.State >= openStates || h.State == openWaiting || h.Asks && h.State != openIdle && h.State != openShared ||
			h.State != openNone && uint64(h.Request.Handle) != h.ID {
			return fmt.Errorf("the state has the open lock of the file %d wrong", h.ID)
		}
		open[h.ID] = h.Node
	}
	for i := range s.Dirs {
		d := &s.Dirs[i]
		if n := nodes[d.Node]; n == nil || n.Kind != unix.S_IFDIR || n.FD < 0 || d.ID == 0 || d.ID > s.LastHandle || open[d.ID] != 0 {
			return fmt.Errorf("the state has the open directory %d wrong", d.ID)
		}
		if !areDirents(d.Rest) {
			return fmt.Errorf("the state has the listing of the directory %d wrong", d.ID)
		}
		open[d.ID] = d.Node
	}
	type record struct {
		node uint64
		key  recordKey
	}
	seen := make(map[record]bool, len(s.Records))
	for i := range s.Records {
		r := &s.Records[i]
		x := record{r.Node, recordKey{r.Class, r.Owner}}
		if open[r.Handle] != r.Node || r.Node == 0 || !s.isProcess(r.Process) || seen[x] || len(r.Ranges) == 0 ||
			r.Class != locks.Flock && r.Class != locks.Posix || uint64(len(r.Ranges)) > 1<<30 {
			return fmt.Errorf("the state has a lock wrong that came through the open file %d", r.Handle)
		}
		seen[x] = true
	}
	for _, x := range s.Requests {
		if len(x.Bytes) < headSize || len(x.Bytes) > largeSize-pageSize || int(head(x.Bytes).Length) != len(x.Bytes) {
			return fmt.Errorf("the state has a request of %d bytes", len(x.Bytes))
		}
	}
	if len(s.Asked) < headSize || head(s.Asked).Opcode != opInit || len(s.Answered) < readHead || s.Dev < 0 {
		return fmt.Errorf("the state has no conversation with the kernel")
	}
	return nil
}

// areDirents reports whether b is what getdents(2) may give.
func areDirents(b []byte) bool {
	for len(b) > 0 {
		const least = 20
		if len(b) < least {
			return false
		}
		size := direntSize(b)
		if size < least || size > len(b) {
			return false
		}
		b = b[size:]
	}
	return true
}
