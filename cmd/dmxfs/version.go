package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// release is the version of dmxfs; that of a build has its commit as well.
const release = "0.1.0"

// commit is what a build for packages is told (-ldflags=-X main.commit=…), which
// does not look at the folder that it is made in. Others find it there.
var commit string

// versionJSON is the answer to `dmxfs version`.
type versionJSON struct {
	Version string `json:"version"` // as `dmxfs peers` shows it
	Release string `json:"release"`
	Commit  string `json:"commit"` // empty: not known
	// Modified: files were changed since the commit.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	// Protocol is the generation of what members say to each other. Nodes of two
	// generations are in no cluster together.
	Protocol int `json:"protocol"`
}

func thisVersion() versionJSON {
	v := versionJSON{Release: release, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Protocol: member.Protocol}
	if bi, ok := debug.ReadBuildInfo(); ok && commit == "" {
		for _, s := range bi.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	v.Version = release
	if len(v.Commit) >= 12 {
		v.Version += "+" + v.Commit[:12]
	}
	if v.Modified {
		v.Version += ".dirty"
	}
	return v
}

func version() string { return thisVersion().Version }

func newVersionCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version",
		Long: `Print the version of this program. A mount may be served by another one, which
was installed then: "dmxfs peers" shows those of all members.`,
		Args: usageArgs(cobra.NoArgs),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	c.RunE = func(*cobra.Command, []string) error {
		if *asJSON {
			return printJSON(s.out, thisVersion())
		}
		_, err := fmt.Fprintf(s.out, "dmxfs %s\n", version())
		return err
	}
	return c
}
