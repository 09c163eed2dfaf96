package policy

import (
	"os"
	"regexp"
	"testing"
)

// The example that the packages install is a policy once its comments are
// rules, and none before.
func TestExamplePolicy(t *testing.T) {
	b, err := os.ReadFile("../contrib/policy.toml")
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[int]string{0: string(b), 2: regexp.MustCompile(`(?m)^#([\[a-z])`).ReplaceAllString(string(b), "$1")} {
		p, err := Parse("policy.toml", text)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Rules) != want {
			t.Errorf("%d rules, want %d", len(p.Rules), want)
		}
	}
}
