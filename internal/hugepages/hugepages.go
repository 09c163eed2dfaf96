package hugepages

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/memory"
	"github.com/dmxfs/dmxfs/internal/process"
)

// enoughSpare is how much memory must be there beside what is in use, in bytes. What is moved
// is a third of that: who has less would be the next whom the kernel ends for it.
const enoughSpare = 64 << 20

// Use moves the code of this program and its read-only data into huge pages, and merges the
// pages of its variables and of the first part of the heap as they are now. All threads go on
// meanwhile; what they wait for is that one page is merged, some milliseconds, after each of
// which Use rests for a moment. It tells how much memory is in huge pages then, in bytes, and
// is called by one goroutine at a time.
//
// With an error the rest is as it was, which is slower and nothing else. So it is where the
// kernel has no huge pages, or none are free; where memory is short, or limited by a control
// group; where code may not be written by a program, as with MemoryDenyWriteExecute of
// systemd.exec(5); where somebody traces the program; in a position-independent executable;
// when ctx ends; and on processors other than amd64.
//
// What is moved has no file behind it any more: perf(1) does not find its symbols, and probes
// of the kernel (uprobes) that are set later have no effect.
func Use(ctx context.Context) (bytes int, err error) {
	if err := errors.Join(supported(), offered(), memory.Spare(enoughSpare)); err != nil {
		return 0, err
	}
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	program, err := elf.NewFile(f)
	if err != nil {
		return 0, err
	}
	p, err := layout(program)
	if err != nil {
		return 0, err
	}
	heap, err := heap()
	if err != nil {
		return 0, err
	}
	process.Remapping.Lock()
	defer process.Remapping.Unlock()
	err = errors.Join(
		because("code", move(ctx, f, p.code)),
		because("read-only data", move(ctx, f, p.data)),
		because("variables", merge(ctx, p.variables, 16<<10)), // one page has most of those that are used
		because("heap", merge(ctx, heap, pageSize/16)),
	)
	all, err2 := process.Mappings()
	for _, m := range all {
		bytes += m.Huge
	}
	return bytes, errors.Join(err, err2)
}

func because(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// offered tells whether the kernel has huge pages for who asks for them.
func offered() error {
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	switch {
	case err != nil:
		return err
	case strings.Contains(string(b), "[never]"):
		return errNone
	}
	return nil
}

// rest lets others have the processor, and the memory that is moved.
func rest(ctx context.Context) error {
	moment := time.NewTimer(10 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-moment.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
