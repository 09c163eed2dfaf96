package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mappedWriter writes to a file through a mapping, page by page, and has it
// written out at the same time: map-writer FILE. To each line of standard input
// it answers how many rounds it has made.
func mappedWriter(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	const pages = 64
	size := pages * os.Getpagesize()
	if err := f.Truncate(int64(size)); err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	var rounds atomic.Uint64
	failed := make(chan error, 1)
	go func() {
		for {
			for p := range pages {
				binary.LittleEndian.PutUint64(m[p*os.Getpagesize():], rounds.Load())
				if p%8 == 7 { // there is always something to be written out
					<-time.After(time.Millisecond)
				}
			}
			rounds.Add(1)
		}
	}()
	go func() {
		for ; ; <-time.After(time.Millisecond) {
			if err := unix.Msync(m, unix.MS_SYNC); err != nil {
				failed <- err
				return
			}
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		select {
		case err := <-failed:
			return err
		default:
			fmt.Println(rounds.Load())
		}
	}
	return nil
}

// rounds asks a map-writer.
func (k *keeper) rounds() uint64 {
	k.t.Helper()
	k.tell("rounds")
	s := k.answer()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		k.t.Fatalf("a writer says %q: %v", s, err)
	}
	return n
}

// Two hosts on which programs write through mappings lose their tenure at once
// when a third one stands still. They go on without it: what one of them has to
// write out before the locks go on does not wait for itself.
func TestMappedWritersOutliveAHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	a, b, still := c.mounts[0], c.mounts[1], c.mounts[2]
	c.awaitMembers(3)
	writers := []*keeper{a.converse("map-writer", "a"), b.converse("map-writer", "b")}
	await(t, "both write", func() bool { return writers[0].rounds() > 10 && writers[1].rounds() > 10 })
	still.signal(unix.SIGSTOP)
	await(t, "the two go on without the third", func() bool { return a.live(2) && b.live(2) })
	for i, w := range writers {
		before := w.rounds()
		await(t, fmt.Sprintf("writer %d writes on", i), func() bool { return w.rounds() > before })
	}
	still.signal(unix.SIGCONT)
	c.awaitMembers(3)
}
