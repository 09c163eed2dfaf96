package daemon

import (
	"context"
	"time"

	"github.com/dmxfs/dmxfs/internal/trouble"
)

// running are the parts of a daemon that run before it is a member, and after.
type running struct {
	nodeCtx context.Context // of memberships
	netDone chan error      // how the network has ended
	end     func()          // ends all
}

// begin has the network of d listen and its engine turn; before is done in between. The
// network lives until the membership has ended in good order.
func begin(ctx context.Context, d *daemon, before func() error) (*running, error) {
	netCtx, netStop := context.WithCancel(context.WithoutCancel(ctx))
	netDone, netEnded := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(netEnded)
		netDone <- d.transport.Run(netCtx)
	}()
	err := before()
	if err == nil {
		select {
		case <-d.host.Ready():
		case err = <-netDone:
			err = trouble.Listening(err)
		}
	}
	if err != nil {
		netStop()
		return nil, err
	}
	nodeCtx, nodeStop := context.WithCancel(context.WithoutCancel(ctx))
	engineCtx, engineStop := context.WithCancel(context.WithoutCancel(ctx))
	engineDone := make(chan struct{})
	go func() { defer close(engineDone); _ = d.engine.Run(engineCtx) }()
	bookCtx, bookStop := context.WithCancel(ctx)
	bookDone := make(chan struct{})
	go func() { defer close(bookDone); d.book.keep(bookCtx) }()
	// These may hang in the storage, and have nothing to end.
	go d.rotator.Follow(bookCtx)
	clones := cloneWatch{d.register, &d.node, d.state, d.log}
	go clones.follow(bookCtx)
	return &running{nodeCtx, netDone, func() {
		// Storage that hangs, or an engine that does, must not keep the
		// process from ending: the one that watches it starts another.
		end := func(what string, stop func(), done <-chan struct{}) {
			stop()
			select {
			case <-done:
			case <-time.After(stuckPatience):
				d.log.Error(what + " does not end: it is left behind")
			}
		}
		end("the reading of address records", bookStop, bookDone)
		end("the lock engine", engineStop, engineDone)
		nodeStop()
		end("the network", netStop, netEnded)
	}}, nil
}
