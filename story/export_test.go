package story

import "testing"

// No cell of text is a formula, and what is behind the first apostrophe of one that
// has it is what was written.
func TestCellsAreNoFormulas(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"": "", "a=b": "a=b", "dir/=x": "dir/=x", "=1+2": "'=1+2", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)",
		"\t=1": "'\t=1", "\r=1": "'\r=1", "\n=1": "'\n=1", "'quoted": "''quoted", "ö=": "ö=",
	} {
		if got := plain(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
