package doctor

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// A host or storage with a wrong clock is told of, with what depends on it.
func TestDoctorTellsOfWrongClocks(t *testing.T) {
	t.Parallel()
	side := func(where string, by time.Duration) *side {
		orders, give := io.Pipe()
		reports, answer := io.Pipe()
		go func() {
			defer answer.Close()
			for lines := bufio.NewScanner(orders); lines.Scan(); {
				b, _ := json.Marshal(report{Time: time.Now().Add(by).UnixNano()})
				_, _ = answer.Write(append(b, '\n'))
			}
		}()
		t.Cleanup(func() { give.Close(); reports.Close() })
		return newSide(where, reports, give, func() {})
	}
	const wrong = time.Hour + 30*time.Minute + 30*time.Second // the half minute is for a slow test
	for _, x := range []struct {
		there, storage time.Duration
		result, says   string
	}{
		{0, 0, ResultOK, "differs by"},
		{wrong, 0, ResultNote, "the other side's clock differs by 1h30m"},
		{-wrong, 0, ResultNote, "the other side's clock differs by -1h30m"},
		{0, -wrong, ResultNote, "the storage's by -1h30m"},
	} {
		d := &doctor{ctx: t.Context(), here: side("here", x.storage), there: side("there", x.there)}
		if err := d.greet(); err != nil || len(d.findings) != 1 {
			t.Fatalf("%v %+v", err, d.findings)
		}
		f := d.findings[0]
		if f.Result != x.result || !strings.Contains(f.Text, x.says) || (x.result == ResultNote) != strings.Contains(f.Text, "NTP") {
			t.Errorf("clocks wrong by %v there, %v at the storage: %s %q, want %s %q", x.there, x.storage, f.Result, f.Text, x.result, x.says)
		}
	}
}
