package daemon

import (
	"context"
	"time"

	"github.com/dmxfs/dmxfs/internal/hugepages"
	"github.com/dmxfs/dmxfs/internal/memory"
)

// How long a mount has been served before this program takes memory for speed alone: who has
// waited has the processors until then, and what is used all the time is in memory. After a
// takeover it is longer: perhaps the kernel has killed the daemon before for its memory, and
// would kill this one.
const (
	speedAfter         = time.Second
	speedAfterTakeover = time.Minute
)

// takeMemory takes it, and has garbage take more or less of it until ctx ends.
func (d testator) takeMemory(ctx context.Context) {
	wait := speedAfter
	if d.takeover.left != nil {
		wait = speedAfterTakeover
	}
	after := time.NewTimer(wait)
	defer after.Stop()
	select {
	case <-after.C:
	case <-ctx.Done():
		return
	}
	if !d.cfg.SmallPages {
		d.useHugePages(ctx)
	}
	garbage{spare: memory.Spare, log: d.log}.follow(ctx)
}

// useHugePages puts huge pages of memory to use: handing over a lock, which a daemon does after
// it has rested, takes less time then.
func (d testator) useHugePages(ctx context.Context) {
	began := time.Now()
	bytes, err := hugepages.Use(ctx)
	if err != nil {
		d.log.Debug("not all of the program is in huge pages of memory: handing over locks takes longer", "bytes", bytes, "err", err)
		return
	}
	d.log.Debug("the program is in huge pages of memory", "bytes", bytes, "took", time.Since(began))
}
