package web

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"

	"dmxfs/internal/snapshot"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"text": printable, "age": age, "span": span, "clock": clock, "unixms": func(t time.Time) int64 { return t.UnixMilli() },
	"lockURL": func(l *snapshot.Lock) string { return lockURL(keyOf(l)) }, "ms": ms, "join": strings.Join, "wait": wait,
	"blocker": func(b snapshot.Blocker) string {
		if b.PID == 0 {
			return b.Host
		}
		return fmt.Sprintf("%s %d on %s", b.Command, b.PID, b.Host)
	},
}

// printable is s with what cannot be seen, or turns the direction of what
// follows, written as in Go. html/template escapes the rest.
func printable(s string) string {
	if s == "" {
		return "–"
	}
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return r == unicode.ReplacementChar || r != ' ' && !unicode.IsPrint(r) }

// age is how long ago t was, for people.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return wait(now.Sub(t))
}

// wait is a time for people. The script writes it the same way.
func wait(d time.Duration) string {
	d = max(d, 0).Truncate(time.Second)
	switch h := int(d.Hours()); {
	case h >= 48:
		return fmt.Sprintf("%d d", h/24)
	case h > 0:
		return fmt.Sprintf("%d h %d min", h, int(d.Minutes())%60)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}

func ms(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(*v, 'f', 2, 64) + " ms"
}

// span is a range of bytes for people.
func span(start uint64, end int64) string {
	switch {
	case start == 0 && end < 0:
		return "all"
	case end < 0:
		return fmt.Sprintf("%d–", start)
	}
	return fmt.Sprintf("%d–%d", start, end-1)
}
