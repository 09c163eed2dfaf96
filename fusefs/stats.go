package fusefs

import "sync/atomic"

// Stats count what was done to keep caches true. They only grow.
type Stats struct {
	Refreshes  int64 // calls of Refresh
	PageDrops  int64 // files whose pages the kernel was told to drop
	AttrDrops  int64 // files whose attributes alone it was told to forget
	EntryDrops int64 // names that it was told to look up again
	Weighed    int64 // descriptors that were given up because there were no others
	Yields     int64 // idle open locks that gave way
	Reads      int64 // requests for data that the kernel did not have cached
	Grown      int64 // files that the kernel was told to be longer
	Settles    int64 // answers with a size that a lock had to wait for
	CaughtUp   int64 // times that the storage's client told a size that was behind
	Looks      int64 // requests for names and attributes, where such may be kept for long
}

type counters struct {
	Refreshes, PageDrops, AttrDrops, EntryDrops, Yields, Reads, Grown, Settles, CaughtUp, Looks atomic.Int64
}

// Stats is what was counted so far.
func (s *Server) Stats() Stats {
	c, t := &s.fs.stats, s.fs.tree
	t.mu.Lock()
	weighed := t.anchors.done
	t.mu.Unlock()
	return Stats{
		Refreshes: c.Refreshes.Load(), PageDrops: c.PageDrops.Load(), AttrDrops: c.AttrDrops.Load(),
		EntryDrops: c.EntryDrops.Load(), Weighed: weighed, Yields: c.Yields.Load(), Reads: c.Reads.Load(),
		Grown: c.Grown.Load(), Settles: c.Settles.Load(), CaughtUp: c.CaughtUp.Load(), Looks: c.Looks.Load(),
	}
}
