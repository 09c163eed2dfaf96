package daemon

import (
	"context"
	"time"

	"github.com/dmxfs/dmxfs/internal/hugepages"
)

// How long a mount has been served before this program's memory is put into huge pages: who
// has waited has the processors until then, and what is used all the time is in memory. After
// a takeover it is longer: perhaps the kernel has killed the daemon before for its memory, and
// would kill this one.
const (
	hugePagesAfter         = time.Second
	hugePagesAfterTakeover = time.Minute
)

// useHugePages puts them to use, once: handing over a lock, which a daemon does after it has
// rested, takes less time then.
func (d testator) useHugePages(ctx context.Context) {
	if d.cfg.SmallPages {
		return
	}
	wait := hugePagesAfter
	if d.takeover.left != nil {
		wait = hugePagesAfterTakeover
	}
	after := time.NewTimer(wait)
	defer after.Stop()
	select {
	case <-after.C:
	case <-ctx.Done():
		return
	}
	began := time.Now()
	bytes, err := hugepages.Use(ctx)
	if err != nil {
		d.log.Debug("not all of the program is in huge pages of memory: handing over locks takes longer", "bytes", bytes, "err", err)
		return
	}
	d.log.Debug("the program is in huge pages of memory", "bytes", bytes, "took", time.Since(began))
}
