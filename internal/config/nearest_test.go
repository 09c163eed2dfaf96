package config

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"join", "listen", "log-level", "max-locks", "mdns"}
	for in, want := range map[string]string{"jion": "join", "lisen": "listen", "listne": "listen", "loglevel": "log-level", "max_locks": "max-locks", "bogus": "", "": "", "x": "", "join": "join"} {
		if got := Nearest(in, names); got != want {
			t.Errorf("nearest to %q: %q, want %q", in, got, want)
		}
	}
	for _, x := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"ab", "ba", 1}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}} {
		if got := distance(x.a, x.b); got != x.want {
			t.Errorf("from %q to %q: %d, want %d", x.a, x.b, got, x.want)
		}
	}
}
