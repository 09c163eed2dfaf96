package mountlog

import (
	"io"
	"log/slog"
	"path/filepath"

	lumberjack "gopkg.in/natefinch/lumberjack.v2"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// File is where a mount in the background logs: a file that is rotated, and made when
// something is logged.
func File(cfg config.Config) io.WriteCloser {
	return &lumberjack.Logger{Filename: Path(cfg.State), MaxSize: 10, MaxBackups: 3}
}

// Path is that file, in a state directory.
func Path(state string) string { return filepath.Join(state, "dmxfs.log") }

// New is a logger that writes to w as the settings of the mount say.
func New(cfg config.Config, w io.Writer) (*slog.Logger, error) {
	level, err := config.LogLevel(cfg.LogLevel)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}
