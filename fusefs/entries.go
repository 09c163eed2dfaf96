package fusefs

import (
	"slices"
	"sync"
	"time"
)

// entries remembers which names the kernel was told lately, and of which files the
// attributes, so that it can be told to ask for them again.
type entries struct {
	*base
	mu    sync.Mutex
	ring  [512]entry
	next  int
	begun int // so many, up to the last one, are from after the last take
	nodes toldNodes
	// full is until when entries are valid that were overwritten.
	full int64
}

type entry struct {
	dir   uint64
	name  string
	until int64 // on the server's clock; 0: none
}

// toldNodes are the files of which the kernel was told attributes last. Guarded by entries.mu.
type toldNodes struct {
	ring  [512]toldNode
	next  int
	begun int // see entries
}

type toldNode struct {
	id uint64 // 0: none
	at int64  // on the server's clock
}

// handoverTime is after how long without a lock from another host a further one
// is not expected soon.
const handoverTime = time.Second

// fewNames is how many names the kernel may keep while locks go to and fro: to
// have them looked up again is what each of those waits for.
const fewNames = 32

// mayKeep reports whether the kernel may keep a name that it is told now. While
// locks come from other hosts these are few, of directories, which are in the path
// to many files; what is told by the thousand, as to find(1), would keep the next
// lock waiting, and is hardly asked for again.
func (e *entries) mayKeep(isDir bool, now int64) bool {
	if t := e.arrivals.last.Load(); t == nil || time.Since(*t) > handoverTime {
		return true
	}
	return isDir && e.few(now)
}

// few reports whether less than fewNames may be valid.
func (e *entries) few(now int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ring[(e.next-fewNames+len(e.ring))%len(e.ring)].until <= now
}

// told remembers an entry that is valid until a time.
func (e *entries) told(dir uint64, name string, now, until int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &e.ring[e.next]
	if x.until > now {
		e.full = max(e.full, x.until)
	}
	*x = entry{dir, name, until}
	e.next = (e.next + 1) % len(e.ring)
	e.begun = min(e.begun+1, len(e.ring))
}

// take is what is still valid, and until when there may be more.
func (e *entries) take(now int64) (valid []entry, more int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 1; i <= e.begun; i++ { // those before were taken, or had expired
		x := &e.ring[(e.next-i+len(e.ring))%len(e.ring)]
		if x.until > now {
			valid = append(valid, *x)
		}
		*x = entry{}
	}
	e.begun = 0
	if e.full > now {
		more = e.full
	}
	return valid, more
}

// expireEntries makes the kernel look names up again that it was told before
// now. If there were too many to remember it waits until they have expired by
// themselves, which takes some hundredths of a second.
func (e *entries) expireEntries() {
	valid, more := e.take(e.now())
	for _, x := range valid {
		e.stats.EntryDrops.Add(1)
		e.dev.expireEntry(x.dir, x.name)
	}
	if wait := more - e.now(); wait > 0 {
		time.Sleep(time.Duration(wait) * time.Millisecond)
	}
}

// toldAttr remembers that the kernel is about to be told attributes of a node that it may keep.
func (e *entries) toldAttr(id uint64, now int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.nodes
	if last := &r.ring[(r.next-1+len(r.ring))%len(r.ring)]; last.id == id {
		last.at = now
		return
	}
	r.ring[r.next] = toldNode{id, now}
	r.next = (r.next + 1) % len(r.ring)
	r.begun = min(r.begun+1, len(r.ring))
}

// takeNodes are the nodes of which the kernel may have attributes, or is about to take them
// over, each once.
func (e *entries) takeNodes(now int64) (ids []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.nodes
	for ; r.begun > 0; r.begun-- {
		x := &r.ring[(r.next-r.begun+len(r.ring))%len(r.ring)]
		if now-x.at <= takenOver {
			ids = append(ids, x.id)
		}
		*x = toldNode{}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
