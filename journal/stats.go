package journal

import "time"

// Stats is the state of a journal in numbers.
type Stats struct {
	// First and Next are the numbers of the oldest record that is kept (but
	// for those of open requests), and of the next one.
	First, Next uint64
	// Oldest is when the oldest record was written; zero if there is none.
	Oldest time.Time
	// Records are stored, in blocks of so many Bytes. Disk is what the
	// directory takes, or 0 when that is not known.
	Records     uint64
	Bytes, Disk int64
	// Pending records are only in memory.
	Pending int
	// Dropped records were lost since the journal was opened, because the disk
	// did not take them.
	Dropped uint64
	// Damaged parts of the journal are known.
	Damaged int
}

// Stats is for status commands and metrics.
func (j *Journal) Stats() Stats {
	var s Stats
	x := &j.idx
	x.mu.RLock()
	s.First, s.Records, s.Bytes = x.floor, x.records, x.bytes
	for i := range x.extents {
		if e := &x.extents[i]; e.records > 0 {
			s.First = max(s.First, e.first)
			s.Oldest = time.Unix(0, e.oldest)
			break
		}
	}
	x.mu.RUnlock()

	b := &j.buf
	b.mu.Lock()
	s.Next = b.next
	s.Pending = b.n + b.nWriting
	s.Dropped = b.dropped + uint64(b.drops.n)
	b.mu.Unlock()

	s.Damaged = len(j.damage.from(s.First))
	if j.dir != nil {
		s.Disk, _ = diskUsed(j.dir.path)
	}
	return s
}
