package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	lumberjack "gopkg.in/natefinch/lumberjack.v2"
)

// ready is how a daemon in the background tells the process that started it
// how it went: one JSON object on a pipe.
type readyMessage struct {
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
}

// newServeCommand is what a mount in the background runs as. It is hidden:
// its configuration comes on standard input, and what becomes of it goes to
// descriptor 3.
func newServeCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use: "serve-mount", Hidden: true, Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			var cfg Config
			if err := json.NewDecoder(s.in).Decode(&cfg); err != nil {
				return withCode(exitUsage, fmt.Errorf("configuration on standard input: %w", err))
			}
			tell := os.NewFile(3, "ready")
			if tell == nil {
				return withCode(exitUsage, errors.New("no descriptor 3 to tell about the mount"))
			}
			unix.CloseOnExec(3)
			told := false
			report := func(err error) {
				if !told {
					told = true
					m := readyMessage{}
					if err != nil {
						m = readyMessage{err.Error(), exitCode(err)}
					}
					_ = json.NewEncoder(tell).Encode(m) // the other end may be gone
					tell.Close()
				}
			}
			err := serve(c.Context(), cfg, logFile(cfg), func() {
				report(nil)
				detach(cfg)
			})
			report(err)
			return err
		},
	}
}

// detach lets go of standard error, whose other end goes away with the process
// that started this one. What the Go runtime says in its last moment goes to a
// file.
func detach(cfg Config) {
	if f, err := os.OpenFile(cfg.State+"/crash.log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		_ = debug.SetCrashOutput(f, debug.CrashOptions{})
		f.Close()
	}
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		_ = unix.Dup3(int(null.Fd()), 2, 0)
		null.Close()
	}
}

// logFile is where a daemon in the background logs.
func logFile(cfg Config) io.Writer {
	return &lumberjack.Logger{Filename: logPath(cfg.State), MaxSize: 10, MaxBackups: 3}
}

func logPath(state string) string { return state + "/dmxfs.log" }

// serve runs a daemon until its mount is gone.
func serve(ctx context.Context, cfg Config, logTo io.Writer, ready func()) error {
	log, err := newLogger(cfg, logTo)
	if err != nil {
		return err
	}
	d, err := open(cfg, log)
	if err != nil {
		return err
	}
	reg := registration{Mountpoint: cfg.Mountpoint, Source: cfg.Source, State: cfg.State}
	if err := remember(reg); err != nil {
		return errors.Join(fmt.Errorf("remember the mount for other commands: %w", err), d.close())
	}
	err = d.run(ctx, func() {
		ready()
		_, _ = sd.SdNotify(false, sd.SdNotifyReady) // not under systemd: no matter
	})
	if err != nil {
		log.Error("the daemon ends", "err", err)
	}
	return errors.Join(err, d.close())
}

func newLogger(cfg Config, w io.Writer) (*slog.Logger, error) {
	level, err := logLevel(cfg.LogLevel)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}

// syncfs writes out what the kernel holds back for the file system of dir.
func syncfs(dir *os.File) error {
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("syncfs: %w", err)
	}
	return nil
}
