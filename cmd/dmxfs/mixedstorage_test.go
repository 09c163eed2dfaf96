package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// mixedKind is sshfs with other caches on each host.
func mixedKind() clientKind {
	n := 0
	return clientKind{name: "sshfs, mixed", start: func(t testing.TB, source, mountpoint string) {
		options := []string{"", ",cache=yes,kernel_cache", ",dir_cache=no"}[n%3]
		n++
		startSSHFSWith(t, source, mountpoint, options)
	}}
}

// Three hosts, each with a client of its own that caches otherwise than those of
// the others, run programs that change one file in different ways.
func TestMixedClientsOfRealStorage(t *testing.T) {
	needTool(t, "sqlite3")
	if !*storageFull {
		t.Skip("takes minutes: see make storage")
	}
	patienceOfTests = 15 * time.Minute
	c := newClientCluster(t, mixedKind(), 3, "--listing-age=0s")
	part(t, "appends", func(t *testing.T) { runMixedAppends(t, c, 100) })
	part(t, "locks by name", func(t *testing.T) { runLocksByName(t, c, 30) })
	part(t, "SQLite", func(t *testing.T) { runMixedSQLite(t, c, 30) })
}

// runMixedAppends lets the programs of each host find the end in another way.
func runMixedAppends(t *testing.T, c *testCluster, n int) {
	for i, locked := range []string{"flock kept self", "fcntl anew self", "ofd kept lockfile"} {
		part(t, locked, func(t *testing.T) {
			name := "mixed-" + strconv.Itoa(i)
			write(t, c.mounts[0].path(name), "")
			var ps []*proc
			for k, m := range c.mounts {
				how := []string{"append", "fstat", "stat"}[(i+k)%3]
				for j := range 2 {
					args := append(append([]string{how}, strings.Fields(locked)...), name, fmt.Sprintf("%c%d", 'a'+k, j), strconv.Itoa(n))
					ps = append(ps, m.helper("update", args...))
				}
			}
			for _, p := range ps {
				if out, code := p.wait(); code != 0 {
					t.Errorf("exit code %d: %s", code, out)
				}
			}
			for _, m := range c.mounts {
				if err := checkAppended(read(t, m.path(name)), len(ps), n); err != nil {
					t.Errorf("%s: %v", m.dir, err)
				}
			}
		})
	}
}

// runLocksByName counts as git does: who makes NAME.lock reads NAME, writes the
// next one to NAME.lock, and renames that to NAME.
func runLocksByName(t *testing.T, c *testCluster, n int) {
	write(t, c.mounts[0].path("named"), "0\n")
	count := fmt.Sprintf(`for i in $(seq %d); do
		until (set -C; : >named.lock) 2>/dev/null; do :; done
		was=$(cat named) && echo $((was + 1)) >named.lock && mv named.lock named || exit 1
	done`, n)
	var ps []*proc
	for _, m := range c.mounts {
		ps = append(ps, m.start(count))
	}
	for _, p := range ps {
		if out, code := p.wait(); code != 0 || out != "" {
			t.Errorf("%d %s", code, out)
		}
	}
	for _, m := range c.mounts {
		if got, want := read(t, m.path("named")), fmt.Sprintln(n*len(c.mounts)); got != want {
			t.Errorf("%s says %q, want %q", m.dir, got, want)
		}
	}
}

// runMixedSQLite adds one number to others from shells, and reads beside it.
func runMixedSQLite(t *testing.T, c *testCluster, n int) {
	const sqlite = "sqlite3 -cmd '.timeout 60000' mixed.db "
	if out, code := c.mounts[0].sh(sqlite + "'create table t(x); insert into t values(0)'"); code != 0 {
		t.Fatal(out)
	}
	var ps []*proc
	for _, m := range c.mounts {
		ps = append(ps, m.start(fmt.Sprintf(`for i in $(seq %d); do %s 'update t set x = x + 1' && %s 'select x from t' >/dev/null || exit 1; done`, n, sqlite, sqlite)))
	}
	for _, p := range ps {
		if out, code := p.wait(); code != 0 || out != "" {
			t.Errorf("%d %s", code, out)
		}
	}
	for _, m := range c.mounts {
		if out, _ := m.sh(sqlite + "'select x from t; pragma integrity_check'"); out != fmt.Sprintf("%d\nok\n", n*len(c.mounts)) {
			t.Errorf("%s: %q", m.dir, out)
		}
	}
}
