package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// followTime is how long it may take until who looks at a file every few
// milliseconds sees what was appended to it: much more than it does.
const followTime = 30 * time.Second

// followed lets one host append to a file, under a lock of its own, which another
// host has open for reading and follows, as by tail -f: followed N DIR1 DIR2.
func followed(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(args[1], "follow-lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := retry(func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_EX) }); err != nil {
		return err
	}
	// From now on this process takes no open locks there. Sizes of whole pages, and
	// others: sshfs may have read ahead that there is nothing behind them.
	for _, line := range []int{4096, 1000, 40_000} {
		name := fmt.Sprint("follow-", line)
		if err := followOne(filepath.Join(args[1], name), filepath.Join(args[2], name), n, line); err != nil {
			return fmt.Errorf("lines of %d bytes: %w", line, err)
		}
	}
	return nil
}

func followOne(name, there string, n, line int) error {
	text := func(i int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%07d\n", i), line/8)) }
	var all []byte
	log, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	add := func(i int) error {
		all = append(all, text(i)...)
		_, err := log.Write(text(i))
		return err
	}
	for i := range 2 {
		if err := add(i); err != nil {
			return err
		}
	}
	tail, err := os.Open(there)
	if err != nil {
		return err
	}
	defer tail.Close()
	var seen []byte
	b := make([]byte, 1<<16)
	follow := func() error {
		for end := time.Now().Add(followTime); len(seen) < len(all); {
			k, err := tail.ReadAt(b, int64(len(seen)))
			seen = append(seen, b[:k]...)
			if k > 0 {
				continue
			}
			if time.Now().After(end) {
				st, _ := tail.Stat()
				return fmt.Errorf("of %d bytes only %d were seen, and %d as the size: %w", len(all), len(seen), st.Size(), err)
			}
			waitALittle()
		}
		if !bytes.Equal(seen, all) {
			return fmt.Errorf("what was read is not what was written, %d bytes", len(all))
		}
		return nil
	}
	if err := follow(); err != nil {
		return err
	}
	for i := range n {
		if err := add(i + 2); err != nil {
			return fmt.Errorf("append %d: %w", i, err)
		}
		if err := follow(); err != nil {
			return fmt.Errorf("after append %d: %w", i, err)
		}
	}
	return nil
}
