package estate

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/keeper"
)

// ErrGone is the error of what was left whose keeper has ended.
var ErrGone = keeper.ErrGone

// Will is where all is that a daemon leaves when it is killed.
type Will struct {
	PID        int       `json:"pid"`
	Generation uint64    `json:"generation"` // higher than that of all before it
	Version    string    `json:"version"`
	Keeper     keeper.ID `json:"keeper"`
	// Descriptors, as the keeper has them.
	Mount    int `json:"mount"`
	Requests int `json:"requests"`
	Locks    int `json:"locks"`
	Claims   int `json:"claims"`
	Recent   int `json:"recent"`  // see package recent
	State    int `json:"state"`   // the lock of the state directory
	Control  int `json:"control"` // the control socket
	// Listen is where others have reached this node.
	Listen []string `json:"listen"`
	// Mounted is when the mount was made, in ms of CLOCK_BOOTTIME, and Takeovers how many
	// daemons were killed since, and succeeded.
	Mounted   int64 `json:"mounted"`
	Takeovers int   `json:"takeovers"`
	// InForce: nothing counts any more that those before have left.
	InForce bool `json:"in_force"`
}

// Estate are the wills of daemons that were killed, or may be, which count together: the
// last that was in force, and those of daemons that have died while they took it. The
// oldest comes first.
type Estate struct {
	Wills []Will `json:"wills"`
	Died  int64  `json:"died"` // when the last of them was found dead, in ms of CLOCK_BOOTTIME
}

// Add takes a will, in the place of one of the same generation. Those that do not count any
// more are returned.
func (e *Estate) Add(w Will) (over []Will) {
	same := func(x Will) bool { return x.Generation == w.Generation }
	e.Wills = slices.DeleteFunc(e.Wills, same)
	if w.InForce {
		over, e.Wills = e.Wills, nil
	}
	e.Wills = append(e.Wills, w)
	return over
}

// Complete reports whether there is a will that was in force.
func (e *Estate) Complete() bool { return len(e.Wills) > 0 && e.Wills[0].InForce }

// Newest is the last will.
func (e *Estate) Newest() (w Will) {
	if len(e.Wills) > 0 {
		w = e.Wills[len(e.Wills)-1]
	}
	return w
}

// Ended reports whether the process that has said w, and was killed, does nothing any more:
// see [fusefs.Requests.Ended].
func (w *Will) Ended() (bool, error) {
	k, err := keeper.Find(w.Keeper)
	if err != nil {
		return false, err
	}
	defer k.Close()
	fd, err := k.Take(w.Requests)
	if err != nil {
		return false, err
	}
	r, err := fusefs.OpenRequests(fd, w.Generation)
	if err != nil {
		unix.Close(fd)
		return false, err
	}
	defer r.Close()
	return r.Ended(w.PID)
}

// End ends the keepers of wills, and with that what nobody else has open.
func End(wills []Will) error {
	var failed error
	for _, w := range wills {
		k, err := keeper.Find(w.Keeper)
		if err != nil { // it has ended
			keeper.Reap(w.Keeper)
			continue
		}
		if err := k.End(); err != nil {
			failed = fmt.Errorf("what a daemon that was killed has left: %w", err)
		}
		keeper.Reap(w.Keeper)
	}
	return failed
}

// EndStrays ends the keepers that end with the other end of lifeline, but for those of
// wills: a process that was killed before it said its will leaves one.
func EndStrays(lifeline *os.File, wills []Will) error {
	all, err := keeper.Of(lifeline)
	if err != nil {
		return err
	}
	var strays []Will
	for _, id := range all {
		if !slices.ContainsFunc(wills, func(w Will) bool { return w.Keeper == id }) {
			strays = append(strays, Will{Keeper: id})
		}
	}
	return End(strays)
}

// Remains is nil if all keepers have ended but that of this process, and else says which has
// not.
func (e *Estate) Remains() error {
	for _, w := range e.Wills {
		if w.PID == os.Getpid() {
			continue
		}
		if k, err := keeper.Find(w.Keeper); err == nil {
			k.Close()
			return fmt.Errorf("the process %d (dmxfs-keeper), which has open what the daemon %d had open that was killed, has not ended: a file that it closes hangs, or it stands still",
				w.Keeper.PID, w.PID)
		}
	}
	return nil
}
