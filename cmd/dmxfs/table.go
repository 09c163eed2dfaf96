package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// printTable writes rows below their heads, in columns.
func printTable(w io.Writer, heads []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(heads, "\t"))
	for _, r := range rows {
		for i, c := range r {
			r[i] = printable(c)
		}
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}

// printable keeps names of files and programs from breaking a table or a
// terminal.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	if strings.ContainsFunc(s, unprintable) || !utf8.ValidString(s) {
		q := fmt.Sprintf("%q", s)
		return q[1 : len(q)-1]
	}
	return s
}

// unprintable are the characters that terminals obey: to control them, and to
// show what follows in another order than it has.
func unprintable(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// printableLines is printable for a text of several lines, which may have names
// of files and texts of other hosts in it.
func printableLines(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) && r != '\n' && r != '\t' {
			if r > 0xff {
				fmt.Fprintf(&b, `\u%04x`, r)
				continue
			}
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// printJSON writes v, indented for people.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// ago is a time for people: how long it has been.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "-"
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// span is a range of bytes for people.
func span(start uint64, end int64) string {
	switch {
	case start == 0 && end < 0:
		return "all"
	case end < 0:
		return fmt.Sprintf("%d-", start)
	}
	return fmt.Sprintf("%d-%d", start, end-1)
}
