package journalview

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dmxfs/dmxfs/internal/printing"
)

// Printer prints records as a table or as they are.
type Printer struct {
	w     io.Writer
	err   io.Writer          // for messages
	tw    *tabwriter.Writer  // nil for JSON
	sink  func([]byte) error // takes the records instead, if not nil
	began time.Time          // of the rows that wait to be aligned
	rows  int
}

// NewPrinter prints to out, as a table or as JSON lines, and what is to be said beside that
// to messages.
func NewPrinter(out, messages io.Writer, asJSON bool) *Printer {
	p := &Printer{w: out, err: messages, began: time.Now()}
	if !asJSON {
		p.tw = tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	}
	return p
}

// NewSink is a printer that prints nothing: sink takes the records, as JSON.
func NewSink(messages io.Writer, sink func([]byte) error) *Printer {
	return &Printer{err: messages, sink: sink}
}

// Row is what the table shows of a record.
type Row struct {
	Seq                                                              uint64
	Time                                                             time.Time
	Epoch                                                            uint64
	Event, Path, Class, Algorithm, Mode, Node, Command, Reason, Peer string
	Request                                                          uint64
	Start                                                            uint64
	End                                                              int64
	PID                                                              int
	WaitMS                                                           float64 `json:"wait_ms"`
}

// align is how many rows have their columns in common.
const align = 64

// Line takes a record, as JSON.
func (p *Printer) Line(b []byte) error {
	if p.sink != nil {
		return p.sink(b)
	}
	if p.tw == nil {
		b = printing.EscapeJSON(b)
		_, err := p.w.Write(append(b[:len(b):len(b)], '\n'))
		return err
	}
	var r Row
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if p.rows == 0 {
		fmt.Fprintln(p.tw, "TIME\tEPOCH\tEVENT\tREQUEST\tPATH\tCLASS\tALGORITHM\tMODE\tBYTES\tPID\tCOMMAND\tWAITED\tREASON")
	}
	req, bytes, pid, wait := "-", "-", "-", "-"
	if r.Request != 0 {
		req = fmt.Sprint(r.Request)
	}
	if r.Mode != "" {
		bytes = printing.Span(r.Start, r.End)
	}
	if r.PID != 0 {
		pid = fmt.Sprint(r.PID)
	}
	if r.WaitMS > 0 {
		wait = time.Duration(r.WaitMS * 1e6).Round(10 * time.Microsecond).String()
	}
	if r.Peer != "" {
		r.Reason += " [" + r.Peer + "]"
	}
	fmt.Fprintf(p.tw, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Time.Local().Format("2006-01-02 15:04:05.000"), r.Epoch,
		r.Event, req, printing.Text(r.Path), printing.Text(r.Class), printing.Text(r.Algorithm), printing.Text(r.Mode), bytes, pid, printing.Text(r.Command), wait, printing.Text(r.Reason))
	p.rows++
	if p.rows%align == 0 || time.Since(p.began) > time.Second {
		p.began = time.Now()
		return p.tw.Flush()
	}
	return nil
}

// end flushes what is printed, and says so if that is nothing: a path that is
// misspelt looks like one that nobody has locked.
func (p *Printer) end() error {
	if p.tw != nil && p.rows == 0 {
		fmt.Fprintln(p.err, "dmxfs: the journal has no such record")
	}
	return p.flush()
}

func (p *Printer) flush() error {
	if p.tw == nil {
		return nil
	}
	return p.tw.Flush()
}
