package web

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/snapshot"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"text": snapshot.Printable, "age": age, "span": snapshot.Span, "clock": clock, "unixms": func(t time.Time) int64 { return t.UnixMilli() },
	"lockURL": func(l *snapshot.Lock) string { return lockURL(keyOf(l)) }, "ms": ms, "pattern": pattern, "join": strings.Join, "wait": snapshot.Ago,
	"blocker": func(b snapshot.Blocker) string {
		if b.PID == 0 {
			return b.Host
		}
		return fmt.Sprintf("%s %d on %s", b.Command, b.PID, b.Host)
	},
}

// age is how long ago t was, for people.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return snapshot.Ago(now.Sub(t))
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
