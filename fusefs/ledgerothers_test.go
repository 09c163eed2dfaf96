package fusefs

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/recent"
)

// recent is what this child notes of its changes, or goes on with, and whom it asks.
func (c *keptConfig) recent(o *Options) (err error) {
	askTime = time.Second
	if len(c.After) == 0 {
		o.Recent, err = recent.Create()
	} else {
		x := c.After[len(c.After)-1]
		var fd int
		if fd, err = unix.Open(fmt.Sprintf("/proc/%d/fd/%d", x.Keeper, x.Recent), unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
			o.Recent, err = recent.Open(fd)
		}
	}
	if !c.Alone && c.Other == 0 {
		return err
	}
	o.Others = func(ctx context.Context, q *recent.Question, here bool) ([]recent.Host, error) {
		if c.Other == 0 {
			return nil, nil
		}
		sent := recent.Now()
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", c.PID, c.Other), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		m, err := recent.Open(fd)
		if err != nil {
			return nil, err
		}
		a, err := m.Answer(ctx, q)
		if err != nil {
			return nil, err
		}
		h, err := recent.Of(a, sent, recent.Now(), 100)
		return []recent.Host{h}, err
	}
	return err
}
