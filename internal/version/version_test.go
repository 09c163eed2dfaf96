package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// A version has twelve digits of the commit, whoever tells it: the build for packages, or
// Go. Without a commit it is the release.
func TestOf(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	vcs := func(revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}}}
	}
	for _, x := range []struct {
		what     string
		told     string
		build    *debug.BuildInfo
		version  string
		commit   string
		modified bool
	}{
		{what: "nothing is known", version: release},
		{what: "no repository", build: &debug.BuildInfo{}, version: release},
		{what: "Go knows it", build: vcs(hash, "false"), version: release + "+0123456789ab", commit: hash},
		{what: "with changes", build: vcs(hash, "true"), version: release + "+0123456789ab.dirty", commit: hash, modified: true},
		{what: "of packages", told: hash, version: release + "+0123456789ab", commit: hash},
		{what: "of packages, in a folder that is another one", told: hash, build: vcs("f"+hash[1:], "true"), version: release + "+0123456789ab", commit: hash},
		{what: "an abbreviation", told: "0123", version: release, commit: "0123"},
	} {
		v := of(x.told, x.build)
		if v.Version != x.version || v.Commit != x.commit || v.Modified != x.modified {
			t.Errorf("%s: %+v", x.what, v)
		}
		if v.Release != release || v.Protocol != member.Protocol || v.Go != runtime.Version() || v.OS != "linux" {
			t.Errorf("%s: %+v", x.what, v)
		}
	}
}

// All are told the same.
func TestString(t *testing.T) {
	if This().Version != String() || String() == "" {
		t.Errorf("%q, and %q", This().Version, String())
	}
}
