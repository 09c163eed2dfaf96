package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// turnsOf runs a doctor between two sides of which each turn takes so long; turn
// tells what is wrong with a turn of a side, idle is how long it has had none.
func turnsOf(t *testing.T, took, patience time.Duration, turn func(side string, idle time.Duration) *report) []Finding {
	began := time.Now()
	side := func(where string) *side {
		orders, give := io.Pipe()
		reports, answer := io.Pipe()
		go func() {
			defer answer.Close()
			last := time.Now()
			for lines := bufio.NewScanner(orders); lines.Scan(); {
				r := &report{}
				if strings.Contains(lines.Text(), `"turn"`) {
					idle := time.Since(last)
					time.Sleep(took)
					r, last = turn(where, idle), time.Now()
				}
				b, _ := json.Marshal(r)
				_, _ = answer.Write(append(b, '\n'))
			}
		}()
		t.Cleanup(func() { give.Close(); reports.Close() })
		return newSide(where, reports, give, func() {})
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errTooLong)
	defer cancel()
	d := &doctor{ctx: ctx, began: began, patience: patience, here: side("here"), there: side("there")}
	d.found(ResultOK, "before", "")
	if err := d.turns(); err != nil {
		t.Fatal(err)
	}
	d.found(ResultOK, "between", "")
	time.Sleep(patience / 4) // other checks
	if err := d.moreTurns(); err != nil {
		t.Fatal(err)
	}
	d.tellTurns()
	if left := patience - time.Since(began); left < 0 {
		t.Errorf("it took %v longer than it may", -left)
	}
	if len(d.findings) < 3 || d.findings[0].Check != "before" || d.findings[len(d.findings)-1].Check != "between" {
		t.Fatalf("%+v", d.findings)
	}
	return d.findings[1 : len(d.findings)-1]
}

func right(string, time.Duration) *report { return &report{} }

// On slow storage turns for which there is no time among the other checks are
// made after them; if that does not do, it is said how many were made.
func TestDoctorsTurnsOnSlowStorage(t *testing.T) {
	for took, want := range map[time.Duration]string{
		time.Millisecond:       "in 515 turns",
		100 * time.Millisecond: "in 515 turns",
		time.Second:            " of 500 turns in a row, as each took 1s",
		10 * time.Second:       " of 500 turns in a row, as each took 10s",
	} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				found := turnsOf(t, took, 2*time.Minute, right)
				if len(found) != 1 || found[0].Result != ResultOK || !strings.Contains(found[0].Text, want) {
					t.Errorf("%+v, want %q", found, want)
				}
			})
		})
	}
}

// What a cache of one side keeps for a second is found, whichever side it is.
func TestDoctorsTurnsFindTheSideThatCaches(t *testing.T) {
	for _, lazy := range []string{"here", "there"} {
		t.Run(lazy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turn := func(side string, idle time.Duration) *report {
					if side == lazy && idle > time.Second {
						return &report{Names: []string{wayKept}, Data: "old"}
					}
					return &report{}
				}
				found := turnsOf(t, time.Millisecond, 2*time.Minute, turn)
				if len(found) != 1 || found[0].Result != ResultBad || !strings.Contains(found[0].Text, wayKept) {
					t.Errorf("%+v", found)
				}
			})
		})
	}
}
