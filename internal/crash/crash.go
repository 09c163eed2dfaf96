package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// Keep is how many reports are kept; older ones are removed.
const Keep = 5

// MaxReport is how much of a report is kept, in bytes. The runtime writes down all
// goroutines in some cases; the first one is that which matters.
const MaxReport = 1 << 20

// Role tells apart processes that have one directory.
type Role string

const (
	Daemon  Role = "daemon"
	Watcher Role = "watcher"
)

// current is the file of the process that runs, or ran last.
func (r Role) current() string {
	if r == Watcher {
		return "crash.watcher"
	}
	return "crash.running"
}

const (
	prefix = "crash-"
	suffix = ".txt"
	// below is the line above what the runtime says.
	below = "--- the Go runtime:\n"
)

// Begin has the last words of this process written to a file in dir, which only
// processes of its role may use, one at a time, below the lines of about. It returns the path of the report
// on the process before it, or "" if that ended in another way. What went wrong
// with the one does not stop the other.
func Begin(dir string, r Role, about ...string) (report string, err error) {
	path := filepath.Join(dir, r.current())
	report, collected := collect(dir, path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return report, errors.Join(collected, err)
	}
	defer f.Close() // the runtime has a descriptor of its own
	for _, line := range append([]string{"process: " + string(r)}, about...) {
		if _, werr := fmt.Fprintln(f, line); werr != nil {
			err = werr
		}
	}
	if _, werr := f.WriteString(below); werr != nil {
		err = werr
	}
	return report, errors.Join(collected, err, debug.SetCrashOutput(f, debug.CrashOptions{}))
}

// collect makes a report of what the last process has left, if that is one.
func collect(dir, path string) (report string, err error) {
	b, err := readSome(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if _, said, ok := bytes.Cut(b, []byte(below)); !ok || len(bytes.TrimSpace(said)) == 0 {
		return "", nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	report = filepath.Join(dir, prefix+st.ModTime().UTC().Format("20060102T150405.000Z")+suffix)
	if err := os.Rename(path, report); err != nil {
		return "", err
	}
	if st.Size() > MaxReport {
		err = os.Truncate(report, MaxReport)
	}
	old, lerr := Reports(dir)
	err = errors.Join(err, lerr)
	for _, r := range old[:max(len(old)-Keep, 0)] {
		if r != report { // not this one, if the clock was set back
			err = errors.Join(err, os.Remove(r))
		}
	}
	return report, err
}

// readSome is the begin of a file, which may be long.
func readSome(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// Reports are the paths of the reports in dir, the oldest first.
func Reports(dir string) (reports []string, err error) {
	names, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), prefix) && strings.HasSuffix(n.Name(), suffix) {
			reports = append(reports, filepath.Join(dir, n.Name()))
		}
	}
	return reports, nil
}

// Started is a line for [Begin] that says when the process began.
func Started() string { return "began: " + time.Now().UTC().Format(time.RFC3339Nano) }
