package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// markEvery is how often a member looks whether it is the only process in its
// incarnation, see register.Marker. Of a machine that was cloned with its memory
// one copy goes on for so long at most, or twice as long if both are resumed at
// the same time.
const markEvery = 2 * time.Second

const clonedText = "another process is this member, too, or was it since: the machine was cloned while it ran, as by resuming a snapshot with its memory twice, and the other copy goes on, or was put back to such a snapshot; " +
	"mount here again if there is no other copy, else with another state directory (--state)"

// cloneWatch finds out whether another process is this member, too.
type cloneWatch struct {
	register *register.Dir
	node     *atomic.Pointer[cluster.Node]
	state    *statedir.Dir
	log      *slog.Logger
}

// follow ends this node when another process is the same one.
func (w *cloneWatch) follow(ctx context.Context) {
	k := w.register.NewMarker()
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		node := w.node.Load()
		if node == nil {
			continue
		}
		s := node.Status()
		if s.State != member.StateMember {
			continue
		}
		switch err := k.Renew(s.Self.Inc); {
		case errors.Is(err, register.ErrCloned):
			// The lock of this state directory says nothing about the other
			// process: nobody here may prove by it that this member is dead.
			if err := w.state.DropLife(s.Self.Inc); err != nil {
				w.log.Error("the state directory still takes this process for the only one of its identity: "+
					"before anything is mounted with it again, remove the file", "file", w.state.File(statedir.LivesFile), "err", err)
			}
			w.log.Error(clonedText)
			node.Fail(&cluster.Ended{End: member.End{Code: member.EndTwin, Text: clonedText}})
			return
		case err != nil:
			w.log.Debug("the mark of this member cannot be renewed", "err", err)
		}
	}
}
