package fusefs

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// answers are those by which the kernel may keep something. It takes one over when the
// program that asked gets to run, and counts from then for how long. So what it was told
// before a lock came here it could believe long after; and if somebody asks anew under the
// lock, and that program runs before the answer is there, the kernel ignores the new
// attributes (see fuse_change_attributes). Whoever makes the kernel forget something waits
// for these threads before.
type answers struct {
	*base
	mu    sync.Mutex
	last  map[uint32]answer // by thread, which asks for one thing at a time
	swept int64

	one sync.Mutex // held by who waits: who comes meanwhile waits for the same threads
}

// answer is the last one of those that a thread was given.
type answer struct {
	request uint64
	at      int64 // when it was noted, on the server's clock
}

// maxAnswers bounds how many threads are remembered.
const maxAnswers = 16384

// note remembers who is going to be told something, before it is found out whether that may
// be kept. If it is false nothing of the answer may be: when it was taken over could not be
// seen.
func (as *answers) note(in *fuse.InHeader) bool {
	if in.Pid == 0 {
		return false // a thread that this process does not see, out of a container
	}
	now := as.now()
	as.mu.Lock()
	defer as.mu.Unlock()
	if _, ok := as.last[in.Pid]; !ok && !as.hasRoom(now) {
		return false
	}
	as.put(in.Pid, answer{in.Unique, now})
	return true
}

// put is told of an answer. REQUIRES: as.mu held.
func (as *answers) put(tid uint32, a answer) {
	if as.last == nil {
		as.last = make(map[uint32]answer)
	}
	as.last[tid] = a
}

// restore is told of an answer of another process.
func (as *answers) restore(tid uint32, at int64) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.put(tid, answer{at: at})
}

// hasRoom forgets, at most once a second, those that were taken over long ago.
// REQUIRES: as.mu held.
func (as *answers) hasRoom(now int64) bool {
	if len(as.last) < maxAnswers {
		return true
	}
	if now-as.swept < 1000 {
		return false
	}
	as.swept = now
	maps.DeleteFunc(as.last, func(_ uint32, a answer) bool { return a.at < now-takenOver })
	return len(as.last) < maxAnswers
}

// await waits until what was noted before has been taken over: for nothing but the storage,
// and for threads to get to run.
func (as *answers) await(ctx context.Context) {
	as.one.Lock()
	defer as.one.Unlock()
	as.mu.Lock()
	last := as.last
	as.last = nil
	as.mu.Unlock()
	for tid, a := range last {
		as.awaitOne(ctx, tid, a)
	}
}

// awaitOne waits until a thread has gone on with an answer.
func (as *answers) awaitOne(ctx context.Context, tid uint32, a answer) {
	var ran progress
	waits := false
	for as.now()-a.at <= takenOver && ctx.Err() == nil && !closed(as.conn.dead) {
		if as.conn.readers.serveLater(tid, a.request) || !as.conn.readers.serves(a.request) && as.procs.hasGoneOn(tid, &ran) {
			return
		}
		if !waits {
			waits = true
			as.stats.Settles.Add(1)
		}
		time.Sleep(settleEvery)
	}
}

// all are those that may not have been taken over yet, by thread.
func (as *answers) all() map[uint32]int64 {
	now, all := as.now(), make(map[uint32]int64)
	as.mu.Lock()
	defer as.mu.Unlock()
	for tid, a := range as.last {
		if now-a.at <= takenOver {
			all[tid] = a.at
		}
	}
	return all
}
