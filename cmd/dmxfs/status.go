package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
)

func newStatusCommand(s streams) *cobra.Command {
	const long = `Show how a mount is doing. The exit number is 0 if locks can be had and nothing
is wrong, 6 if not, as the problems say, and 3 if no daemon serves the mount. In
the state "waiting" it has none for now, but is to get one.`
	return show(s, "status", "Show how a mount is doing", long, "/status", func(v admin.Status) ([]string, [][]string) {
		rows := [][]string{
			{"mount", v.Mount}, {"source", v.Source}, {"state", v.State}, {"epoch", fmt.Sprint(v.Epoch)},
			{"members", fmt.Sprint(v.Members)}, {"locks held", fmt.Sprint(v.Held)}, {"requests waiting", fmt.Sprint(v.Waiting)},
			{"up", (time.Duration(v.UptimeS) * time.Second).String()}, {"process", fmt.Sprint(v.PID)}, {"version", v.Version},
			{"node", v.Self}, {"file ids", v.FileID}, {"state directory", v.StateDir},
		}
		if !v.VersionSince.IsZero() {
			rows = append(rows, []string{"this version serves for", time.Since(v.VersionSince).Round(time.Second).String()})
		}
		switch {
		case v.Delegate:
			rows = append(rows, []string{"delegation", "all other members to this node: it opens many files"})
		case v.DelegatesTo != "":
			rows = append(rows, []string{"delegation", "to " + v.DelegatesTo + ", which opens many files"})
		}
		if t := v.Takeover; t != nil {
			rows = append(rows, []string{"takeover", takeoverText(t)})
		}
		for _, p := range v.Problems {
			rows = append(rows, []string{"problem", p})
		}
		return []string{"WHAT", "VALUE"}, rows
	})
}

// takeoverText says whether another daemon could go on.
func takeoverText(t *admin.Takeover) string {
	s := fmt.Sprintf("possible, generation %d", t.Generation)
	if !t.Possible {
		s = "not possible: " + t.Why
	}
	if t.Count > 0 {
		s += fmt.Sprintf("; %d so far, the last took %d ms", t.Count, t.LastMS)
	}
	return s
}
