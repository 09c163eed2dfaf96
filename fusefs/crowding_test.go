package fusefs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A crowd begins where many ticks are late and there are many requests, and is over when
// there have been few for some time.
func TestCrowding(t *testing.T) {
	type step struct {
		windows, late int // late ticks of each window
		requests      uint64
	}
	const many, few = crowdRequests, crowdRequests - 1
	for name, x := range map[string]struct {
		steps []step
		want  string
	}{
		"nothing is late":                {[]step{{20, 0, many}}, ""},
		"some are late":                  {[]step{{20, crowdWindow/2 - 1, many}}, ""},
		"half are late":                  {[]step{{1, crowdWindow / 2, many}}, "0 on"},
		"all but the first are late":     {[]step{{1, crowdWindow - 1, many}}, "0 on"},
		"all are, by the clock":          {[]step{{20, crowdWindow, many}}, ""},
		"the mount is nearly idle":       {[]step{{200, crowdWindow - 1, few}}, ""},
		"it helps, and the work goes on": {[]step{{1, crowdWindow / 2, many}, {50, 0, many}}, "0 on"},
		"the work is over":               {[]step{{1, crowdWindow / 2, many}, {calmWindows, 0, few}}, "0 on 8 off"},
		"less, and more again":           {[]step{{1, crowdWindow / 2, many}, {calmWindows - 1, 0, 0}, {1, 0, many}, {calmWindows - 1, 0, 0}}, "0 on"},
		"two crowds":                     {[]step{{1, crowdWindow / 2, many}, {calmWindows, 0, 0}, {1, crowdWindow / 2, many}}, "0 on 8 off 9 on"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			window := 0
			c := crowding{tell: func(on bool) { got = append(got, fmt.Sprint(window, map[bool]string{true: " on", false: " off"}[on])) }}
			begun := uint64(0)
			for _, s := range x.steps {
				for range s.windows {
					for i := range crowdWindow {
						late := time.Millisecond
						if i < s.late {
							late += lateTick + 1
						}
						if i == crowdWindow-1 {
							begun += s.requests
						}
						c.tick(late, begun)
					}
					window++
				}
			}
			if s := strings.Join(got, " "); s != x.want {
				t.Errorf("told %q, want %q", s, x.want)
			}
		})
	}
}

// Where nothing comes any more it is over at once, and an unfinished window does not count.
func TestNoCrowdAtRest(t *testing.T) {
	got, begun := "", uint64(0)
	c := crowding{tell: func(on bool) { got += fmt.Sprint(on, " ") }}
	ticks := func(n int) {
		for i := range n {
			begun += crowdRequests
			c.tick(time.Duration(min(i, 1))*time.Millisecond, begun)
		}
	}
	ticks(crowdWindow - 1)
	c.rest(begun)
	ticks(crowdWindow - 1)
	if got != "" {
		t.Fatalf("told %q after parts of windows", got)
	}
	ticks(1)
	c.rest(begun)
	c.rest(begun)
	if got != "true false " {
		t.Errorf("told %q", got)
	}
}
