package sim

import (
	"fmt"
	"math"
	"strings"
)

// Load is the pattern in which nodes ask.
type Load string

const (
	// Poisson: requests arrive at each node with exponential gaps, whether
	// the earlier ones have been served or not.
	Poisson Load = "poisson"
	// Closed: as Poisson, but the gap begins when the node's CS has ended.
	Closed Load = "closed"
	// Burst: each node asks once, all at the beginning.
	Burst Load = "burst"
	// Light: one request after the other, each of a node that is drawn, and
	// each when all is quiet.
	Light Load = "light"
)

// Loads are all of them.
var Loads = []Load{Poisson, Closed, Burst, Light}

// MaxNodes bounds a simulation: it needs memory for each pair.
const MaxNodes = 1000

// Forever is the Keep of a node that gives back only what it is asked for.
var Forever = math.Inf(1)

// maxRequests bounds the work of one run, and its memory.
const maxRequests = 1e7

// Config is one run. Times are in units that mean nothing else.
type Config struct {
	Algorithm Algorithm
	Nodes     int // 1 to MaxNodes
	// Active is how many of the nodes ask: the first ones; 0 is all.
	Active int
	Delay  float64 // of a message, Tn; above 0
	CS     float64 // how long a CS takes, Tc; above 0
	// Jitter makes each delay and each CS uniform within that share of the
	// mean, on both sides: 0 to 1. Channels stay FIFO.
	Jitter float64
	Load   Load
	Rate   float64 // Poisson, Closed: requests per node and unit of time; above 0
	// Duration: Poisson and Closed end then; what is not completed is not
	// counted. Above 0.
	Duration float64
	Requests int     // Light: how many; above 0
	Reads    float64 // the share of requests that read, 0 to 1
	// Keep is how long a node that has left the CS keeps what it could enter
	// again with: 0 is not at all, as in the papers, Forever until somebody
	// asks. The baselines have nothing to keep, or keep it always (a token).
	Keep float64
	Seed uint64
	// Bytes: measure how long messages are, too.
	Bytes bool
	// Paranoid: encode and decode each message on its way, and ask each
	// machine for its invariants after each turn. For tests; slow.
	Paranoid bool
}

// Check returns an error that names the field and its value if c makes no
// sense.
func (c *Config) Check() error {
	loads := make([]string, len(Loads))
	known := false
	for i, l := range Loads {
		loads[i] = string(l)
		known = known || l == c.Load
	}
	timed := c.Load == Poisson || c.Load == Closed
	switch {
	case !known:
		return fmt.Errorf("load %q: must be one of %s", c.Load, strings.Join(loads, ", "))
	case c.Nodes < 1 || c.Nodes > MaxNodes:
		return fmt.Errorf("nodes %d: must be 1 to %d", c.Nodes, MaxNodes)
	case c.Active < 0 || c.Active > c.Nodes:
		return fmt.Errorf("active %d: must be 1 to the number of nodes, %d, or 0 for all", c.Active, c.Nodes)
	case !isTime(c.Delay, maxSpan):
		return fmt.Errorf("delay %v: must be above 0 and at most %g", c.Delay, float64(maxSpan))
	case !isTime(c.CS, maxSpan):
		return fmt.Errorf("cs %v: must be above 0 and at most %g", c.CS, float64(maxSpan))
	case !isShare(c.Jitter):
		return fmt.Errorf("jitter %v: must be 0 to 1", c.Jitter)
	case !isShare(c.Reads):
		return fmt.Errorf("reads %v: must be 0 to 1", c.Reads)
	case !(c.Keep == 0 || math.IsInf(c.Keep, 1) || isTime(c.Keep, maxDuration)):
		return fmt.Errorf("keep %v: must be 0, at most %g, or forever", c.Keep, float64(maxDuration))
	case timed && !(c.Rate > 0 && !math.IsInf(c.Rate, 1)):
		return fmt.Errorf("rate %v: must be above 0", c.Rate)
	case timed && !isTime(c.Duration, maxDuration):
		return fmt.Errorf("duration %v: must be above 0 and at most %g", c.Duration, float64(maxDuration))
	case timed && c.Rate*c.Duration*float64(c.Nodes) > maxRequests:
		return fmt.Errorf("rate %v for a duration of %v at %d nodes: that makes %.3g requests, more than %g",
			c.Rate, c.Duration, c.Nodes, c.Rate*c.Duration*float64(c.Nodes), float64(maxRequests))
	case c.Load == Light && (c.Requests < 1 || c.Requests > maxRequests):
		return fmt.Errorf("requests %d: must be 1 to %d", c.Requests, int(maxRequests))
	}
	return nil
}

// isTime reports whether f is a span above 0, also when it is rounded.
func isTime(f, most float64) bool { return f > 0 && f <= most && fromUnits(f) > 0 }

func isShare(f float64) bool { return f >= 0 && f <= 1 }

// active is the number of nodes that ask.
func (c *Config) active() int {
	if c.Active == 0 {
		return c.Nodes
	}
	return c.Active
}
