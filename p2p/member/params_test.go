package member_test

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

func TestParamsPresetsAreValid(t *testing.T) {
	for name, p := range map[string]member.Params{"default": member.Default(), "fast": member.Fast()} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each rule of Validate, broken alone, must be named.
func TestParamsRules(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(p *member.Params)
	}{
		{"heartbeat is 0", func(p *member.Params) { p.Heartbeat = 0 }},
		{"tenure is", func(p *member.Params) { p.Tenure = 1 << 40 }},
		{"guard is", func(p *member.Params) { p.Guard = -1 }},
		{"clock drift", func(p *member.Params) { p.Drift = 100_001 }},
		{"cap (99 ms)", func(p *member.Params) { p.Cap = 99 }},
		{"at least two ticks", func(p *member.Params) { p.Tick, p.Cap = 260, 260 }},
		{"three heartbeats", func(p *member.Params) { p.Hears = 1499 }},
		{"hears + 2 heartbeats", func(p *member.Params) { p.Tenure = 2499 }},
		{"three looks", func(p *member.Params) { p.LookTenure = 2999 }},
		{"two looks of a member", func(p *member.Params) { p.Polite = 1999 }},
		{"half of the tenures", func(p *member.Params) { p.Guard = 2501 }},
		{"larger side", func(p *member.Params) { p.WaitMax = 5001 }},
		{"largest back-off", func(p *member.Params) { p.BackoffMax = 499 }},
		{"largest age", func(p *member.Params) { p.CacheMax = -1 }},
		{"views are kept", func(p *member.Params) { p.Keep = 1 }},
		{"delta (202 ms) must be at least 204 ms", func(p *member.Params) { p.Delta = 202 }},
		{"delta (250 ms) must be at least", func(p *member.Params) { p.Cap = 600 }},
		{"delta (250 ms) must be at least", func(p *member.Params) { p.Drift = 20_000 }},
	} {
		p := member.Default()
		c.change(&p)
		before := p
		err := p.Validate()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want an error with %q, got %v", c.want, err)
		}
		if p != before {
			t.Errorf("%s: Validate changed something", c.want)
		}
	}
}

// The bound of delta: 2 rho L / (1 - rho), cap - tick, and the rounding.
func TestDeltaBound(t *testing.T) {
	p := member.Default() // 1 %: 2 * 0.01 * 5000 / 0.99 = 101.01
	p.Delta = 102 + 100 + 2
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	p.Delta--
	if err := p.Validate(); err == nil {
		t.Error("a delta that is too small is allowed")
	}
}

// What is chosen on the command line is safe, or refused.
func TestParamsWith(t *testing.T) {
	if p := member.With(0, 0, 0); p != member.Default() {
		t.Errorf("nothing chosen: %+v", p)
	}
	if p := member.With(500, 5000, 250); p != member.Default() {
		t.Errorf("the defaults chosen: %+v", p)
	}
	for _, c := range []struct {
		heartbeat, tenure, delta int64
		want                     string // empty: valid
	}{
		{0, 30_000, 0, ""}, {0, 600_000, 0, ""}, {0, 2500, 0, ""}, {100, 1000, 0, ""}, {8, 40, 0, ""}, {2000, 10_000, 0, ""}, {0, 0, 1000, ""},
		{0, 2499, 0, "hears + 2 heartbeats"}, {1, 1000, 0, "two ticks"}, {0, 0, 203, "delta (203 ms) must be at least 204 ms"},
		{-5, 0, 0, "heartbeat is"}, {0, -5, 0, "tenure is"}, {0, 0, -5, "delta is"}, {1 << 40, 0, 0, "heartbeat is"}, {0, 1 << 62, 0, "tenure is"},
	} {
		p := member.With(c.heartbeat, c.tenure, c.delta)
		switch err := p.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
}
