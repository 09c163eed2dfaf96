package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/sim/baseline"
)

// paper is a run of the papers' model: nothing is kept.
func paper(a Algorithm, load Load) Config {
	return Config{Algorithm: a, Nodes: 10, Delay: 5, CS: 10, Load: load, Rate: 0.004, Duration: 5000, Requests: 50, Seed: 1}
}

func run(t *testing.T, c Config) *Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// same compares results, NaN and all.
func same(a, b *Result) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }

// each calls f for every algorithm, load and two shares of readers.
func each(t *testing.T, f func(t *testing.T, c Config)) {
	for _, a := range Algorithms() {
		for _, load := range Loads {
			for _, reads := range []float64{0, 0.6} {
				for _, keep := range []float64{0, 50, Forever} {
					c := paper(a, load)
					c.Reads, c.Keep = reads, keep
					t.Run(fmt.Sprintf("%s/%s/reads=%v/keep=%v", a.Name, load, reads, keep), func(t *testing.T) { f(t, c) })
				}
			}
		}
	}
}

// A seed gives the same figures each time, and they do not depend on whether
// messages are really encoded: no machine changes what it has sent.
func TestSeedDecides(t *testing.T) {
	long.NoRace(t)
	each(t, func(t *testing.T, c Config) {
		c.Jitter, c.Bytes = 0.5, true
		first := run(t, c)
		if first.CS == 0 || first.Bytes <= 0 && first.Messages > 0 {
			t.Errorf("nothing was measured: %+v", first)
		}
		if again := run(t, c); !same(first, again) {
			t.Errorf("seed 1 gives\n%+v\nand then\n%+v", first, again)
		}
		c.Paranoid = true
		if again := run(t, c); !same(first, again) {
			t.Errorf("messages as they are give\n%+v\nand encoded\n%+v", first, again)
		}
		c.Seed++
		if other := run(t, c); same(first, other) && c.Load != Burst {
			t.Errorf("seeds 1 and 2 both give\n%+v", first)
		}
	})
}

// Seeds with delays from zero to twice the mean: Run itself fails when two
// are in the CS, or somebody waits for ever.
func TestPromisesHold(t *testing.T) {
	each(t, func(t *testing.T, c Config) {
		c.Jitter, c.Paranoid, c.Duration, c.Requests = 1, true, 1500, 20
		for seed := range long.Pure(uint64(1), 4) {
			for _, nodes := range []int{1, 2, 3, 7, 10} {
				c.Seed, c.Nodes = seed, nodes
				if r := run(t, c); c.Load == Burst && r.CS != nodes || c.Load == Light && r.CS != c.Requests {
					t.Errorf("seed %d, %d nodes: %d completed", seed, nodes, r.CS)
				}
			}
		}
	})
}

// What the nodes ask for is the same for all algorithms.
func TestSameRequestsForAll(t *testing.T) {
	for _, load := range []Load{Poisson, Burst, Light} {
		var first string
		for _, a := range Algorithms() {
			c := paper(a, load)
			c.Reads = 0.5
			c.Duration = 20_000
			c.Rate = 0.0001 // nobody has to wait for long
			w := newWorld(&c)
			w.begin()
			asked := ""
			for {
				at, e, ok := w.agenda.next()
				if !ok || at > w.end {
					break
				}
				w.now = at
				w.happen(e)
				if e.kind == arrival {
					n := &w.nodes[e.node]
					asked += fmt.Sprintf("%v %v %v\n", at, n.id, n.mode)
				}
			}
			if first == "" {
				first = asked
			}
			if asked == "" || asked != first && load != Burst { // the order of a burst is drawn between messages
				t.Errorf("%s, %s: asked\n%s\nothers\n%s", a.Name, load, asked, first)
			}
		}
	}
}

// greedy lets everybody in at once; stubborn nobody.
type greedy struct{ baseline.Machine }

func (greedy) Acquire(t locks.Ticket, out *locks.Turn) {
	out.Done = append(out.Done, locks.Outcome{Ticket: t.ID, Granted: true})
}
func (greedy) Replace([]locks.TicketID, []locks.Part, *locks.Turn) {}
func (greedy) Expire(*locks.Turn)                                  {}

type stubborn struct{ greedy }

func (stubborn) Acquire(locks.Ticket, *locks.Turn) {}

// sameToken is alone, and grants with one token for ever.
type sameToken struct{ greedy }

func (sameToken) Acquire(t locks.Ticket, out *locks.Turn) {
	out.Done = append(out.Done, locks.Outcome{Ticket: t.ID, Granted: true, Token: 7})
}

type denies struct{ greedy }

func (denies) Acquire(t locks.Ticket, out *locks.Turn) {
	out.Done = append(out.Done, locks.Outcome{Ticket: t.ID})
}

type stranger struct{ greedy }

func (stranger) Acquire(_ locks.Ticket, out *locks.Turn) {
	out.Send = append(out.Send, locks.Envelope{To: "n999"})
}

// What breaks a promise is found.
func TestFinds(t *testing.T) {
	for _, c := range []struct {
		machine Machine
		load    Load
		nodes   int
		want    string
	}{
		{greedy{}, Burst, 2, "beside 1 that exclude"},
		{greedy{}, Poisson, 10, "beside 1 that exclude"},
		{stubborn{}, Burst, 2, "wait, and nothing is under way"},
		{stubborn{}, Light, 1, "wait, and nothing is under way"},
		{sameToken{}, Light, 2, "token"},
		{denies{}, Light, 2, "no such ticket waits"},
		{stranger{}, Light, 2, "not another member"},
	} {
		cfg := paper(Algorithm{Name: "broken", New: func(locks.Config, bool) Machine { return c.machine }}, c.load)
		cfg.Nodes = c.nodes
		_, err := Run(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T, %s: %v, want %q", c.machine, c.load, err, c.want)
		}
	}
	// Readers may be together where the algorithm says so, and only there.
	for _, shared := range []bool{true, false} {
		cfg := paper(Algorithm{Name: "readers", Shared: shared, New: func(locks.Config, bool) Machine { return greedy{} }}, Burst)
		cfg.Reads = 1
		if _, err := Run(t.Context(), cfg); (err == nil) != shared {
			t.Errorf("readers together, shared=%v: %v", shared, err)
		}
	}
}

// What can be said beforehand of a model without jitter: the papers' formulas.
func TestFormulas(t *testing.T) {
	for _, n := range long.Pure([]int{2, 5, 30}, []int{2, 5, 30, 300}) {
		f := float64(n)
		for name, want := range map[string][2]float64{
			// NME; RT when each waits for those before it, who take Tc and Tn each.
			"ricart-agrawala": {2 * (f - 1), 10 + 10 + (f-1)/2*15},
			"suzuki-kasami":   {f - 1, 10 + (f-1)/2*15},
			"liu":             {1.5*(f-1) + (f-1)/f, 10 + 5 + (f-1)/2*15},
		} {
			a, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			c := paper(a, Burst)
			c.Nodes = n
			r := run(t, c)
			if math.Abs(r.NME-want[0]) > 1e-9 || math.Abs(r.RT-want[1]) > 1e-9 || r.Sync != 5 || r.Fairness != 1 {
				t.Errorf("%s, N=%d: %+v, want NME %.3f, RT %.3f, delay 5, fairness 1", name, n, r, want[0], want[1])
			}
		}
	}
}

// A lock that one node repeats costs nothing if it is kept; given back each
// time, it is as if nobody had had it.
func TestKeeping(t *testing.T) {
	a, err := Find("rw")
	if err != nil {
		t.Fatal(err)
	}
	const n, requests = 10, 100
	for _, c := range []struct {
		keep, want float64
	}{
		{Forever, 2 * (n - 1) / float64(requests)}, // REQUEST and REPLY the first time
		{0, 3 * (n - 1)},                     // and RELEASE, each time
		{1, 3 * (n - 1) / float64(requests)}, // used again before that, but for the last
	} {
		cfg := paper(a, Light)
		cfg.Active, cfg.Keep, cfg.Requests = 1, c.keep, requests
		if r := run(t, cfg); math.Abs(r.NME-c.want) > 1e-9 {
			t.Errorf("keep %v: %.3f messages, want %.3f", c.keep, r.NME, c.want)
		}
	}
	// An expiry gives back what was not used again; the next request pays.
	cfg := paper(a, Closed)
	cfg.Active, cfg.Rate, cfg.Duration = 1, 0.01, 100_000
	cfg.Keep = 50 // the gap is 100 on the average
	some := run(t, cfg).NME
	cfg.Keep = Forever
	if none := run(t, cfg).NME; none >= 1 || some < 3 || some > 3*(n-1) {
		t.Errorf("kept for ever: %.2f messages, for 50 units: %.2f", none, some)
	}
}

func TestBadConfig(t *testing.T) {
	rw := Algorithms()[0]
	for want, spoil := range map[string]func(*Config){
		`load "heavy": must be one of poisson, closed, burst, light`: func(c *Config) { c.Load = "heavy" },
		"nodes 0: must be 1 to 1000":                                 func(c *Config) { c.Nodes = 0 },
		"nodes 1001: must be 1 to 1000":                              func(c *Config) { c.Nodes = 1001 },
		"active 11: must be 1 to the number of nodes, 10":            func(c *Config) { c.Active = 11 },
		"active -1: must be":                                         func(c *Config) { c.Active = -1 },
		"delay 0: must be above 0":                                   func(c *Config) { c.Delay = 0 },
		"delay 1e-12: must be above 0":                               func(c *Config) { c.Delay = 1e-12 },
		"delay NaN: must be above 0":                                 func(c *Config) { c.Delay = math.NaN() },
		"delay +Inf: must be above 0 and at most 1e+06":              func(c *Config) { c.Delay = math.Inf(1) },
		"cs -3: must be above 0":                                     func(c *Config) { c.CS = -3 },
		"jitter 1.5: must be 0 to 1":                                 func(c *Config) { c.Jitter = 1.5 },
		"reads -0.1: must be 0 to 1":                                 func(c *Config) { c.Reads = -0.1 },
		"reads NaN: must be 0 to 1":                                  func(c *Config) { c.Reads = math.NaN() },
		"keep -1: must be 0":                                         func(c *Config) { c.Keep = -1 },
		"rate 0: must be above 0":                                    func(c *Config) { c.Rate = 0 },
		"rate -0.5: must be above 0":                                 func(c *Config) { c.Rate = -0.5 },
		"rate NaN: must be above 0":                                  func(c *Config) { c.Rate = math.NaN() },
		"duration 0: must be above 0":                                func(c *Config) { c.Duration = 0 },
		"rate 1e+06 for a duration of 5000 at 10 nodes":              func(c *Config) { c.Rate = 1e6 },
		"requests 0: must be 1 to":                                   func(c *Config) { c.Load, c.Requests = Light, 0 },
	} {
		c := paper(rw, Poisson)
		spoil(&c)
		if _, err := Run(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s ...", err, want)
		}
	}
	if _, err := Find("lamport"); err == nil || !strings.Contains(err.Error(), `unknown algorithm "lamport" (known: rw, `) {
		t.Errorf("Find: %v", err)
	}
}

// A slow network and rare requests do not overflow virtual time.
func TestExtremes(t *testing.T) {
	for _, a := range Algorithms() {
		c := paper(a, Burst)
		c.Nodes, c.Delay, c.CS, c.Jitter = 50, maxSpan, maxSpan, 1
		run(t, c)
		c.Load, c.Rate, c.Duration = Poisson, 1e-300, maxDuration
		if r := run(t, c); r.CS != 0 || !math.IsNaN(r.RT) {
			t.Errorf("%s: %+v", a.Name, r)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, paper(Algorithms()[0], Poisson)); err != context.Canceled {
		t.Errorf("Run: %v", err)
	}
}

func TestSummarize(t *testing.T) {
	s := Summarize([]*Result{{CS: 2, Messages: 4, NME: 2, RT: 10, Sync: nothing}, {CS: 3, Messages: 12, NME: 4, RT: 10, Sync: nothing}})
	if s.CS != 5 || s.Messages != 16 || s.Runs != 2 {
		t.Errorf("sums: %+v", s)
	}
	if want := (Stat{Mean: 3, SD: math.Sqrt2, N: 2}); !reflect.DeepEqual(s.NME, want) {
		t.Errorf("NME %+v, want %+v", s.NME, want)
	}
	b, err := json.Marshal([]Stat{s.NME, s.Sync})
	if want := `[{"mean":3,"sd":1.4142135623730951},null]`; err != nil || string(b) != want {
		t.Errorf("JSON %s, %v, want %s", b, err, want)
	}
}

// The events of one instant come in the order of their tie, and then of
// scheduling.
func TestAgenda(t *testing.T) {
	var a agenda
	for _, e := range []struct {
		at  Time
		tie uint64
	}{{3, 0}, {1, 2}, {2, 9}, {1, 1}, {1, 2}, {2, 0}} {
		a.add(e.at, e.tie, event{node: len(a.events)})
	}
	var got []int
	for {
		_, e, ok := a.next()
		if !ok {
			break
		}
		got = append(got, e.node)
	}
	if want := []int{3, 1, 4, 5, 2, 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// A channel keeps the order of its messages, whatever the jitter.
func TestChannelsAreFIFO(t *testing.T) {
	c := paper(Algorithm{Name: "none", New: func(locks.Config, bool) Machine { return greedy{} }}, Poisson)
	c.Jitter = 1
	w := newWorld(&c)
	for i := range 1000 {
		w.send(&w.nodes[0], locks.Envelope{To: "n001", Msg: numbered(i)})
		if i%3 == 0 {
			w.now++
		}
	}
	for i := range 1000 {
		if _, e, _ := w.agenda.next(); e.msg != numbered(i) {
			t.Fatalf("message %v comes as number %d", e.msg, i)
		}
	}
}

type numbered int

func (numbered) Append(b []byte) []byte { return b }
func (n numbered) String() string       { return fmt.Sprint(int(n)) }

// A batch gives the results of its runs one by one, in their order, and the
// first error.
func TestBatch(t *testing.T) {
	var runs []Config
	for _, a := range Algorithms() {
		c := paper(a, Poisson)
		c.Duration = 1000
		runs = append(runs, c.Seeds(5)...)
	}
	calls := 0
	results, err := Batch(t.Context(), runs, func() { calls++ })
	if err != nil || calls != len(runs) {
		t.Fatalf("%d calls for %d runs, %v", calls, len(runs), err)
	}
	for i, c := range runs {
		if want := run(t, c); c.Seed != uint64(i%5+1) || !same(results[i], want) {
			t.Errorf("run %d with seed %d: %+v, alone %+v", i, c.Seed, results[i], want)
		}
	}
	runs[3].Rate = 0
	if _, err := Batch(t.Context(), runs, nil); err == nil || !strings.Contains(err.Error(), "rate 0") {
		t.Errorf("a bad run: %v", err)
	}
}
