package fusefs

import (
	"sync"
	"time"
)

// entries remembers which names the kernel was told lately, and attributes of what is
// not a regular file, so that it can be told to ask for them again. (Attributes come with
// names, but not where a program has a directory open, or works in it. Those of regular
// files are attrCache's.)
type entries struct {
	*base
	mu   sync.Mutex
	ring [512]entry
	next int
	// full is until when entries are valid that were overwritten.
	full int64
}

type entry struct {
	dir   uint64
	name  string // "": none, only attributes
	node  uint64 // whose attributes were told; 0: of no file, or a regular one
	until int64  // on the server's clock; 0: none
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

// told remembers what the kernel may keep of a name that leads to n.
func (e *entries) told(dir uint64, name string, n *node, now int64, ttl time.Duration) {
	x := entry{dir: dir, name: name, until: now + (ttl + tickSlack).Milliseconds()}
	if !n.isRegular() {
		x.node = n.id
	}
	e.add(x, now)
}

// toldAttr remembers that the kernel may keep the attributes of n, and reports whether
// it may.
func (e *entries) toldAttr(n *node, now int64, ttl time.Duration) bool {
	if n.isRegular() {
		return true
	}
	if !e.mayKeep(n.isDir(), now) {
		return false
	}
	e.add(entry{node: n.id, until: now + (ttl + tickSlack).Milliseconds()}, now)
	return true
}

func (e *entries) add(x entry, now int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := &e.ring[e.next]
	if old.until > now {
		e.full = max(e.full, old.until)
	}
	*old = x
	e.next = (e.next + 1) % len(e.ring)
}

// take is what is still valid, and until when there may be more.
func (e *entries) take(now int64) (valid []entry, more int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := 1; i <= len(e.ring); i++ {
		x := &e.ring[(e.next-i+len(e.ring))%len(e.ring)]
		if x.until <= now {
			break // and so are those before it
		}
		valid = append(valid, *x)
		*x = entry{}
	}
	if e.full > now {
		more = e.full
	}
	return valid, more
}

// expireEntries makes the kernel ask again for what it was told before now. If there were too many to remember it waits until they have expired by
// themselves, which takes some hundredths of a second.
func (e *entries) expireEntries() {
	valid, more := e.take(e.now())
	for _, x := range valid {
		if x.name != "" {
			e.stats.EntryDrops.Add(1)
			_ = e.dev.expireEntry(x.dir, x.name)
		}
		if x.node != 0 {
			e.dev.forgetAttr(x.node)
		}
	}
	if wait := more - e.now(); wait > 0 {
		time.Sleep(time.Duration(wait) * time.Millisecond)
	}
}
