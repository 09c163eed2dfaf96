package story

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// MarshalJSON writes an entry as the record, with member and host behind its keys.
func (e Entry) MarshalJSON() ([]byte, error) {
	b, err := e.Record.MarshalJSON()
	if err != nil {
		return nil, err
	}
	tail, err := json.Marshal(struct {
		Member string `json:"member"`
		Host   string `json:"host"`
	}{e.Member, e.Host})
	if err != nil {
		return nil, err
	}
	return append(append(b[:len(b)-1], ','), tail[1:]...), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var tail struct{ Member, Host string }
	if err := json.Unmarshal(b, &tail); err != nil {
		return err
	}
	e.Member, e.Host = tail.Member, tail.Host
	return e.Record.UnmarshalJSON(b)
}

// columns are those of a CSV file: the keys of JSON.
var columns = []string{
	"time", "epoch", "event", "member", "host", "seq", "request", "path", "class", "mode", "start", "end", "algorithm", "pid", "uid", "command",
	"wait_ms", "messages", "token", "final", "peer", "reason",
}

// CSV writes entries as lines of RFC 4180, behind one of heads. A text that a
// spreadsheet would take for a formula has an apostrophe before it: who may make a
// file may call it =HYPERLINK(…). One that begins with an apostrophe has another
// one, so that the text is what is behind the first.
type CSV struct{ w *csv.Writer }

// NewCSV begins with the heads.
func NewCSV(w io.Writer) (*CSV, error) {
	c := &CSV{csv.NewWriter(w)}
	return c, c.w.Write(columns)
}

// Flush writes what is left.
func (c *CSV) Flush() error {
	c.w.Flush()
	return c.w.Error()
}

// Write writes an entry.
func (c *CSV) Write(e *Entry) error {
	class, mode, end := "", "", ""
	if e.Mode != 0 {
		class, mode = e.Key.Class.String(), e.Mode.String()
		end = strconv.FormatInt(e.End(), 10)
	}
	return c.w.Write([]string{
		e.Time.UTC().Format(time.RFC3339Nano), fmt.Sprint(e.Epoch), e.Event.String(), e.Member, plain(e.Host), fmt.Sprint(e.Seq), fmt.Sprint(e.Request),
		plain(e.Path), class, mode, fmt.Sprint(e.Start()), end, e.Algorithm, fmt.Sprint(e.PID), fmt.Sprint(e.UID), plain(e.Command),
		strconv.FormatFloat(float64(e.Wait)/1e6, 'f', -1, 64), fmt.Sprint(e.Messages), strconv.FormatUint(uint64(e.Token), 10), strconv.FormatBool(e.Final), plain(string(e.Peer)), plain(e.Reason),
	})
}

// plain is a text that no spreadsheet takes for a formula.
func plain(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n'", rune(s[0])) {
		return "'" + s
	}
	return s
}
