package member_test

import (
	"testing"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// A host is refused since it tells files apart by something else. When the
// cluster is that of one host alone, that host may change it; then the other
// one can join, and was refused for good reason before.
func TestRefusedBeforeAChange(t *testing.T) {
	byInode := func(c *member.Config) { c.FileID, c.TakesPath = "inode 1", false }
	byPath := func(c *member.Config) { c.FileID, c.TakesPath = member.FileIDPath, false }
	tell(t, 5, options{}, func(s *scene) {
		b := s.startOn("b", s.newHost(), byInode)
		s.until(5000, "a member", b.granting)
		a := s.startOn("a", s.newHost(), byPath)
		s.until(5000, "a refusal", func() bool { return a.end != nil })
		s.expect(a.end.Code == member.EndFileID, "file IDs as the reason: %v", a.end)
		b.kill()
		b = s.startOn("b", b.host, byPath)
		s.until(20_000, "it to come back", b.granting)
		s.expect(s.check.top.FileID == member.FileIDPath, "what it tells files apart by now: %s", s.check.top.FileID)
		s.checkEnd(a)
		a = s.startOn("a", a.host, byPath)
		s.until(20_000, "both to be members", s.settled)
	})
}
