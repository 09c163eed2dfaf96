package main

import (
	"encoding/json"
	"os"
	"time"
)

// minderLeft is what the minder of the next program of this process needs.
type minderLeft struct {
	Root     int `json:"root"`
	Leash    int `json:"leash"`
	Logs     int `json:"logs"`      // 0: none
	LastWord int `json:"last_word"` // 0: the watcher is the one that started the daemon
	Watcher  int `json:"watcher"`   // process, with LastWord
	Tell     int `json:"tell"`      // 0: none
}

// leave describes the minder for the next program, and the descriptors that it needs.
// starting is held. Should the watcher have ended by now, that one notices.
func (m *minder) leave() (l minderLeft, files []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.Root, l.Leash = int(m.root.Fd()), int(m.leash.Fd())
	files = []int{l.Root, l.Leash}
	if m.logs != nil {
		l.Logs = int(m.logs.Fd())
		files = append(files, l.Logs)
	}
	if m.lastWord != nil {
		l.LastWord, l.Watcher = int(m.lastWord.Fd()), m.watcher
		files = append(files, l.LastWord)
	}
	if m.tell != nil {
		l.Tell = int(m.tell.Fd())
		files = append(files, l.Tell)
	}
	return l, files
}

// minder is the one that goes on with what l says.
func (l *minderLeft) minder(cfg Config) *minder {
	file := func(fd int, name string) *os.File { return os.NewFile(uintptr(fd), name) }
	m := &minder{cfg: cfg, flush: func() {}, followed: make(chan struct{}, 1), root: file(l.Root, cfg.Source), leash: file(l.Leash, "leash")}
	if l.Logs != 0 {
		m.logs = file(l.Logs, "log")
	}
	if l.Tell != 0 {
		m.tell = file(l.Tell, "tell")
	}
	if l.LastWord != 0 {
		m.lastWord, m.watcher = file(l.LastWord, "last word"), l.Watcher
	}
	return m
}

// upgrading tells the watcher that this process is about to execute another program.
func (m *minder) upgrading() {
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

// upgraded has the watcher become this program, too. From then on it learns how this
// process ends by a last word.
// It returns when that has come about, or after a while: who gave the order may send
// the watcher a signal next, which would end it in the moment in which no program of
// it catches any.
func (m *minder) upgraded() {
	m.mu.Lock()
	if m.lastWord == nil {
		m.lastWord, m.tell = m.tell, nil
	}
	to, started := m.lastWord, m.watcher == 0
	m.mu.Unlock()
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
const followsWithin = 3 * time.Second

// awaitInherited returns when a watcher has ended that the program before this one in
// this process has started.
func (m *minder) awaitInherited() {
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
