package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mostLeft is much longer than sqlite3 sleeps before it tries again.
const mostLeft = 5 * time.Second

// inserts has one sqlite3 make some transactions: each adds a row, and one to a number. The
// test is told of those that were made, and of those that may have been.
//
// sqlite3 waits by trying, and is not fair: where a transaction takes seconds one host made 39 of 44
// in two minutes, and the other one seemed to hang. So each leaves the database to the others for as
// long as it took.
func (w *outliver) inserts() func() error {
	n := 0
	return func() error {
		defer func(began time.Time) { <-time.After(min(time.Since(began), mostLeft)) }(time.Now())
		mode := []string{"delete", "truncate", "persist"}[w.r.IntN(3)]
		script := fmt.Sprintf(".bail on\n.timeout 60000\npragma journal_mode=%s;\n", mode)
		var ids []string
		for range 1 + w.r.IntN(3) {
			n++
			id := fmt.Sprintf("%s-%d", w.who, n)
			ids = append(ids, id)
			begin := []string{"begin immediate", "begin exclusive"}[w.r.IntN(2)]
			script += fmt.Sprintf("%s; update n set n = n+1; insert into t values('%s'); commit; select 'done %s';\n", begin, id, id)
		}
		cmd := exec.Command("sqlite3", "-batch", filepath.Join(w.dir, "t.db"))
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		for _, id := range ids {
			if bytes.Contains(out, []byte("done "+id+"\n")) {
				fmt.Fprintf(w.log, "Q %s\n", id)
				continue
			}
			if err == nil {
				return fmt.Errorf("sqlite3 says nothing of %s: %s", id, out)
			}
			fmt.Fprintf(w.log, "M %s\n", id) // it may have been made, those after it not
			break
		}
		if err == nil {
			return nil
		}
		if text := string(out); strings.Contains(text, "disk I/O error") || strings.Contains(text, "unable to open database file") {
			w.doubts(unix.EIO, "sqlite3", strings.TrimSpace(text))
			return nil
		}
		return fmt.Errorf("sqlite3: %w: %s", err, out)
	}
}

// commits makes one commit to a repository, under a lock.
func (w *outliver) commits() func() error {
	g, err := w.guard(w.kind)
	l := &lockedFile{kind: "flock", dir: w.dir, file: "anything", kept: true, lock: -1, fd: -1}
	repo := filepath.Join(w.dir, "repo")
	return func() error {
		if err != nil {
			return err
		}
		return l.with(func() error {
			return g.with(func() error {
				return g.update(func(truth []byte) ([]byte, error) {
					subject := fmt.Sprintf("%s %d", w.who, w.state.steps.Load())
					if err := w.commit(repo, subject, string(truth)); err != nil {
						return nil, err
					}
					return []byte(subject), nil
				})
			})
		})
	}
}

const gitEnds = "GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x"

// git runs git in a repository. An error that may be of a change whose outcome is not
// known is EIO.
func (w *outliver) git(repo string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), strings.Fields(gitEnds)...)
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "Input/output error") {
		return "", fmt.Errorf("git %s: %w: %s", args[0], unix.EIO, out)
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// commit makes a commit after the one whose subject is before.
func (w *outliver) commit(repo, subject, before string) error {
	if last, err := w.git(repo, "log", "-1", "--format=%s"); err != nil || last != before {
		return fmt.Errorf("LOST COMMIT: the last one is %q, want %q: %w", last, before, err)
	}
	file := fmt.Sprintf("f-%d", w.r.IntN(5))
	if err := os.WriteFile(filepath.Join(repo, file), []byte(subject+"\n"), 0o644); err != nil {
		return err
	}
	for {
		_, err := w.git(repo, "add", file)
		if err == nil {
			_, err = w.git(repo, "commit", "-qm", subject)
		}
		if err == nil {
			return nil
		}
		if !w.doubts(err, "git", strings.ReplaceAll(err.Error(), "\n", " ")) {
			return err
		}
		// Nobody else is in the repository: what git has left of a lock is nobody's.
		if err := w.removesLocks(repo); err != nil {
			return err
		}
		if last, err := w.git(repo, "log", "-1", "--format=%s"); err != nil || last == subject {
			return err
		}
	}
}

func (w *outliver) removesLocks(repo string) error {
	return filepath.WalkDir(filepath.Join(repo, ".git"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && strings.HasSuffix(path, ".lock") {
			err = w.removes(path)
		}
		return err
	})
}
