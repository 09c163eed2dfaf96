package journalview

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/story"
)

// Warn names in messages whose records are not among those shown.
func Warn(messages io.Writer, a *journalquery.Cluster) {
	for _, m := range a.Silent {
		if m.State == "expelled" {
			fmt.Fprintf(messages, "dmxfs: host %s (%s) was expelled, so its journal is not here: %s\n", printing.Text(m.Host), m.ID, printing.Text(m.Error))
		} else {
			fmt.Fprintf(messages, "dmxfs: host %s (%s) is silent, so its journal is not here: %s\n", printing.Text(m.Host), m.ID, printing.Text(m.Error))
		}
	}
	for _, h := range a.Cut {
		fmt.Fprintf(messages, "dmxfs: host %s has more such records than are told at once (%d, or %d MiB): the earlier ones are not here (--since, --until and --path choose)\n", printing.Text(h), journalquery.MostRecords, journalquery.MostBytes>>20)
	}
}

// Entries prints the journals of several hosts as a table.
func Entries(out, messages io.Writer, all []story.Entry) error {
	if len(all) == 0 {
		fmt.Fprintln(messages, "dmxfs: the journals have no such record")
		return nil
	}
	var rows [][]string
	for i := range all {
		e := &all[i]
		var x Row
		b, err := json.Marshal(e.Record)
		if err == nil {
			err = json.Unmarshal(b, &x)
		}
		if err != nil {
			return err
		}
		bytes, pid, wait := "-", "-", "-"
		if x.Mode != "" {
			bytes = printing.Span(x.Start, x.End)
		}
		if x.PID != 0 {
			pid = fmt.Sprint(x.PID)
		}
		if x.WaitMS > 0 {
			wait = time.Duration(x.WaitMS * 1e6).Round(10 * time.Microsecond).String()
		}
		rows = append(rows, []string{
			x.Time.Local().Format("2006-01-02 15:04:05.000"), fmt.Sprint(x.Epoch), e.Host, x.Event, fmt.Sprint(x.Request), x.Path, x.Class, x.Mode, bytes,
			pid, x.Command, wait, x.Reason,
		})
	}
	return printing.Table(out, []string{"TIME", "EPOCH", "HOST", "EVENT", "REQUEST", "PATH", "CLASS", "MODE", "BYTES", "PID", "COMMAND", "WAITED", "REASON"}, rows)
}
