package fusefs

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Several that wait for the storage at a time count when that lasts, until it has been over for
// longer; and for more than a crowd.
func TestLoad(t *testing.T) {
	type step struct {
		ticks  int
		beside uint64 // in each
		late   bool
	}
	crowd := step{crowdWindow, 0, true}
	for name, x := range map[string]struct {
		steps []step
		want  string
	}{
		"one at a time":     {[]step{{1000, 0, false}}, ""},
		"now and then two":  {[]step{{1000, parallelCalls - 1, false}}, ""},
		"a moment":          {[]step{{parallelTicks - 1, 50, false}, {1, 0, false}, {parallelTicks - 1, 50, false}}, ""},
		"many":              {[]step{{1000, 50, false}}, "3 parallel"},
		"it pauses":         {[]step{{10, 50, false}, {calmTicks - 1, 0, false}, {1, 50, false}, {calmTicks - 1, 1, false}}, "3 parallel"},
		"it is over":        {[]step{{10, 50, false}, {calmTicks + 100, 1, false}}, "3 parallel 209 usual"},
		"and begins anew":   {[]step{{4, 2, false}, {calmTicks, 0, false}, {4, 2, false}}, "3 parallel 203 usual 207 parallel"},
		"a crowd":           {[]step{crowd}, "63 crowd"},
		"a crowd, and many": {[]step{crowd, {10, 2, false}}, "63 crowd 67 parallel"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			tick, begun, beside := 0, uint64(0), uint64(0)
			l := newLoad(func(x Load) { got = append(got, fmt.Sprint(tick, " ", x)) })
			for _, s := range x.steps {
				for i := range s.ticks {
					late := time.Duration(0)
					if s.late && i > 0 {
						late = lateTick + 1
					}
					begun += crowdRequests
					beside += s.beside
					l.tick(late, begun, beside)
					tick++
				}
			}
			if s := strings.Join(got, " "); s != x.want {
				t.Errorf("told %q, want %q", s, x.want)
			}
			l.rest(begun)
			l.rest(begun)
			if l.told != UsualLoad {
				t.Errorf("%v at rest", l.told)
			}
		})
	}
}
