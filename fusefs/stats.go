package fusefs

import "sync/atomic"

// Stats count what was done to keep caches true. They only grow.
type Stats struct {
	Refreshes  int64 // calls of Refresh
	PageDrops  int64 // files whose pages the kernel was told to drop
	AttrDrops  int64 // files whose attributes alone it was told to forget
	EntryDrops int64 // names that it was told to look up again
	Pruned     int64 // files that it was asked to forget to save descriptors
	Yields     int64 // idle open locks that gave way
	Reads      int64 // requests for data that the kernel did not have cached
}

type counters struct {
	Refreshes, PageDrops, AttrDrops, EntryDrops, Pruned, Yields, Reads atomic.Int64
}

// Stats is what was counted so far.
func (s *Server) Stats() Stats {
	c := &s.fs.stats
	return Stats{
		Refreshes: c.Refreshes.Load(), PageDrops: c.PageDrops.Load(), AttrDrops: c.AttrDrops.Load(),
		EntryDrops: c.EntryDrops.Load(), Pruned: c.Pruned.Load(), Yields: c.Yields.Load(), Reads: c.Reads.Load(),
	}
}
