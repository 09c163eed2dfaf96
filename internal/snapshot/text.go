package snapshot

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Printable is s with what cannot be seen, or turns the direction of what
// follows, written as in Go. That is not enough for HTML.
func Printable(s string) string {
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

// Ago is a time for people. The page's script writes it the same way.
func Ago(d time.Duration) string {
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

// Span is a range of bytes for people.
func Span(start uint64, end int64) string {
	switch {
	case start == 0 && end < 0:
		return "all"
	case end < 0:
		return fmt.Sprintf("%d–", start)
	}
	return fmt.Sprintf("%d–%d", start, end-1)
}
