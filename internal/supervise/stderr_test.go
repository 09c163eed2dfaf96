package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/config"
)

// servesEnv makes the test binary a daemon: one that "crashes", or one that "logs" and ends when
// goOnFD does.
const servesEnv = "DMXFS_TEST_SERVES"

const (
	goOnFD    = turnFD
	manyLines = 2000 // more than a pipe holds, and less than a queue
)

func serves(role string) {
	err := Serve(context.Background(), os.Stdin, os.Stderr, func(_ context.Context, _ config.Config, _ *Minder, _ *os.File, log *slog.Logger, ready func([]string)) error {
		if role == "crashes" {
			panic(strings.Repeat("this is more than a pipe holds ", 1<<15))
		}
		for i := range manyLines {
			log.Info("line", "n", i, "text", strings.Repeat("x", 200))
		}
		ready(nil)
		_, err := io.Copy(io.Discard, os.NewFile(goOnFD, "go on"))
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// daemonOf starts a daemon of that role, which is the only one that has its log open but for
// logs, and the ends of pipes by which it tells that it is usable and is told to go on. It is
// killed if it has not ended within a minute.
func daemonOf(t *testing.T, role string) (cmd *exec.Cmd, logs, ready, goOn *os.File) {
	t.Helper()
	var theirs []*os.File
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll([]*os.File{r, w}) })
		return r, w
	}
	logs, log := pipe()
	ready, tell := pipe()
	leash, _ := pipe()
	turn, goOn := pipe()
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	theirs = []*os.File{log, tell, leash, turn, root}
	cfg, err := json.Marshal(config.Config{State: t.TempDir(), LogLevel: "info"})
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), servesEnv+"="+role)
	cmd.Stdin = bytes.NewReader(cfg)
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{tell, root, leash, logs, nil, turn}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(theirs)
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { late.Stop() })
	return cmd, logs, ready, goOn
}

// A daemon that crashes while nobody reads its log ends: what the Go runtime has to say is more
// than its pipe holds, and the process itself has the other end open.
func TestACrashWhileNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	cmd, logs, _, _ := daemonOf(t, "crashes")
	logs.Close()
	err := cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 2 { // the Go runtime ended it, and not this test
		t.Errorf("it ended with: %v", err)
	}
}

// The log of a daemon is not lost where nobody has read it for a while.
func TestALogThatIsReadLater(t *testing.T) {
	t.Parallel()
	cmd, logs, ready, goOn := daemonOf(t, "logs")
	var m readyMessage
	if err := json.NewDecoder(ready).Decode(&m); err != nil || m.Error != "" {
		t.Fatalf("%+v, %v", m, err)
	}
	read := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(logs) // of what is missing the test tells
		read <- b
	}()
	lines := []string{}
	if err := goOn.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(<-read)) {
		if strings.Contains(line, "msg=line") {
			lines = append(lines, line)
		}
	}
	if len(lines) != manyLines {
		t.Fatalf("the log has %d lines of %d", len(lines), manyLines)
	}
	for i, line := range lines {
		if !strings.Contains(line, fmt.Sprintf("n=%d ", i)) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}
