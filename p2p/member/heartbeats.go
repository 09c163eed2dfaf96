package member

import "slices"

// heartbeats keep what this node and the other members of its view promise each
// other. See package comment.
type heartbeats struct {
	*position
	engine   *engine
	fences   *fences
	proposer *proposer
	mail     *mail

	peers map[Node]*peer
	order []*peer // of peers, as in the view
	due   int64
}

// peer is what a member keeps of another one.
type peer struct {
	Member
	lastT     int64  // newest T of its heartbeats at this epoch; 0 is none
	lastTAt   int64  // when that came
	prom      int64  // newest of its T that this node promises at this epoch
	ten       int64  // newest T of this node that it promises at this epoch
	two       int64  // newest T of this node that it has heard, at any epoch
	silent    waking // since prom last advanced
	heard     bool   // it spoke to this node at an epoch with both in
	lastAt    int64  // when it spoke last
	got       bool   // its state is here
	has       bool   // it has this node's state
	syncAt    int64  // when that was last sent
	refuse    bool   // an admin wants it out, for the reason refuseWhy
	refuseWhy string
	said      said  // what the last heartbeat to it said
	asked     int   // answers to HB.Ask since the last beat
	rtt       int64 // -1: not known
}

// said is what a heartbeat tells its receiver.
type said struct {
	heard, prom int64
	got         bool
}

func (h *heartbeats) wake() {
	for _, y := range h.order {
		y.silent.tick(h.base)
	}
}

// install begins anew with the other members of the view. What is known of
// their life goes on. What they promised was for the epoch before.
func (h *heartbeats) install() {
	was := h.peers
	h.peers = make(map[Node]*peer, len(h.view.Members))
	h.order = h.order[:0]
	for i := range h.view.Members {
		if h.view.Members[i].Node == h.me {
			continue
		}
		y := &peer{ten: never, two: never, lastAt: never, syncAt: never, rtt: -1, silent: h.sinceNow()}
		if x := was[h.view.Members[i].Node]; x != nil {
			y.two, y.silent, y.heard, y.lastAt, y.rtt = x.two, x.silent, x.heard, x.lastAt, x.rtt
			y.refuse, y.refuseWhy = x.refuse, x.refuseWhy
		}
		y.Member = h.view.Members[i]
		h.peers[y.Node] = y
		h.order = append(h.order, y)
	}
}

func (h *heartbeats) outside() { h.peers, h.order = map[Node]*peer{}, h.order[:0] }

// send sends the heartbeats when they are due, or now.
func (h *heartbeats) send(now bool) {
	if h.next != nil || !now && h.now < h.due-h.p.Tick/2 {
		return
	}
	h.due = max(h.due, h.now-h.p.Heartbeat) + h.p.Heartbeat
	if now {
		h.due = h.now + h.p.Heartbeat
	}
	for _, y := range h.order {
		y.asked = 0
		h.sendTo(y)
		if !y.has && h.now-y.syncAt >= h.p.Heartbeat {
			h.sendSync(y)
		}
	}
}

func (h *heartbeats) sendTo(y *peer) {
	hb := HB{T: h.now, Heard: y.lastT, Prom: y.prom, GotSync: y.got}
	hb.Ask = h.now-y.ten > 2*h.p.Heartbeat+2*h.p.Tick
	if y.lastT > 0 {
		hb.Delay = h.now - y.lastTAt
	}
	y.said = said{y.lastT, y.prom, y.got}
	h.mail.send(y.Node, hb)
}

func (h *heartbeats) sendSync(y *peer) {
	if y.Peer == h.me.Peer {
		return
	}
	y.syncAt = h.now
	h.mail.sendSync(y.Node)
}

// received handles a heartbeat of a node at this epoch.
func (h *heartbeats) received(from Node, hb HB) {
	y := h.peers[from]
	if y == nil || hb.Heard > h.now || hb.Prom > h.now {
		return // it speaks of heartbeats that were not sent yet
	}
	first := y.lastT == 0
	y.heard = true
	y.lastAt = h.now
	if hb.T > y.lastT {
		y.lastT, y.lastTAt = hb.T, h.now
	}
	if hb.Heard > 0 && hb.Heard > y.two {
		y.two = hb.Heard
		y.rtt = max(h.now-hb.Heard-hb.Delay, 0)
	}
	if hb.Prom > 0 && hb.Prom > y.ten {
		y.ten = hb.Prom
	}
	y.has = y.has || hb.GotSync
	if y.lastT > y.prom && h.mayPromise(y) {
		y.prom = y.lastT
		y.silent = h.sinceNow()
	}
	if first {
		h.sendSync(y)
	}
	// An answer that says nothing new helps nobody, and two nodes that ask
	// each other must not make a storm: ten in a heartbeat are enough.
	if hb.Ask && y.asked < 10 && y.said != (said{y.lastT, y.prom, y.got}) {
		y.asked++
		h.sendTo(y)
	}
}

// mayPromise: a promise gives y tenure for L. It is given only to a peer that
// hears this node (two that do not hear each other must not keep each other
// from being dropped), and to nobody that a proposal of this node leaves out,
// from before the link is tried until its outcome is known.
func (h *heartbeats) mayPromise(y *peer) bool {
	if h.holding() {
		return false
	}
	if h.proposer.leavesOut(y.Node) {
		return false
	}
	return !y.refuse && !h.fences.has(y.Node) && h.now-y.two <= h.p.Hears
}

// syncArrived: the state of a member is here.
func (h *heartbeats) syncArrived(in SyncArrived) {
	y := h.peers[in.From]
	if h.next != nil || in.Epoch != h.view.Epoch || y == nil {
		return
	}
	if !y.got {
		y.got = true
		h.out.TakeSync = true
		h.checkSynced()
	}
	h.sendTo(y) // tells it to stop repeating
}

// checkSynced tells the engine, once in an epoch, that it has all states.
func (h *heartbeats) checkSynced() {
	if h.engine.synced || h.state != StateMember {
		return
	}
	for _, y := range h.order {
		if !y.got {
			return
		}
	}
	h.engine.sync()
}

// refuse promises n nothing any more.
func (h *heartbeats) refuse(n Node, why string) {
	if y := h.peers[n]; y != nil {
		y.refuse, y.refuseWhy = true, why
	}
}

func (h *heartbeats) refuseRevoked() {
	for _, y := range h.order {
		if h.view.IsRevoked(y.Peer) {
			h.refuse(y.Node, "revoked by an admin")
		}
	}
}

// heardAny reports whether a member of the view has spoken to this node.
func (h *heartbeats) heardAny() bool {
	return slices.ContainsFunc(h.order, func(y *peer) bool { return y.heard })
}
