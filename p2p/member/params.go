package member

import "fmt"

// Params are the times of the protocol, in milliseconds of CLOCK_BOOTTIME, and
// the few other numbers that an installation may choose. Those in [Timing] are
// the same on all members of a cluster: they are written into every view.
type Params struct {
	Timing

	// Drift is how far the clocks of two nodes may drift apart, in millionths:
	// 10,000 is 1 %. It is an assumption. Clocks that are worse break the
	// exclusion, so it is what Validate checks Delta against.
	Drift int64
	// Tick is how often the driver gives a [Tick].
	Tick int64
	// Cap is the most that one tick counts as time that this node was awake.
	// A node that was stopped, or whose clock jumped, then suspects itself and
	// not the others. At least Tick.
	Cap int64
	// Look is how often a member looks at the storage, LookOut how often a
	// node outside of the view does.
	Look, LookOut int64
	// Retry is the pause after a storage operation that failed.
	Retry int64
	// Polite is how long (C) a newcomer that reaches no member waits for an
	// answer to its ask before it adds itself. At least two looks of a member.
	Polite int64
	// Slope and WaitMax let the side of a partition win that has more
	// members: a member that lost k of the n-1 others waits for
	// Slope*(k-1)/(n-1), at most WaitMax, before it drops them.
	Slope, WaitMax int64
	// Guard is how long before the end of its tenure a node starts no I/O
	// under a lock any more. What it started before reaches the storage ahead
	// of the next holder's if it takes less than Guard + Delta.
	Guard int64
	// Keep is how many views stay on the storage.
	Keep uint64
	// BackoffMin and BackoffMax bound the pause before a node that was
	// expelled joins again; it doubles each time and is forgotten after
	// Served of membership. A node that was told on the storage that members
	// are there, but reaches none, asks again after BackoffMax.
	BackoffMin, BackoffMax, Served int64
	// Partial is how long a newcomer goes on when some members welcome it and
	// others do not. After that a first start fails.
	Partial int64
}

// Timing is the part of the parameters that all members share. Tenure and
// LookTenure are what one member promises and another relies on, so members
// that differed in them would not be safe.
type Timing struct {
	// Heartbeat (tau) is the time between two heartbeats.
	Heartbeat int64 `json:"heartbeat_ms"`
	// Hears (R) is how long ago a peer must have heard this node to be
	// promised anything.
	Hears int64 `json:"hears_ms"`
	// Tenure (L) is how long a promise holds, from the sending of the
	// heartbeat that it answers.
	Tenure int64 `json:"tenure_ms"`
	// Delta is how much longer than Tenure a member promises nothing before
	// it drops a peer.
	Delta int64 `json:"delta_ms"`
	// LookTenure (Ls) is how long a look at the storage holds, from its start.
	LookTenure int64 `json:"look_tenure_ms"`
	// CacheMax bounds Member.Cache. The node that founds the cluster sets it,
	// the others take it from the view.
	CacheMax int64 `json:"cache_max_ms"`
}

// Default are the parameters for ordinary networks: a host that died is
// replaced after about 5 s, one that stalls for 4 s loses nothing.
func Default() Params {
	return Params{
		Timing: Timing{
			Heartbeat:  500,
			Hears:      1500, // three heartbeats: one that is lost is nothing
			Tenure:     5000,
			Delta:      250,
			LookTenure: 5000,
			CacheMax:   60_000, // the age that "unknown storage" is given
		},
		Drift:      10_000,
		Tick:       100,
		Cap:        200,
		Look:       1000,
		LookOut:    500,
		Retry:      300,
		Polite:     2000,
		Slope:      4000,
		WaitMax:    2500,
		Guard:      500,
		Keep:       256,
		BackoffMin: 500,
		BackoffMax: 2000,
		Served:     30_000,
		Partial:    30_000,
	}
}

// Fast are the parameters of --fast: a hung host is replaced after 2 to 3 s.
// The price: a stall of 1.6 s suspends all members, one of 2.1 s costs a node
// its locks, and there are two and a half times as many messages.
func Fast() Params {
	p := With(200, 2000, 0)
	p.Slope = 1000
	return p
}

// With are the parameters for another heartbeat, tenure and delta, in
// milliseconds; 0 is the default, which for delta goes with the tenure. What
// hangs on them follows. Validate tells whether they go together.
func With(heartbeat, tenure, delta int64) Params {
	p := Default()
	if heartbeat != 0 {
		p.Heartbeat, p.Hears = heartbeat, 3*heartbeat
		p.Tick = min(p.Tick, max(heartbeat/4, 1))
		p.Cap = 2 * p.Tick
	}
	if tenure != 0 {
		p.Tenure = tenure
		p.WaitMax = min(p.WaitMax, tenure/2)
		p.Slope = min(p.Slope, p.WaitMax*8/5)
		p.Guard = min(p.Guard, max(tenure/4, 1))
	}
	p.Delta = delta
	if delta == 0 {
		p.Delta = max(p.Tenure/20, p.margin(p.Tenure))
	}
	return p
}

// drift is what the clocks of two nodes can differ by while one of them counts
// d: 2 rho d / (1 - rho), rounded up.
func (p *Params) drift(d int64) int64 {
	rho := p.Drift
	return (2*rho*d + (1_000_000 - rho) - 1) / (1_000_000 - rho)
}

// rounding covers that times are whole milliseconds.
const rounding = 2

// margin is by how much a wait has to be longer than the time d that another
// node counts on its clock: the drift, and what one jump of the own clock can
// add to the waking time of a tick.
func (p *Params) margin(d int64) int64 {
	return p.drift(d) + p.Cap - p.Tick + rounding
}

// lookMargin is Delta where LookTenure is waited for.
func (p *Params) lookMargin() int64 { return max(p.Delta, p.margin(p.LookTenure)) }

// Validate reports the first rule that p breaks. It changes nothing.
func (p *Params) Validate() error {
	for _, x := range []struct {
		name string
		v    int64
	}{
		{"heartbeat", p.Heartbeat}, {"hears", p.Hears}, {"tenure", p.Tenure}, {"delta", p.Delta},
		{"look tenure", p.LookTenure}, {"tick", p.Tick}, {"cap", p.Cap}, {"look", p.Look},
		{"look while outside", p.LookOut}, {"retry", p.Retry}, {"politeness", p.Polite}, {"guard", p.Guard},
		{"smallest back-off", p.BackoffMin}, {"time of service", p.Served}, {"wait for all welcomes", p.Partial},
	} {
		if x.v <= 0 || x.v > maxDuration {
			return fmt.Errorf("%s is %d ms: it must be between 1 and %d", x.name, x.v, maxDuration)
		}
	}
	must := func(ok bool, format string, args ...any) error {
		if ok {
			return nil
		}
		return fmt.Errorf(format, args...)
	}
	for _, err := range []error{
		must(p.Drift >= 0 && p.Drift <= 100_000,
			"clock drift is %d millionths: it must be between 0 and 100,000 (10 %%)", p.Drift),
		must(p.Tick <= p.Cap,
			"cap (%d ms) must not be less than tick (%d ms), or waking time is never counted in full", p.Cap, p.Tick),
		must(2*p.Tick <= p.Heartbeat,
			"heartbeat (%d ms) must be at least two ticks (%d ms each)", p.Heartbeat, p.Tick),
		must(p.Hears >= 3*p.Heartbeat,
			"hears (%d ms) must be at least three heartbeats (%d ms each), or one that is lost stops all", p.Hears, p.Heartbeat),
		must(p.Tenure >= p.Hears+2*p.Heartbeat,
			"tenure (%d ms) must be at least hears + 2 heartbeats (%d ms), or one lost heartbeat stops all", p.Tenure, p.Hears+2*p.Heartbeat),
		must(p.LookTenure >= 3*p.Look,
			"look tenure (%d ms) must be at least three looks (%d ms each), or one slow look stops all", p.LookTenure, p.Look),
		must(p.Polite >= 2*p.Look,
			"politeness (%d ms) must be at least two looks of a member (%d ms each), or a member has no time to answer", p.Polite, p.Look),
		must(2*p.Guard <= min(p.Tenure, p.LookTenure),
			"guard (%d ms) must not be over half of the tenures (%d and %d ms), or little time is left for I/O", p.Guard, p.Tenure, p.LookTenure),
		must(p.Slope >= 0 && p.WaitMax >= 0 && p.WaitMax <= p.Tenure,
			"the wait for the larger side (slope %d, at most %d ms) must be between 0 and the tenure (%d ms)", p.Slope, p.WaitMax, p.Tenure),
		must(p.BackoffMax >= p.BackoffMin && p.BackoffMax <= maxDuration,
			"largest back-off (%d ms) must be between the smallest (%d ms) and %d", p.BackoffMax, p.BackoffMin, maxDuration),
		must(p.CacheMax >= 0 && p.CacheMax <= maxDuration,
			"largest age of listings is %d ms: it must be between 0 and %d", p.CacheMax, maxDuration),
		must(p.Keep >= 2, "%d views are kept: at least 2 are needed", p.Keep),
	} {
		if err != nil {
			return err
		}
	}
	// The one that safety rests on, last: the others make it meaningful.
	if need := p.margin(p.Tenure); p.Delta < need {
		return fmt.Errorf("delta (%d ms) must be at least %d ms: %d ms that clocks drift by in a tenure of %d ms at %d millionths, %d ms for cap - tick, %d ms of rounding",
			p.Delta, need, p.drift(p.Tenure), p.Tenure, p.Drift, p.Cap-p.Tick, rounding)
	}
	return nil
}

// maxDuration bounds every parameter, so that sums of them cannot overflow.
const maxDuration = 3600 * 1000

// same reports whether members with t and o can be in one view.
func (t Timing) same(o Timing) bool {
	t.CacheMax = o.CacheMax
	return t == o
}

func (t Timing) String() string {
	return fmt.Sprintf("heartbeat %d ms, hears %d ms, tenure %d ms, delta %d ms, look tenure %d ms",
		t.Heartbeat, t.Hears, t.Tenure, t.Delta, t.LookTenure)
}
