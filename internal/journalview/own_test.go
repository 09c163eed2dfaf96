package journalview

import (
	"strings"
	"testing"
)

// That a question has no answer is said, but not among the records.
func TestJournalWithoutSuchRecords(t *testing.T) {
	for _, c := range []struct {
		asJSON bool
		in     string
		says   bool
	}{
		{false, "", true},
		{true, "", false},
		{false, `{"event":"note"}` + "\n", false},
	} {
		var out, msg strings.Builder
		p := NewPrinter(&out, &msg, c.asJSON)
		if err := copyAnswer(t.Context(), strings.NewReader(c.in), p, false); err != nil {
			t.Fatal(err)
		}
		if says := msg.String() == "dmxfs: the journal has no such record\n"; says != c.says || !says && msg.Len() > 0 {
			t.Errorf("%+v: %q", c, msg.String())
		}
		if (out.Len() > 0) != (c.in != "") {
			t.Errorf("%+v: %q", c, out.String())
		}
	}
}
