package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

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

// takeMemory takes it, once.
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
	if err := d.garbage.reserve(); err != nil {
		d.log.Debug("garbage is looked for whenever as much memory is used as was before: calls take longer", "err", err)
	}
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

// garbage is memory for more of it.
//
// The runtime looks for garbage when there is as much memory in use as twice what was the last
// time, GOGC(100 %). A daemon with few locks has 7 MB in use, and makes as much garbage in 80 ms
// while a program takes and gives up locks as fast as it can; to look for it 13 times a second
// took 6 % of the time of a call. Here is one object, of which nothing is ever written, so that
// it takes no memory; but the runtime counts it as in use, and garbage may take as much more
// before that is looked for. That is as much for a daemon that has much in use; with a larger GOGC
// it would be several times that.
type garbage struct{ unwritten []byte }

const (
	garbageSize  = 24 << 20
	garbageSpare = 64 << 20 // that must be there, as for huge pages
)

// reserve makes the object: where there is memory to spare, and the administrator has said
// nothing else of the garbage, see package runtime.
func (g *garbage) reserve() error {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	if err := memory.Spare(garbageSpare); err != nil {
		return err
	}
	g.unwritten = make([]byte, garbageSize)
	// Where its memory was used before, the runtime has cleared it: it is given back, and reads
	// as zeros all the same, if anybody reads it.
	if err := unix.Madvise(g.unwritten, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("the memory that garbage may take is not given back: %w", err)
	}
	return nil
}
