package policy

import (
	"fmt"
	"testing"
)

// A file's rule is looked for when it is first used, under the engine's mutex.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{0, 3, 100} {
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			var rules []string
			for i := range n {
				rules = append(rules, fmt.Sprintf("projects/p%d/**/*.db=rcv", i))
			}
			p, err := ParseFlags("--exclusive", rules)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p.Algorithm("projects/x/some/where/else.txt")
			}
		})
	}
}
