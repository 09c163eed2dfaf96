package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// section is a critical section of a program: it took a lock, did some I/O
// under it, and gave it up, or found out that it had lost it. Times are
// CLOCK_MONOTONIC in nanoseconds, the same for all processes of the machine.
type section struct {
	File string
	Who  string // node and worker
	Mode string // R or W
	// Acquired is when the lock call had returned, Last when the last I/O
	// that did not fail was begun. The lock was held in all of that time: what
	// is checked is less than what is true, never more.
	Acquired, Last int64
	OK             bool  // all I/O succeeded
	Value          int64 // that was written, if any
	Wrote          bool  // the write of Value did not fail
	Tried          bool  // it was tried
}

func (s section) String() string {
	return fmt.Sprintf("S %s %s %s %d %d %v %d %v %v", s.File, s.Who, s.Mode, s.Acquired, s.Last, s.OK, s.Value, s.Wrote, s.Tried)
}

// readSections reads what a worker wrote, but for a last line that is torn.
func readSections(t *testing.T, path string) (list []section) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var s section
		n, _ := fmt.Sscanf(sc.Text(), "S %s %s %s %d %d %t %d %t %t", &s.File, &s.Who, &s.Mode, &s.Acquired, &s.Last, &s.OK, &s.Value, &s.Wrote, &s.Tried)
		if n == 9 {
			list = append(list, s)
		}
	}
	return list
}

// conflicts finds sections on one file that overlap and must not. Those with
// the same Who are one program's, one after the other.
func conflicts(list []section) (found []string) {
	byFile := map[string][]section{}
	for _, s := range list {
		byFile[s.File] = append(byFile[s.File], s)
	}
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		ss := byFile[file]
		slices.SortFunc(ss, func(a, b section) int { return int(a.Acquired - b.Acquired) })
		var write, read section // that lasts longest, so far
		for _, s := range ss {
			for _, before := range []section{write, read} {
				if before.Who != "" && s.Acquired < before.Last && (s.Mode == "W" || before.Mode == "W") {
					found = append(found, fmt.Sprintf("%v\n  began before the end of\n  %v", s, before))
				}
			}
			longest := &read
			if s.Mode == "W" {
				longest = &write
			}
			if longest.Who == "" || s.Last > longest.Last {
				*longest = s
			}
		}
	}
	return found
}

// lostUpdates checks a counter: every section read it and wrote one more. Two
// that were told that they wrote the same number have lost one of the two; a
// last number that is too small has lost some, and one that is too great was
// written by who was told that it was not.
func lostUpdates(list []section, last int64) (found []string) {
	by := map[int64]section{}
	acked, unknown := int64(0), int64(0)
	for _, s := range list {
		switch {
		case s.Wrote:
			acked++
			if other, ok := by[s.Value]; ok {
				found = append(found, fmt.Sprintf("%d was written twice:\n  %v\n  %v", s.Value, other, s))
			}
			by[s.Value] = s
		case s.Tried:
			unknown++
		}
	}
	if last < acked || last > acked+unknown {
		found = append(found, fmt.Sprintf("the counter says %d, after %d increments that succeeded and %d that may have", last, acked, unknown))
	}
	return found
}

// brokenGroups checks a file to which every section appended three lines, "WHO
// N 1" to "WHO N 3": none is between those of another, and the groups that
// were written without an error are whole, and there once.
func brokenGroups(content string, acked map[string]bool) (found []string) {
	whole := map[string]int{}
	lines := linesOfGroups(content)
	for i := 0; i < len(lines); {
		who, n, ok := strings.Cut(lines[i], "/")
		if !ok || n != "1" {
			found = append(found, fmt.Sprintf("line %d is %q, want the first of a group", i+1, lines[i]))
			i++
			continue
		}
		k := 1
		for k < 3 && i+k < len(lines) && lines[i+k] == fmt.Sprintf("%s/%d", who, k+1) {
			k++
		}
		if k == 3 {
			whole[who]++
		} else if acked[who] {
			found = append(found, fmt.Sprintf("line %d: only %d lines of %q, all of which were written", i+1, k, who))
		}
		i += k
	}
	for who := range acked {
		if whole[who] != 1 {
			found = append(found, fmt.Sprintf("%q is there %d times", who, whole[who]))
		}
	}
	slices.Sort(found)
	return found
}

// groupLine is a line of a group, HOST-KIND-NUMBER/LINE, and groupBegin the begin of one.
// No other line is one behind the begin of one.
var (
	groupLine  = regexp.MustCompile(`^\d-[a-z]+-\d+/[123]$`)
	groupBegin = regexp.MustCompile(`^\d(-([a-z]+(-(\d+(/[123]?)?)?)?)?)?$`)
)

// linesOfGroups are the lines of content, without those that are cut off at the end of a
// page: of a call of write(2) whose process is killed the kernel does no other page, and
// nobody makes good for it where the daemon's watcher was killed as well. Its program was
// told of an error; the next one writes behind it.
func linesOfGroups(content string) (lines []string) {
	const page = 4096
	at := 0
	for line := range strings.SplitAfterSeq(content, "\n") {
		text := strings.TrimSuffix(line, "\n")
		end := page - at%page
		at += len(line)
		if !groupLine.MatchString(text) && end <= len(text) && groupBegin.MatchString(text[:end]) {
			line, text = text[end:], text[end:]
		}
		if line != "" {
			lines = append(lines, text)
		}
	}
	return lines
}

// The checks find what they are for.
func TestHistoryChecks(t *testing.T) {
	w := func(who string, from, to int64) section {
		return section{File: "f", Who: who, Mode: "W", Acquired: from, Last: to}
	}
	r := func(who string, from, to int64) section {
		return section{File: "f", Who: who, Mode: "R", Acquired: from, Last: to}
	}
	g := w("c", 15, 16)
	g.File = "g"
	for _, x := range []struct {
		list []section
		want int
	}{
		{[]section{w("a", 10, 20), w("b", 20, 30), r("c", 30, 40), r("d", 35, 50), w("a", 50, 60), g}, 0},
		{[]section{w("a", 10, 20), w("b", 19, 30)}, 1},
		{[]section{w("b", 19, 30), w("a", 10, 20)}, 1},
		{[]section{r("a", 10, 20), w("b", 19, 30)}, 1},
		{[]section{w("a", 10, 20), r("b", 19, 30), r("c", 19, 21)}, 2},
		{[]section{w("a", 10, 100), w("b", 20, 30), w("c", 40, 50)}, 2},
		{[]section{r("a", 10, 100), r("b", 20, 30), w("c", 40, 50)}, 1},
	} {
		if got := conflicts(x.list); len(got) != x.want {
			t.Errorf("%v: %d conflicts, want %d: %v", x.list, len(got), x.want, got)
		}
	}
	wrote := func(v int64) section { return section{Value: v, Wrote: true, Tried: true} }
	tried := section{Value: 3, Tried: true}
	for _, x := range []struct {
		list []section
		last int64
		want int
	}{
		{[]section{wrote(1), wrote(2), tried, wrote(3)}, 3, 0},
		{[]section{wrote(1), wrote(2), tried, wrote(4)}, 4, 0},
		{[]section{wrote(1), wrote(2), wrote(2)}, 2, 2},
		{[]section{wrote(1), wrote(2)}, 1, 1},
		{[]section{wrote(1), wrote(2), tried}, 4, 1},
	} {
		if got := lostUpdates(x.list, x.last); len(got) != x.want {
			t.Errorf("%v, %d: %v, want %d", x.list, x.last, got, x.want)
		}
	}
	// Four bytes are left of the page.
	both, page := "a/1\na/2\na/3\nc/1\nc/2\nc/3\n", strings.Repeat("b/1\nb/2\nb/3\n", 4080/24)+"2-ppp-123/1\n"
	for _, x := range []struct {
		content string
		want    int
	}{
		{"a/1\na/2\na/3\nb/1\nb/2\nc/1\nc/2\nc/3\n", 0},
		{"a/1\na/2\nb/1\na/3\nc/1\nc/2\nc/3\n", 3}, // b between the lines of a
		{"a/1\na/2\na/3\nb/1\n", 1},                // c is lost
		{"a/1\na/2\na/3\na/1\na/2\na/3\nc/1\nc/2\nc/3\n", 1},
		{page + "4-op" + both, 0},        // killed at the end of a page
		{page + "4-op-12/1\n" + both, 0}, // killed later
		{both + "4-op", 1},               // killed where there is no end of a page
		{page + "4-o" + both, 3},         // a is damaged
		{page + "1-a-" + both, 0},        // killed, and written again
		{page + "4-o-" + both[2:], 4},    // a is damaged at the end of a page
	} {
		content := strings.NewReplacer("a/", "1-a-1/", "b/", "1-b-1/", "c/", "1-c-1/").Replace(x.content)
		if got := brokenGroups(content, map[string]bool{"1-a-1": true, "1-c-1": true}); len(got) != x.want {
			t.Errorf("…%q: %v, want %d", content[max(0, len(content)-60):], got, x.want)
		}
	}
}
