package ask

import (
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/statedir"
)

// Clients makes the client for the daemon of a mount, whose mount point is the argument, or
// the only one on this host. There need be no daemon; the registration says what is known.
type Clients func(args []string) (*admin.Client, statedir.Registration, error)

// Client is one of [Clients], whose exchanges may take admin.OrderTime.
func Client(args []string) (*admin.Client, statedir.Registration, error) {
	point, err := mountpoint.Which(args)
	if err != nil {
		return nil, statedir.Registration{}, err
	}
	r, err := statedir.Registered(point)
	if err != nil {
		return nil, r, err
	}
	return NewClient(r.State), r, nil
}

// TimeoutFlag gives a command a flag with a time after which each of its questions and
// orders is given up.
func TimeoutFlag(flags *pflag.FlagSet, byDefault time.Duration) Clients {
	d := flags.Duration("timeout", byDefault, "how long to wait for the daemon; what it has not begun with by then it does not do")
	return func(args []string) (*admin.Client, statedir.Registration, error) {
		cl, r, err := Client(args)
		if err == nil {
			cl.Timeout = *d
		}
		return cl, r, err
	}
}

// PointFor is the mount point that a command is for: the one given, or the one that an
// absolute path is below, so that a host with several needs it not named.
func PointFor(path string, given []string) []string {
	if len(given) > 0 || !filepath.IsAbs(path) {
		return given
	}
	if point := mountpoint.Above(path); point != "" {
		return []string{point}
	}
	return given
}
