package journal

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dmxfs/dmxfs/locks"
)

// recordJSON is the form of a record for programs. The order and the names of
// the keys up to reason are a contract; further ones may be added after them.
type recordJSON struct {
	Seq       uint64       `json:"seq"`
	Time      string       `json:"time"`
	Epoch     locks.Epoch  `json:"epoch"`
	Event     string       `json:"event"`
	Request   uint64       `json:"request"`
	Path      string       `json:"path"`
	Class     string       `json:"class"`
	Mode      string       `json:"mode"`
	Start     uint64       `json:"start"`
	End       int64        `json:"end"`
	Algorithm string       `json:"algorithm"`
	Node      locks.NodeID `json:"node"`
	PID       int          `json:"pid"`
	Command   string       `json:"command"`
	UID       uint32       `json:"uid"`
	WaitMS    json.Number  `json:"wait_ms"`
	Messages  int          `json:"messages"`
	Reason    string       `json:"reason"`

	Final bool         `json:"final"`
	Token locks.Token  `json:"token,omitempty"`
	Peer  locks.NodeID `json:"peer,omitempty"`
	Stamp *stampJSON   `json:"stamp,omitempty"`
	File  string       `json:"file,omitempty"`
	// PathBytes is there only when the path is not UTF-8, and so can't be
	// told by Path (base64).
	PathBytes []byte `json:"path_bytes,omitempty"`
}

type stampJSON struct {
	SN   uint64       `json:"sn"`
	Site locks.NodeID `json:"site"`
	N    uint64       `json:"n"`
}

// MarshalJSON writes r as one object without a line break, with the keys
//
//	seq time epoch event request path class mode start end algorithm node
//	pid command uid wait_ms messages reason
//
// in this order, all of them always there, and further ones after them. The
// time is UTC, RFC 3339, with nanoseconds. The range is [start, end); end is -1
// when it goes to the end of the file, wherever that will be. wait_ms has as
// many decimals as are needed. Class and mode are "" when the record is not
// about a lock. Final tells whether the record is the last one of its request.
func (r Record) MarshalJSON() ([]byte, error) {
	j := recordJSON{
		Seq:       r.Seq,
		Time:      r.Time.UTC().Format(timeForm),
		Epoch:     r.Epoch,
		Event:     r.Event.String(),
		Request:   r.Request,
		Path:      r.Path,
		Start:     r.Start(),
		End:       r.End(),
		Algorithm: r.Algorithm,
		Node:      r.Node,
		PID:       r.PID,
		Command:   r.Command,
		UID:       r.UID,
		WaitMS:    json.Number(formatMS(r.Wait)),
		Messages:  r.Messages,
		Reason:    r.Reason,
		Final:     r.ends(),
		Token:     r.Token,
		Peer:      r.Peer,
		File:      r.Key.File,
	}
	if r.Key.Class != 0 {
		j.Class = r.Key.Class.String()
	}
	if r.Mode != 0 {
		j.Mode = r.Mode.String()
	}
	if !r.Stamp.IsZero() {
		j.Stamp = &stampJSON{r.Stamp.SN, r.Stamp.Site, r.Stamp.N}
	}
	if !utf8.ValidString(r.Path) {
		j.PathBytes = []byte(r.Path)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Record) UnmarshalJSON(b []byte) error {
	var j recordJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	out := Record{
		Seq:       j.Seq,
		Epoch:     j.Epoch,
		Request:   j.Request,
		Path:      j.Path,
		Algorithm: j.Algorithm,
		Node:      j.Node,
		Peer:      j.Peer,
		PID:       j.PID,
		UID:       j.UID,
		Command:   j.Command,
		Messages:  j.Messages,
		Reason:    j.Reason,
		Token:     j.Token,
		Key:       locks.Key{File: j.File},
		Range:     locks.Range{Start: j.Start, End: uint64(j.End)},
	}
	if j.End < 0 {
		out.Range.End = locks.MaxOffset
	}
	if j.PathBytes != nil {
		out.Path = string(j.PathBytes)
	}
	if j.Stamp != nil {
		out.Stamp = locks.Stamp{SN: j.Stamp.SN, Site: j.Stamp.Site, N: j.Stamp.N}
	}
	var err error
	if out.Time, err = time.Parse(time.RFC3339Nano, j.Time); err != nil {
		return fmt.Errorf("record %d: time: %w", j.Seq, err)
	}
	if out.Event, err = ParseEvent(j.Event); err != nil {
		return fmt.Errorf("record %d: %w", j.Seq, err)
	}
	out.Final = out.Event == Released && j.Final
	if j.Class != "" {
		if out.Key.Class, err = locks.ParseClass(j.Class); err != nil {
			return fmt.Errorf("record %d: %w", j.Seq, err)
		}
	}
	if out.Mode, err = parseMode(j.Mode); err != nil {
		return fmt.Errorf("record %d: %w", j.Seq, err)
	}
	if out.Wait, err = parseMS(j.WaitMS.String()); err != nil {
		return fmt.Errorf("record %d: wait_ms: %w", j.Seq, err)
	}
	*r = out
	return nil
}

// timeForm is RFC 3339 with all nine digits, so that the texts sort as the
// times do.
const timeForm = "2006-01-02T15:04:05.000000000Z07:00"

func parseMode(s string) (locks.Mode, error) {
	switch s {
	case "":
		return 0, nil
	case locks.Read.String():
		return locks.Read, nil
	case locks.Write.String():
		return locks.Write, nil
	}
	return 0, fmt.Errorf("unknown mode %q (known: R, W)", s)
}

// formatMS is d in milliseconds, exactly.
func formatMS(d time.Duration) string {
	d = max(d, 0)
	s := strconv.FormatInt(int64(d/time.Millisecond), 10)
	if ns := int64(d % time.Millisecond); ns != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%06d", ns), "0")
	}
	return s
}

func parseMS(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	return time.ParseDuration(s + "ms")
}
