package fusefs

import (
	"sync/atomic"

	"github.com/dmxfs/dmxfs/locks"
)

// recordKey tells the explicit locks on a file apart.
type recordKey struct {
	class locks.Class
	owner locks.OwnerID
}

// lockRecord says that an owner holds explicit locks on a file. The lock
// engine decides; this is here to know which I/O the locks protect. A record
// outlives the loss of its locks: a program that has not yet given up what it
// lost is refused the I/O that it would do under it.
type lockRecord struct {
	recordKey
	n      *node
	h      *handle      // that the latest of them came through
	p      *process     // that asked for the latest; may be nil
	ranges locks.Ranges // shared with nothing
	tenure locks.Tenure // of the oldest of them
	token  locks.Token  // of the latest
	turn   uint64       // when that was granted, as a count of all such
	first  uint64       // when the first was, since when there always was one
	line   uint32       // of the ledger
}

// lockRecords are those of all files; each is kept with its file, handle and
// process.
type lockRecords struct {
	*base
	explicit atomic.Int64  // how many there are, and open locks between processes
	turns    atomic.Uint64 // how many explicit locks were granted
	// unlocks is how often a program has begun to give one up, but by its last close(2),
	// which is carried out when it may be doing other things.
	unlocks atomic.Uint64
}

// remember records a grant. A POSIX lock brings its count in posixUse with it.
func (rs *lockRecords) remember(h *handle, p *process, req *locks.Request, g locks.Grant) {
	k := recordKey{req.Key.Class, req.Owner}
	n := h.n
	n.lockMu.Lock()
	if h.lost.Load() {
		g.Tenure = brokenTenure // it was taken away while the grant was on its way
	}
	r := n.records[k]
	if r == nil {
		r = &lockRecord{recordKey: k, n: n, h: h, p: p, tenure: g.Tenure}
		if n.records == nil {
			n.records = make(map[recordKey]*lockRecord, 1)
		}
		n.records[k] = r
		rs.explicit.Add(1)
	} else if k.class == locks.Posix {
		n.posixUse.Add(-1)
	}
	oldH, oldP := r.h, r.p
	r.h, r.p, r.token, r.turn = h, p, g.Token, rs.turns.Add(1)
	if r.first == 0 {
		r.first = r.turn
	}
	r.ranges.Insert(req.Range)
	if oldH != h {
		oldH.loses(r)
	}
	h.gets(r)
	if oldP != p {
		oldP.disown(r)
	}
	if oldH != h {
		oldH.proc.disown(r)
	}
	p.own(r)
	h.proc.own(r)
	rs.ledger.reserve(turnIDs, r.turn)
	rs.ledger.lock(r)
	n.lockMu.Unlock()
}

// unlocking is called before an explicit lock is given up: others may have it then.
func (rs *lockRecords) unlocking() {
	n := rs.unlocks.Add(1)
	if rs.conn == nil || rs.conn.requests == nil {
		return
	}
	for noted := &rs.conn.requests.h.unlocks; ; {
		if was := noted.Load(); was >= n || noted.CompareAndSwap(was, n) {
			return
		}
	}
}

// unremember records that an owner gave up a range.
func (rs *lockRecords) unremember(n *node, k recordKey, rg locks.Range) {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	r := n.records[k]
	if r == nil {
		return
	}
	if r.ranges.Remove(rg); r.ranges.Empty() {
		rs.deleteRecord(r)
	} else {
		rs.ledger.lock(r)
	}
}

// forgetHandle drops the records of locks that came through h.
func (rs *lockRecords) forgetHandle(h *handle) {
	h.n.lockMu.Lock()
	defer h.n.lockMu.Unlock()
	for r := range h.records {
		rs.deleteRecord(r)
	}
}

// REQUIRES: r.n.lockMu held.
func (rs *lockRecords) deleteRecord(r *lockRecord) {
	rs.ledger.unlocks(r)
	delete(r.n.records, r.recordKey)
	rs.explicit.Add(-1)
	if r.class == locks.Posix {
		r.n.posixUse.Add(-1)
	}
	r.h.loses(r)
	r.p.disown(r)
	r.h.proc.disown(r)
}

// gets notes that what r records came through h. REQUIRES: n.lockMu held.
func (h *handle) gets(r *lockRecord) {
	if h.records == nil {
		h.records = make(map[*lockRecord]struct{}, 1)
	}
	h.records[r] = struct{}{}
	if t, held := uint64(r.tenure)+1, h.held.Load(); held == 0 || t < held {
		h.held.Store(t)
	}
}

// loses undoes gets. REQUIRES: n.lockMu held.
func (h *handle) loses(r *lockRecord) {
	delete(h.records, r)
	h.held.Store(oldest(h.records, h.held.Load()))
}

// oldest is the tenure of the oldest of rs, plus one, which is not less than
// least; 0 if there is none. Nearly all are of one tenure, so the first that is
// looked at mostly tells.
func oldest(rs map[*lockRecord]struct{}, least uint64) (held uint64) {
	for r := range rs {
		if held != 0 && held == least {
			break
		}
		if t := uint64(r.tenure) + 1; held == 0 || t < held {
			held = t
		}
	}
	return held
}

func (p *process) own(r *lockRecord) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.locks == nil {
		p.locks = make(map[*lockRecord]struct{}, 1)
	}
	p.locks[r] = struct{}{}
	if t, held := uint64(r.tenure)+1, p.held.Load(); held == 0 || t < held {
		p.held.Store(t)
	}
}

func (p *process) disown(r *lockRecord) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.locks, r)
	p.recount(p.held.Load())
}

// holdsSince reports whether one of the explicit locks that came through h was there when
// as many were granted as turn.
func (h *handle) holdsSince(turn uint64) bool {
	h.n.lockMu.Lock()
	defer h.n.lockMu.Unlock()
	return anySince(h.records, turn)
}

// holdsSince is the same of all locks of p, and true if it has open locks between
// processes.
func (p *process) holdsSince(turn uint64) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.alone) > 0 || anySince(p.locks, turn)
}

func anySince(rs map[*lockRecord]struct{}, turn uint64) bool {
	for r := range rs {
		if r.first <= turn {
			return true
		}
	}
	return false
}

// recount sets held, which is not less than least.
// REQUIRES: mu held.
func (p *process) recount(least uint64) {
	held := oldest(p.locks, least)
	for _, t := range p.alone {
		if t := uint64(t) + 1; held == 0 || t < held {
			held = t
		}
	}
	p.held.Store(held)
}

// ownAlone records that an open lock of h, which p has opened, is between
// processes.
func (rs *lockRecords) ownAlone(p *process, h *handle, t locks.Tenure) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alone == nil {
		p.alone = make(map[*handle]locks.Tenure, 1)
	}
	if _, ok := p.alone[h]; !ok {
		rs.explicit.Add(1)
	}
	p.alone[h] = t
	p.recount(0)
}

func (rs *lockRecords) disownAlone(p *process, h *handle) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.alone[h]; ok {
		rs.explicit.Add(-1)
		delete(p.alone, h)
		p.recount(p.held.Load())
	}
}

// tokenOf is the fencing token of the latest explicit lock that p has on n:
// that it has asked for, or that came through a file which it has opened.
// Otherwise it is that of the nearest of its ancestors, from which p may have
// inherited the open file (flock(1) locks for the command that it runs); and
// otherwise that of the latest open lock of this node. ok is false when there
// is none.
func (rs *lockRecords) tokenOf(n *node, p *process) (token locks.Token, ok bool) {
	for q, depth := p, 0; q != nil && depth < maxAncestors && n.hasRecords(); depth++ {
		if token, ok = n.explicitToken(q); ok {
			return token, true
		}
		q = rs.procs.parent(q)
	}
	for _, h := range n.openHandles() {
		h.mu.RLock()
		if h.open.state == openHeld && (!ok || h.open.token > token) {
			token, ok = h.open.token, true
		}
		h.mu.RUnlock()
	}
	return token, ok
}

// maxAncestors bounds the walk in tokenOf: processes come and go meanwhile.
const maxAncestors = 64

func (n *nodeLocks) hasRecords() bool {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	return len(n.records) > 0
}

// explicitToken goes by the order of the grants here: tokens of two classes
// have none.
func (n *nodeLocks) explicitToken(p *process) (token locks.Token, ok bool) {
	n.lockMu.Lock()
	defer n.lockMu.Unlock()
	turn := uint64(0)
	for _, r := range n.records {
		if (r.p == p || r.h.proc == p) && r.turn > turn {
			token, turn, ok = r.token, r.turn, true
		}
	}
	return token, ok
}
