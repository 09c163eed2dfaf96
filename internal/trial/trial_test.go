package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// TestMain is the program in whose place the test is: it has the hidden command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		if err := Serve(os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitcode.Of(err))
		}
		os.Exit(exitcode.OK)
	}
	os.Exit(m.Run())
}

// settings are those of a first mount.
func settings(t *testing.T) config.Config {
	t.Helper()
	cfg := config.Config{Source: filepath.Join(t.TempDir(), "raw"), Mountpoint: t.TempDir(), State: filepath.Join(t.TempDir(), "state")}
	if err := os.Mkdir(cfg.Source, 0o755); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A local directory can be used, and is as it was.
func TestTry(t *testing.T) {
	cfg := settings(t)
	for _, cfg.Join = range []bool{true, false} {
		if err := Try(t.Context(), cfg); err != nil {
			t.Errorf("join %v: %v", cfg.Join, err)
		}
		if names, err := os.ReadDir(cfg.Source); err != nil || len(names) != 0 {
			t.Errorf("join %v: left behind: %v %v", cfg.Join, names, err)
		}
	}
	if _, err := os.Stat(cfg.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory: %v", err)
	}
}

// What is wrong is told in the words, and with the number, of the process that met it.
func TestTryInVain(t *testing.T) {
	for _, x := range []struct {
		what string
		how  func(cfg *config.Config) error
		code int
		want string
	}{
		{"no storage", func(cfg *config.Config) error { return os.Remove(cfg.Source) }, exitcode.Failure, "is its storage mounted on this host?"},
		{"a state directory on it", func(cfg *config.Config) error { cfg.State = filepath.Join(cfg.Source, "state"); return nil }, exitcode.Usage, "it must be local to this host"},
		{"what is no directory", func(cfg *config.Config) error {
			return os.WriteFile(filepath.Join(cfg.Source, ".dmxfs"), nil, 0o600)
		}, exitcode.Refused, ".dmxfs"},
	} {
		cfg := settings(t)
		if err := x.how(&cfg); err != nil {
			t.Fatal(err)
		}
		if err := Try(t.Context(), cfg); err == nil || exitcode.Of(err) != x.code || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, code %d", x.what, err, exitcode.Of(err))
		}
	}
}

// Who was a member of a cluster of the storage knows that it can be used: it may not answer
// now.
func TestTryOfAMember(t *testing.T) {
	cfg := settings(t)
	if err := errors.Join(os.Remove(cfg.Source), os.MkdirAll(filepath.Join(cfg.State, "journal"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.State, "journal", "journal.json"), []byte(`{"cluster":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Try(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}

// Serve wants settings.
func TestServeWithoutSettings(t *testing.T) {
	if err := Serve(strings.NewReader("{")); exitcode.Of(err) != exitcode.Usage {
		t.Error(err)
	}
}

// A trial is waited for as long as storage may take, from when it has begun, and no longer.
func TestAwaitTrial(t *testing.T) {
	cfg := config.Config{Source: "/mnt/raw"}
	for _, x := range []struct {
		what  string
		tells func(said chan<- message, interrupt func())
		code  int
		want  string // what the error has; empty: none
		after time.Duration
	}{
		{"all is well", func(said chan<- message, _ func()) {
			time.Sleep(time.Minute) // a host that is slow
			said <- message{Doing: "opening it"}
			time.Sleep(patience - 1)
			said <- message{End: true}
		}, exitcode.OK, "", time.Minute + patience - 1},
		{"it is refused", func(said chan<- message, _ func()) {
			said <- message{Doing: "opening it"}
			said <- message{End: true, Error: "no hard links", Code: exitcode.Refused}
		}, exitcode.Refused, "no hard links", 0},
		{"it is killed", func(said chan<- message, _ func()) { close(said) }, exitcode.Failure, "ended without a word", 0},
		{"it hangs", func(said chan<- message, _ func()) {
			said <- message{Doing: "opening it"}
			time.Sleep(patience / 2)
			said <- message{Doing: "making .dmxfs"} // a step more is no more time
		}, exitcode.Failure, "/mnt/raw: the storage does not answer: making .dmxfs takes more than 10s", patience},
		{"who mounts ends", func(said chan<- message, interrupt func()) {
			said <- message{Doing: "opening it"}
			time.Sleep(time.Second)
			interrupt()
		}, exitcode.Failure, "interrupted", time.Second},
	} {
		t.Run(x.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				said := make(chan message, 1)
				go x.tells(said, func() { cancel(fmt.Errorf("interrupted: %w", unix.EINTR)) })
				began := time.Now()
				err := awaitTrial(ctx, cfg, said)
				if took := time.Since(began); took != x.after {
					t.Errorf("after %v, want %v", took, x.after)
				}
				if exitcode.Of(err) != x.code || (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
					t.Errorf("%v, code %d", err, exitcode.Of(err))
				}
			})
		})
	}
}
