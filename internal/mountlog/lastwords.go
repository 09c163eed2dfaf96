package mountlog

import (
	"log/slog"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/crash"
	"github.com/dmxfs/dmxfs/internal/version"
)

// KeepLastWords has what the Go runtime says, should it end this process, in a
// file, and tells of that which the one of its role before it has left.
func KeepLastWords(cfg config.Config, r crash.Role, log *slog.Logger) {
	v := version.This()
	report, err := crash.Begin(cfg.State, r, "version: "+v.Version, "go: "+v.Go+" "+v.OS+"/"+v.Arch, "commit: "+v.Commit, "mount: "+cfg.Mountpoint, crash.Started())
	if err != nil {
		log.Warn("the report on a crash cannot be written: only the log will have it", "err", err)
	}
	if report != "" {
		log.Error("the "+string(r)+" before this one crashed: please report this, with the file that says where", "file", report)
	}
}
