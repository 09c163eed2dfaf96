package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Times are the settings that are durations.
type Times struct {
	// ListingAge is how old a listing of a directory of the storage may be
	// that was opened anew; negative: by the type of the storage.
	ListingAge time.Duration
	// Yield is how long an open lock may be idle before it gives way; 0: it
	// never does.
	Yield time.Duration
	// YieldShared is the same where one of the two hosts only reads, and
	// YieldStream for a file that has given way before; 0: they are Yield.
	YieldShared, YieldStream time.Duration
	// Wait bounds the wait for a lock; 0: nothing does.
	Wait time.Duration
	// Hold bounds for how long a call that waits makes others wait that nothing
	// can interrupt; 0: nothing does.
	Hold time.Duration
	// CacheTime is how long the kernel may keep names and attributes that no
	// other host of the cluster changes; 0: as if others could.
	CacheTime time.Duration
	// Heartbeat, Tenure and TenureMargin are tau, L and delta of the
	// membership; 0: the default. Fast is a choice of them.
	Heartbeat, Tenure, TenureMargin time.Duration
	Fast                            bool
	// LogWaits is how long a wait is that is worth a line in the log; 0: none is.
	LogWaits time.Duration
}

func (t *Times) flags(f *pflag.FlagSet) {
	*t = Times{ListingAge: -1, Yield: fusefs.DefaultRule.Yield, YieldShared: fusefs.DefaultRule.YieldShared,
		YieldStream: fusefs.DefaultRule.YieldStream, LogWaits: 10 * time.Second, Hold: fusefs.DefaultHold}
	f.Var(Limit(&t.Yield, "never"), "yield", "how long a file that is kept open may be idle before it lets another host have it, such as 30s, or never; the next read or write takes it again")
	f.Var(Limit(&t.YieldShared, "never"), "yield-shared", "the same where one of the two hosts only reads, at most --yield; a file of which nothing was read or written yet gives way at once. With never --yield holds in all cases")
	f.Var(Limit(&t.YieldStream, "never"), "yield-stream", "the same for a file that has given way before, at most --yield-shared; with never it is as if it had not")
	f.Var(Limit(&t.Wait, "none"), "wait", "how long an open, a lock call, or a read or write that takes the file again, may wait for another host, or none for no limit; then it fails with ETIMEDOUT")
	f.Var(Limit(&t.Hold, "none"), "hold", "how long a write or truncate that waits for another host may keep rm, mv and the like of the same file waiting, or none for no limit; then truncate begins anew, and the others fail with EINTR")
	f.Var(Limit(&t.CacheTime, "off"), "cache-time", "how long the kernel may keep names and attributes while no other host changes any, such as 1s, at most 10s, or off: 10ms; changes that are made past dmxfs are seen that late. New: the same on all nodes of a cluster, and not yet the default")
	f.Var(Limit(&t.LogWaits, "never"), "log-waits", "log a wait for a lock that takes longer than this, and who holds it; or never")
	f.Var(Limit(&t.ListingAge, ""), "listing-age", "how old a listing of the shared directory may be, such as 20s: nodes wait so long before they join, or go on without another one (default by the type of the storage)")
	f.Var(Limit(&t.Tenure, byDefault), "tenure", "how long a node may go without a sign of life of another one before it grants no locks, and hardly longer before the others go on without it: the same on all nodes of a cluster (default 5s)")
	f.Var(Limit(&t.Heartbeat, byDefault), "heartbeat", "how often nodes give each other a sign of life: the same on all nodes of a cluster; at most a fifth of --tenure (default 500ms)")
	f.Var(Limit(&t.TenureMargin, byDefault), "tenure-margin", "how much longer than --tenure the others wait, for clocks that do not run alike: the same on all nodes of a cluster (default a twentieth of --tenure, and at least what a drift of 1 % needs)")
	for _, name := range []string{"tenure", "heartbeat", "tenure-margin"} {
		f.Lookup(name).DefValue = "" // the text says it better
	}
	f.BoolVar(&t.Fast, "fast", false, "--heartbeat 200ms and --tenure 2s: a host that hangs is replaced after 2 to 3 s, but a stall of 2 s costs one its locks; for quiet local networks of up to 40 nodes")
}

// HoldOption is Hold as fusefs.Options have it.
func (t *Times) HoldOption() time.Duration {
	if t.Hold == 0 {
		return -1
	}
	return t.Hold
}

// byDefault is the word for what the membership chooses itself.
const byDefault = "default"

// Params are the times of the membership. All parts take them from here.
func (t *Times) Params() (member.Params, error) {
	p := member.With(t.Heartbeat.Milliseconds(), t.Tenure.Milliseconds(), t.TenureMargin.Milliseconds())
	if t.Fast {
		if t.Heartbeat != 0 || t.Tenure != 0 || t.TenureMargin != 0 {
			return p, errors.New("--fast chooses --heartbeat, --tenure and --tenure-margin: give one or the others")
		}
		p = member.Fast()
	}
	for _, x := range []struct {
		flag string
		d    time.Duration
	}{{"heartbeat", t.Heartbeat}, {"tenure", t.Tenure}, {"tenure-margin", t.TenureMargin}} {
		if x.d%time.Millisecond != 0 {
			return p, fmt.Errorf("--%s %v: must be whole milliseconds", x.flag, x.d)
		}
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("--heartbeat, --tenure and --tenure-margin do not go together: %w", err)
	}
	return p, nil
}

type limit struct {
	d    *time.Duration
	none string
}

// Limit is the flag of a duration that has a word for none, which is 0 then. Without
// a word 0 is a value like others, and a negative one the default.
func Limit(d *time.Duration, none string) pflag.Value { return &limit{d, none} }

func (l *limit) Set(s string) error {
	if l.none != "" && s == l.none {
		*l.d = 0
		return nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil && l.none != "":
		return fmt.Errorf("%q is no time such as 10s or 5m, nor %q", s, l.none)
	case err != nil:
		return fmt.Errorf("%q is no time such as 10s or 5m", s)
	case d < 0:
		return errors.New("must not be negative")
	case d == 0 && l.none != "":
		return fmt.Errorf("must be more than 0, or %q", l.none)
	}
	*l.d = d
	return nil
}

func (l *limit) String() string {
	switch {
	case l.d == nil || *l.d < 0:
		return ""
	case *l.d == 0 && l.none != "":
		return l.none
	}
	return l.d.String()
}

func (l *limit) Type() string { return "duration" }

// OpenRule is what the options say of open(2).
func (t *Times) OpenRule() fusefs.Rule {
	return fusefs.Rule{Open: true, Yield: t.Yield, YieldShared: t.YieldShared, YieldStream: t.YieldStream, Wait: t.Wait}
}
