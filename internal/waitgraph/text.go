package waitgraph

import (
	"fmt"
	"strings"
	"time"
)

// Lines is the story for people, a line each, without line breaks. Names of files
// and programs are in it as they are: who prints it to a terminal quotes them.
func (s *Story) Lines() []string {
	var out []string
	for _, x := range s.Steps {
		indent := strings.Repeat("  ", x.Depth)
		out = append(out, indent+x.line(s.At))
		if x.More > 0 {
			out = append(out, fmt.Sprintf("%sand %d more, see dmxfs locks", indent, x.More))
		}
	}
	for _, e := range s.Ends {
		out = append(out, "end of the chain: "+e.Why, "  what frees it: "+e.Frees)
	}
	for _, m := range s.Silent {
		if m.State == "expelled" {
			out = append(out, fmt.Sprintf("host %s (%s) was expelled %s ago; what its programs held is free: %s", m.Host, m.ID, age(s.At, *m.Expelled), m.Error))
		} else {
			out = append(out, fmt.Sprintf("host %s (%s) is silent, so what its programs hold and wait for is not in this: %s", m.Host, m.ID, m.Error))
		}
	}
	return out
}

func (x *Step) line(at time.Time) string {
	var b strings.Builder
	if x.By != nil {
		b.WriteString(x.By.text(at))
	}
	switch {
	case x.Again:
		b.WriteString("; told of above")
	case x.Wait != nil && x.By == nil:
		fmt.Fprintf(&b, "%s waits %s", x.Wait.Name(), x.Wait.text(at))
	case x.Wait != nil:
		fmt.Fprintf(&b, "; it waits itself %s", x.Wait.text(at))
	}
	return b.String()
}

// text is what w waits for and since when.
func (w *Wait) text(at time.Time) string {
	t := fmt.Sprintf("for %s on %s since %s (%s)", w.LockText(), name(w.Path, w.File), clock(w.Since), age(at, w.Since))
	if w.InCycle {
		t += ", in a cycle"
	}
	return t
}

// text is how b is in the way.
func (b *Blocker) text(at time.Time) string {
	switch b.Kind {
	case Holds:
		t := fmt.Sprintf("for %s, which holds it for %s", b.Name(), map[string]string{"R": "reading", "W": "writing"}[b.Mode])
		if !b.Since.IsZero() {
			t += fmt.Sprintf(" since %s (%s)", clock(b.Since), age(at, b.Since))
		}
		return t + b.useText(at)
	case Ahead:
		return fmt.Sprintf("for %s, which is in front", b.Name())
	case Silent:
		return fmt.Sprintf("for %s, which does not answer", b.Name())
	}
	return fmt.Sprintf("for %s, which has not given it up yet", b.Name())
}

// clock is a moment for people, with its zone.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// age is how long ago t was.
func age(at, t time.Time) string {
	d := max(0, at.Sub(t))
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
