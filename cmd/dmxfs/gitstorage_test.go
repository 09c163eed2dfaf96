package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// gitWork are things that two hosts do in one repository at the same time: sh
// functions of HOST (0 or 1) and N, which do something N times. $dir has the
// clones of both, and links to their mounts.
//
// What git is told by its lock files, and by a compare and swap of a ref, is
// that it has to try again (and by a directory of objects that git gc has just
// removed, or a branch that git prune has listed and finds no more, in a local
// directory, too); whatever else fails is a failure.
const gitWork = `
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x

# tries COMMAND...: until it succeeds, for as long as another one is in its way.
tries() {
	n=0
	until out=$("$@" 2>&1); do
		case $out in
		*"File exists"*|*"cannot lock ref"*|*"could not lock"*|*"fetch first"*|*"non-fast-forward"*|*"failed to update ref"*|*"unable to create temporary file"*) ;;
		*"unable to parse object: refs/heads/t-"*) ;; # those are removed by branches
		*) echo "$*: $out"; exit 9;;
		esac
		n=$((n+1))
		[ $n -lt 5000 ] || { echo "$*: in vain: $out"; exit 8; }
		sleep 0.01
	done
}

# Commits in a linked work tree of its own, on a branch of its own.
worktree() {
	cd tree-$1
	for i in $(seq $2); do
		echo $i >f-$i
		tries git add f-$i
		tries git commit -qm "$1 $i"
	done
}

# Commits on one branch: one that another host was faster with is made anew.
shared() {
	cd repo
	for i in $(seq $2); do
		tries swap "$1 $i"
	done
}
swap() {
	old=$(git rev-parse --verify refs/heads/shared) || return
	new=$(git commit-tree -p $old -m "$1" "$old^{tree}") || return
	git update-ref refs/heads/shared $new $old
}

branches() {
	cd repo
	for i in $(seq $2); do
		tries git branch t-$1-$i main
		[ $((i%2)) = 1 ] || tries git branch -q -D t-$1-$i
	done
}

config() {
	cd repo
	for i in $(seq $2); do
		tries git config host$1.key$i $i
	done
}

# Packs everything again and again.
pack() {
	cd repo
	for i in $(seq $2); do
		tries git pack-refs --all
		tries git gc -q
	done
}

# Pushes from a clone beside the mount to a repository on it: to a branch of its
# own, and to one of both.
push() {
	cd $dir/clone-$1
	for i in $(seq $2); do
		git commit -q --allow-empty -m "$1 $i" || exit 9
		tries pushed $1
	done
}
pushed() {
	git push -q $dir/mount-$1/bare.git HEAD:refs/heads/main +HEAD:refs/heads/own-$1 && return
	git pull -q --rebase $dir/mount-$1/bare.git main || { echo "pull failed"; return 1; }
	echo "fetch first"
	return 1
}
`

// runGit lets two hosts work in one repository, n times each. With -storage.full
// it tells how much longer that takes than in a directory of this machine.
func runGit(t *testing.T, c *testCluster, n int) {
	needTool(t, "git")
	took := gitOn(t, c.dir, c.mounts, n)
	if !*storageFull {
		return
	}
	local := emptyCluster(t)
	m := &testMount{c: local, dir: filepath.Join(local.dir, "local")}
	makeDirs(t, local.dir, "local")
	plain := gitOn(t, local.dir, []*testMount{m, m}, n)
	t.Logf("%v; in a local directory %v", took.Round(time.Millisecond), plain.Round(time.Millisecond))
}

// gitOn lets two hosts work in a repository, and checks that all is there. The
// clones from which they push are in dir, where no other host sees them.
func gitOn(t *testing.T, dir string, hosts []*testMount, n int) (took time.Duration) {
	t.Helper()
	for i, m := range hosts { // names that the scripts know
		if err := os.Symlink(m.dir, filepath.Join(dir, fmt.Sprintf("mount-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if out, code := hosts[0].sh(gitWork + `set -e
		git init -q -b main repo
		cd repo
		git config gc.autoDetach false
		git commit -q --allow-empty -m first
		git branch shared
		for i in 0 1; do
			git worktree add -q ../tree-$i -b b-$i main
			# The other host has the mount at another path.
			echo "gitdir: ../repo/.git/worktrees/tree-$i" >../tree-$i/.git
		done
		cd ..
		git clone -q --no-hardlinks --bare repo bare.git # two names are two files to some storage
		git -C bare.git config gc.autoDetach false
		for i in 0 1; do git clone -q repo ` + dir + `/clone-$i; done`); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	type work struct {
		name string
		p    *proc
	}
	var all []work
	begin := func(host int, name string, n int) {
		all = append(all, work{fmt.Sprintf("%s on host %d", name, host),
			hosts[host].start(gitWork + fmt.Sprintf("dir=%s; %s %d %d", dir, name, host, n))})
	}
	began := time.Now()
	for i := range hosts {
		for _, name := range []string{"worktree", "shared", "branches", "config", "push"} {
			begin(i, name, n)
		}
	}
	begin(0, "pack", (n+4)/5)
	for _, w := range all {
		if out, code := w.p.wait(); code != 0 {
			t.Errorf("%s: %d %s", w.name, code, out)
		}
	}
	took = time.Since(began)
	for _, m := range hosts {
		checkGit(t, m, n)
	}
	return took
}

// checkGit looks for all that was made by runGit.
func checkGit(t *testing.T, m *testMount, n int) {
	t.Helper()
	for _, x := range []struct{ what, out string }{
		{"git rev-list --count b-0", fmt.Sprint(n + 1)},
		{"git rev-list --count b-1", fmt.Sprint(n + 1)},
		{"git rev-list --count shared", fmt.Sprint(2*n + 1)},
		{"git log --format=%s shared | sort | uniq -d", ""},
		{"git for-each-ref 'refs/heads/t-*' | wc -l", fmt.Sprint(2 * ((n + 1) / 2))},
		{"git config --get-regexp '^host[01]' | wc -l", fmt.Sprint(2 * n)},
		{"git -C ../bare.git rev-list --count main", fmt.Sprint(2*n + 1)},
		{"git -C ../bare.git log --format=%s main | sort | uniq -d", ""},
		{"git -C ../tree-0 status --short", ""},
		{"git -C ../tree-1 status --short", ""},
		{"git fsck --full --strict --no-dangling 2>&1", ""},
		{"git -C ../bare.git fsck --full --strict --no-dangling 2>&1", ""},
	} {
		out, code := m.sh(gitWork + "cd repo; " + x.what)
		if out = strings.TrimSpace(out); code != 0 || out != x.out {
			t.Errorf("on %s: %s: %d %q, want %q", m.dir, x.what, code, out, x.out)
		}
	}
}
