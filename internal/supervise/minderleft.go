package supervise

import (
	"encoding/json"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/process"
)

// MinderLeft is what the minder of the next program of this process needs.
type MinderLeft struct {
	Root     int `json:"root"`
	Leash    int `json:"leash"`
	Logs     int `json:"logs"`      // 0: none
	LastWord int `json:"last_word"` // 0: the watcher is the one that started the daemon
	Watcher  int `json:"watcher"`   // process, with LastWord
	Tell     int `json:"tell"`      // 0: none
	Life     int `json:"life"`      // 0: none, see lifeFD
}

// Files are the descriptors of l.
func (l *MinderLeft) Files() (files []int) {
	for _, fd := range []int{l.Root, l.Leash, l.Logs, l.LastWord, l.Tell, l.Life} {
		if fd != 0 {
			files = append(files, fd)
		}
	}
	return files
}

// Leave describes the minder, which is held ([Minder.Hold]), for the next program, and the
// descriptors that it needs, which are copies. Should the watcher have ended by now, or end
// before that, the next program notices.
func (m *Minder) Leave() (l MinderLeft, files []int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for to, f := range map[*int]*os.File{&l.Root: m.root, &l.Leash: m.leash, &l.Logs: m.logs, &l.LastWord: m.lastWord, &l.Tell: m.tell, &l.Life: m.life} {
		if f == nil {
			continue
		}
		fd, err := process.Duplicate(f)
		if err != nil {
			process.CloseAll(l.Files())
			return MinderLeft{}, nil, err
		}
		*to = fd
	}
	if m.lastWord != nil {
		l.Watcher = m.watcher
	}
	return l, l.Files(), nil
}

// Minder is the one that goes on with what l says. It has copies: should this program
// not come to go on, another one takes l.
func (l *MinderLeft) Minder(cfg config.Config) (*Minder, error) {
	var err error
	file := func(fd int, name string) *os.File {
		if fd == 0 || err != nil {
			return nil
		}
		var own int
		if own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return nil
		}
		return os.NewFile(uintptr(own), name)
	}
	m := &Minder{cfg: cfg, flush: func() {}, followed: make(chan struct{}, 1), left: make(chan struct{}), root: file(l.Root, cfg.Source), leash: file(l.Leash, "leash"),
		logs: file(l.Logs, "log"), tell: file(l.Tell, "tell"), lastWord: file(l.LastWord, "last word"), life: file(l.Life, "lifeline")}
	if l.LastWord != 0 {
		m.watcher = l.Watcher
	}
	return m, err
}

// Upgrading tells the watcher that this process is about to execute another program.
func (m *Minder) Upgrading() {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := m.lastWord
	if to == nil {
		to = m.tell
	}
	if to != nil {
		_ = json.NewEncoder(to).Encode(readyMessage{Upgrading: true}) // it may have ended
	}
}

// Upgraded has the watcher become this program, too. From then on it learns how this
// process ends by a last word.
// It returns when that has come about, or after a while: who gave the order may send
// the watcher a signal next, which would end it in the moment in which no program of
// it catches any.
func (m *Minder) Upgraded() {
	m.mu.Lock()
	if m.lastWord == nil {
		m.lastWord, m.tell = m.tell, nil
	}
	to, started := m.lastWord, m.watcher == 0
	m.mu.Unlock()
	select {
	case <-m.followed: // of an earlier upgrade, which did not wait so long
	default:
	}
	if to == nil || json.NewEncoder(to).Encode(readyMessage{Upgraded: true}) != nil || !started {
		return // it may have ended
	}
	select {
	case <-m.followed:
	case <-time.After(followsWithin):
		m.log.Warn("the process that watches this daemon is not the new program yet")
	}
}

// followsWithin is how long a watcher may take to become another program.
const followsWithin = 10 * time.Second

// awaitInherited returns when a watcher has ended that the program before this one in
// this process has started.
func (m *Minder) awaitInherited() {
	m.mu.Lock()
	pid, say := m.watcher, m.lastWord
	m.mu.Unlock()
	if pid == 0 {
		return
	}
	if p, err := os.FindProcess(pid); err == nil { // a child of this process, whatever its program
		_, _ = p.Wait()
	}
	m.setLastWord(nil, 0)
	say.Close()
}
