package printing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// Table writes rows below their heads, in columns.
func Table(w io.Writer, heads []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(heads, "\t"))
	for _, r := range rows {
		for i, c := range r {
			r[i] = Text(c)
		}
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}

// Text keeps names of files and programs from breaking a table or a
// terminal.
func Text(s string) string {
	if s == "" {
		return "-"
	}
	if strings.ContainsFunc(s, Unprintable) || !utf8.ValidString(s) {
		q := fmt.Sprintf("%q", s)
		return q[1 : len(q)-1]
	}
	return s
}

// Unprintable are the characters that terminals obey: to control them, and to
// show what follows in another order than it has.
func Unprintable(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x61c || r == 0x200e || r == 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Lines is printable for a text of several lines, which may have names
// of files and texts of other hosts in it.
func Lines(s string) string {
	if !strings.ContainsFunc(s, Unprintable) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !Unprintable(r) || r == '\n' || r == '\t':
			b.WriteRune(r)
		case r > 0xff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\x%02x`, r)
		}
	}
	return b.String()
}

// JSON writes v, indented for people.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(EscapedJSON(w))
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// EscapedJSON writes JSON to w, with nothing unprintable in it. What comes in one piece
// ends with a character.
func EscapedJSON(w io.Writer) io.Writer { return jsonWriter{w} }

// jsonWriter escapes what is unprintable in JSON, which has done so with some only:
// people look at it in a terminal, too.
type jsonWriter struct{ w io.Writer }

func (j jsonWriter) Write(b []byte) (int, error) {
	if _, err := j.w.Write(EscapeJSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// EscapeJSON is the same JSON, with nothing unprintable in it but line ends.
func EscapeJSON(b []byte) []byte {
	special := func(r rune) bool { return r >= 0x7f && Unprintable(r) }
	if !bytes.ContainsFunc(b, special) {
		return b
	}
	var out bytes.Buffer
	for _, r := range string(b) {
		if special(r) { // of the basic plane, and JSON has them in strings only
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// Ago is a time for people: how long it has been.
func Ago(t, now time.Time) string {
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

// Span is a range of bytes for people.
func Span(start uint64, end int64) string {
	switch {
	case start == 0 && end < 0:
		return "all"
	case end < 0:
		return fmt.Sprintf("%d-", start)
	}
	return fmt.Sprintf("%d-%d", start, end-1)
}
