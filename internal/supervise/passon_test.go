package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/estate"
	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// A daemon goes on with what another one has left, its watcher has ended, and it does not come
// to serve the mount, as nothing answers it. It cuts the mount off and ends in time, when there
// is another watcher, which is told why.
func TestADaemonThatDoesNotGoOnEndsWithoutAWatcher(t *testing.T) {
	heard := filepath.Join(t.TempDir(), "heard")
	t.Setenv(heardEnv, heard)
	leash, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer leash.Close()
	hold.Close() // the watcher has ended
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cut, over := make(chan string, 1), make(chan int)
	m := &Minder{
		cfg: config.Config{Mountpoint: "/where", State: t.TempDir(), Takeover: true, LogLevel: "info"}, flush: func() {}, root: root, leash: leash,
		followed: make(chan struct{}, 1), left: make(chan struct{}), estate: &estate.Estate{},
	}
	m.endsLate = endsLate{
		after: 10 * time.Millisecond,
		cut:   func(point string) error { cut <- point; return nil },
		exit:  func(code int) { over <- code; <-over },
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		hangs := func(ctx context.Context, _ config.Config, _ *Minder, _ *os.File, _ *slog.Logger, _ func([]string)) error {
			<-ctx.Done()
			return ctx.Err()
		}
		served <- serveWatched(ctx, m.cfg, m, root, os.Stderr, false, hangs, func(error, ...string) {})
	}()
	select {
	case code := <-over:
		if code != exitcode.Failure {
			t.Errorf("it ends with %d", code)
		}
	case err := <-served:
		t.Fatalf("it has not begun: %v", err)
	}
	if point := <-cut; point != "/where" {
		t.Errorf("%s was cut off", point)
	}
	if !m.isWatched() {
		t.Error("there is no other watcher")
	}
	cancel() // the process goes on here
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("it served: %v", err)
	}
	m.mu.Lock()
	say := m.lastWord
	m.mu.Unlock()
	say.Close()
	over <- 0
	var word readyMessage
	await(t, "the watcher has heard it", func() bool {
		f, err := os.Open(heard)
		if err != nil {
			return false
		}
		defer f.Close()
		return json.NewDecoder(f).Decode(&word) == nil
	})
	if !strings.Contains(word.Error, "has not gone on within 30s") || word.Code != exitcode.Failure {
		t.Errorf("the watcher was told %+v", word)
	}
}

// One that serves by then goes on, whoever watches it.
func TestADaemonThatServesGoesOnWithoutAWatcher(t *testing.T) {
	var usable atomic.Bool
	usable.Store(true)
	m := &Minder{endsLate: endsLate{
		cut:  func(string) error { t.Error("the mount was cut off"); return nil },
		exit: func(int) { t.Error("it has ended") },
	}}
	m.late(&usable)
}
