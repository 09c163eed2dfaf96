package fusefs

import "sync"

// readers decides who reads the next request. A request is answered in the
// goroutine that has read it, which wakes nobody else up: that takes longer
// than most requests do. There are two that do it by turns; so while both
// answer one, or the one does that is left, there is nobody who reads. Whoever
// is going to wait for another node, or for anything that may take long,
// therefore leaves the reading to others before; and tick finds those that turn
// out to take long, be it for a disk that is slow or a mutex. Whoever is going
// to wait for the storage, which is over soon, makes sure that somebody else
// reads meanwhile and goes on reading afterwards: so the storage has as many
// requests at a time as programs make.
//
// There are two because a program that makes one call after the other is then
// served by one that has slept before: the kernel can let it run where the
// program did. With one it runs elsewhere and has to be fetched each time.
//
// It starts goroutines through start, and has no other effect.
type readers struct {
	most  int    // as many read at once, apart from those that are held up
	start func() // starts a goroutine that calls reading at once

	mu      sync.Mutex
	active  map[*reader]struct{} // those that read on when they have answered
	waiting int                  // how many of them wait for a request
	blocked int                  // how many of them wait for the storage
	beside  uint64               // how often one began to while others did, so far
	serving map[uint64]*reader   // by the number of the request
	ticks   uint64
	begun   uint64 // requests, so far
	paused  bool   // nobody begins to read
}

// reader is a goroutine that reads requests and answers them. Its fields are
// guarded by readers.mu.
type reader struct {
	request uint64 // that it answers; 0: none
	since   uint64 // tick of its begin
	waits   bool   // for another node or the storage, and has said so
	blocked bool   // waits for the storage, and is active
	left    bool   // the request was read by another process
	streak  int    // requests that it did not have to wait for, one after the other
	beside  bool   // when it answered the last one, others were answered or waited
	// interrupted: the kernel has withdrawn the request.
	interrupted  bool
	slot         slot     // of the request, if it has one
	large, small slot     // kept for the next one
	past         *past    // what another process has done of it; or nil
	after        []func() // when its answer is noted
}

// usualReaders is how many readers there are when none is held up, and not too much to do.
const usualReaders = 2

// backlog is how many requests a reader finds ready, one after the other, before
// it takes that for more than it can do.
const backlog = 64

// mostBlocked is how many readers wait for the storage at a time; each takes a
// thread. What comes then waits for one of them.
const mostBlocked = 48

// long is how many ticks a request takes that takes long.
const long = 2

func newReaders(most int) *readers {
	return &readers{most: most, active: make(map[*reader]struct{}), serving: make(map[uint64]*reader)}
}

// reading is called by a goroutine that begins to read.
func (rs *readers) reading() *reader {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for r := range rs.active {
		if r.request == starting {
			r.request = 0
			return r
		}
	}
	r := new(reader)
	rs.active[r] = struct{}{}
	return r
}

// starting is the request of a reader whose goroutine has not begun.
const starting = ^uint64(0)

// REQUIRES: mu held.
func (rs *readers) more() {
	if rs.paused {
		return
	}
	rs.active[&reader{request: starting}] = struct{}{}
	rs.start()
}

// wait is called by r before it waits for a request. It is false if enough
// others do; then r has ended.
func (rs *readers) wait(r *reader) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.waiting >= usualReaders || rs.paused {
		delete(rs.active, r)
		return false
	}
	rs.waiting++
	return true
}

// begin is called by r when it has read a request, and before it answers it.
// With ready it did not have to wait for it; with leave it does not read on
// afterwards.
func (rs *readers) begin(r *reader, request uint64, ready, leave bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.begun++
	r.request, r.since, r.waits, r.interrupted = request, rs.ticks, false, false
	rs.serving[request] = r
	rs.waiting--
	if r.streak++; !ready {
		r.streak = 0
	}
	switch {
	case leave:
		rs.leave(r)
	case r.streak >= backlog && rs.free() < rs.most:
		r.streak = 0
		rs.more()
	}
}

// end is called by r when it has answered. It tells whether r reads on, and
// whether the request waits for others. One that has left reads on if too few
// others do and its request took long: that is cheaper than a new goroutine.
// Where locks go to and fro it ends all the same: each reader keeps one of the
// runtime's few processors while it sleeps in read(2), and messages are late
// without them. A second one that is missing is started here and not by begin: a
// program waits for the answer, and perhaps another one for what it unlocks.
func (rs *readers) end(r *reader) (on, waited bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.serving, r.request)
	r.beside = len(rs.serving) > 0
	r.request, r.slot, r.past, r.after, r.left = 0, slot{}, nil, nil, false
	rs.unblock(r)
	if _, on = rs.active[r]; !on && rs.free() < usualReaders && rs.ticks-r.since >= long {
		rs.active[r] = struct{}{}
		on = true
	}
	if on && rs.waiting == 0 && rs.free() < usualReaders {
		rs.more()
	}
	return on, r.waits
}

// willWait is called while a request is answered that is going to wait for more
// than the storage: somebody else reads meanwhile.
func (rs *readers) willWait(request uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.serving[request]; r != nil {
		r.waits = true
		rs.leave(r)
	}
}

// REQUIRES: mu held.
func (rs *readers) leave(r *reader) {
	if _, ok := rs.active[r]; !ok {
		return
	}
	rs.unblock(r)
	r.large.giveBack() // it may be long until then
	delete(rs.active, r)
	if rs.free() == 0 { // or the other one is back in a moment
		rs.more()
	}
}

// block is called while a request is answered that is going to wait for the
// storage.
func (rs *readers) block(request uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.serving[request]
	if r == nil {
		return
	}
	r.waits = true
	if r.blocked || rs.blocked >= mostBlocked {
		return
	}
	if _, ok := rs.active[r]; !ok {
		return
	}
	r.blocked = true
	if rs.blocked++; rs.blocked > 1 {
		rs.beside++
	}
	if rs.free() == 0 { // or the other one is back in a moment
		rs.more()
	}
}

// REQUIRES: mu held.
func (rs *readers) unblock(r *reader) {
	if r.blocked {
		r.blocked = false
		rs.blocked--
	}
}

// free is how many readers read, or will in a moment unless they are held up.
// REQUIRES: mu held.
func (rs *readers) free() int { return len(rs.active) - rs.blocked }

// tick is called once in a while, and starts one more reader if all have been
// held up since the last time. It tells how many requests have begun so far, and how
// many of them to wait for the storage beside others.
func (rs *readers) tick() (begun, beside uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.ticks++
	free := len(rs.active) == 0 // nobody has begun to read, or all have ended
	for r := range rs.active {
		if r.request == 0 || r.request == starting || !r.blocked && r.since+1 >= rs.ticks {
			free = true
		}
	}
	if !free {
		rs.more()
	}
	return rs.begun, rs.beside
}

// serves reports whether a request is being answered.
func (rs *readers) serves(request uint64) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.serving[request] != nil
}

// underway are the requests that are being answered.
func (rs *readers) underway() []uint64 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	all := make([]uint64, 0, len(rs.serving))
	for id := range rs.serving {
		all = append(all, id)
	}
	return all
}
