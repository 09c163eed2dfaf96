package version

import (
	"runtime"
	"runtime/debug"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// release is the version of dmxfs; that of a build has its commit as well.
const release = "0.1.0"

// commit is what a build for packages is told (-ldflags=-X …/internal/version.commit=…), which
// does not look at the folder that it is made in. Others find it there.
var commit string

// Info is the answer to `dmxfs version`.
type Info struct {
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

// This is what the program that runs is.
func This() Info {
	build, _ := debug.ReadBuildInfo()
	return of(commit, build)
}

// of is a program whose build was told a commit, or else knows one by itself; build may be
// nil.
func of(commit string, build *debug.BuildInfo) Info {
	v := Info{Release: release, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Protocol: member.Protocol}
	if build != nil && commit == "" {
		for _, s := range build.Settings {
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

// String is its version in a word, as other members and people are told it.
func String() string { return This().Version }
