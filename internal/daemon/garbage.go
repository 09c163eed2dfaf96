package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// garbage is memory for more of it.
//
// The runtime looks for garbage when there is as much memory in use as twice what was the last
// time, GOGC(100 %). A daemon with few locks has 7 MB in use, and makes as much garbage in 80 ms
// while a program takes and gives up locks as fast as it can; to look for it 13 times a second
// took 6 % of the time of a call. Here is one object, of which nothing is ever written, so that
// it takes no memory; but the runtime counts it as in use, and garbage may take as much more
// before that is looked for. That is as much for a daemon that has much in use; with a larger GOGC
// it would be several times that.
type garbage struct {
	spare     func(bytes int64) error // says why there is less, see memory.Spare
	log       *slog.Logger
	unwritten []byte // nil while memory is short
}

const (
	garbageSize = 24 << 20 // of the object

	// It is made where so much memory is to spare, and dropped where that much is not. Between two
	// looks the daemon, and others, may come to use more.
	garbageFrom  = 256 << 20
	garbageUntil = 128 << 20
	garbageLook  = 10 * time.Second
)

// follow makes the object, and drops it, by how much memory there is, until ctx ends; and not at
// all where the administrator has said something else of garbage, see package runtime.
func (g garbage) follow(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	look := time.NewTicker(garbageLook)
	defer look.Stop()
	for {
		g.look()
		select {
		case <-look.C:
		case <-ctx.Done():
			runtime.KeepAlive(g.unwritten)
			return
		}
	}
}

// look makes the object, or drops it, by how much memory there is now.
func (g *garbage) look() {
	if g.unwritten == nil {
		if g.spare(garbageFrom) != nil {
			return
		}
		if err := g.begin(); err != nil {
			g.log.Debug("the memory that garbage may take is in use", "err", err)
		}
		return
	}
	if err := g.spare(garbageUntil); err != nil {
		g.unwritten = nil
		debug.FreeOSMemory() // what is garbage now
		g.log.Debug("garbage is looked for sooner: calls take longer", "err", err)
	}
}

// begin makes the object.
func (g *garbage) begin() error {
	g.unwritten = make([]byte, garbageSize)
	// Where its memory was used before, the runtime has cleared it: it is given back, and reads
	// as zeros all the same, if anybody reads it.
	if err := unix.Madvise(g.unwritten, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("madvise: %w", err)
	}
	return nil
}
