package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const childEnv = "DMXFS_CRASH_TEST"

// TestMain is also the process that ends.
func TestMain(m *testing.M) {
	how, dir, _ := strings.Cut(os.Getenv(childEnv), ":")
	if how == "" {
		os.Exit(m.Run())
	}
	report, err := Begin(dir, Daemon, "version: of the test", Started())
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Print(report)
	switch how {
	case "panic":
		panic("of the test")
	case "fatal":
		new(sync.Mutex).Unlock() // which nothing recovers
	}
	os.Exit(0)
}

// child runs a process that ends, and is the report on the one before it.
func child(t *testing.T, dir, how string) string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+how+":"+dir)
	out, err := cmd.Output()
	if failed := how != "end"; failed != (err != nil) || cmd.ProcessState.ExitCode() == 3 {
		t.Fatalf("%s: %v, %s", how, err, out)
	}
	return string(out)
}

func TestReportOfACrash(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{"panic": "panic: of the test", "fatal": "sync.fatal("} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			if r := child(t, dir, how); r != "" {
				t.Errorf("the first process has a report: %s", r)
			}
			r := child(t, dir, "end")
			b, err := os.ReadFile(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{"version: of the test\n", "began: ", want, "goroutine ", "crash_test.go"} {
				if !strings.Contains(string(b), s) {
					t.Errorf("%q is missing in\n%s", s, b)
				}
			}
			if st, err := os.Stat(r); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", st.Mode(), err)
			}
			if r := child(t, dir, "end"); r != "" {
				t.Errorf("a process that ended has a report: %s", r)
			}
		})
	}
}

// A process that is killed says nothing, and one may be killed before it has
// written what it is.
func TestNoReportOfAKill(t *testing.T) {
	t.Parallel()
	for _, left := range []string{"", "version: x\n", "version: x\n" + below, "version: x\n" + below + "\n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, Daemon.current()), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := child(t, dir, "end"); r != "" {
			t.Errorf("%q becomes report %s", left, r)
		}
	}
}

func TestFewReportsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var last string
	for i := range Keep + 3 {
		left := filepath.Join(dir, Daemon.current())
		text := below + fmt.Sprintf("panic: %d\n", i) + strings.Repeat("x", 2*MaxReport)
		if err := os.WriteFile(left, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(left, at, at); err != nil {
			t.Fatal(err)
		}
		last = child(t, dir, "end")
	}
	all, err := Reports(dir)
	if err != nil || len(all) != Keep || all[Keep-1] != last {
		t.Fatalf("%v, %v; the last one is %s", all, err, last)
	}
	st, err := os.Stat(last)
	if err != nil || st.Size() != MaxReport {
		t.Errorf("%d bytes, %v", st.Size(), err)
	}
}

// The report that was just made is not the one to go, also where the clock was set
// back since the others were made.
func TestTheNewReportIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range Keep {
		name := prefix + time.Unix(int64(2000+i), 0).UTC().Format("20060102T150405.000Z") + suffix
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left, at := filepath.Join(dir, Daemon.current()), time.Unix(1000, 0)
	if err := os.WriteFile(left, []byte(below+"panic: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(left, at, at); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(child(t, dir, "end")); err != nil {
		t.Error(err)
	}
}
