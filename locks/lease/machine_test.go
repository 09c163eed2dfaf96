package lease

import "testing"

// Two nodes that look all the time, one of which changes something every now and
// then: that costs few locks.
func TestPauses(t *testing.T) {
	m, tries := new(Machine), 0
	for now := int64(0); now < 60_000; now += 10 {
		m.Look(now)
		switch task, _ := m.Next(now); task {
		case TryKeep:
			tries++
			m.Got(now)
			m.Wanted()
		case Drop:
			m.Dropped()
		case Release:
			m.Released(now)
		case Nothing:
		default:
			t.Fatalf("task %d", task)
		}
	}
	if tries < 5 || tries > 12 {
		t.Errorf("%d tries in a minute", tries)
	}
}

// Keep is given up when nobody has looked for long, after a drop, and not under a change.
func TestKeepIdle(t *testing.T) {
	m, now := new(Machine), int64(1)
	step := func(want Task) (at int64) {
		t.Helper()
		task, at := m.Next(now)
		if task != want {
			t.Fatalf("at %d: task %d, want %d", now, task, want)
		}
		return at
	}
	for range ManyLooks {
		m.Look(now)
	}
	step(TryKeep)
	m.Got(now)
	for range 3 { // a program looks now and then
		now += KeepIdle - 1
		if at := step(Nothing); at != now+1 {
			t.Fatalf("at %d: next at %d", now, at)
		}
		if gen, _ := m.Look(now); !m.Keeps(gen) {
			t.Fatal("nothing is kept")
		}
	}
	now += KeepIdle - 1
	m.Begin(now)
	now += KeepIdle
	if at := step(Nothing); at <= now {
		t.Fatalf("at %d, during a change: next at %d", now, at)
	}
	m.End(now)
	now += KeepIdle
	step(Drop)
	if gen, _ := m.Look(now); gen != 0 {
		t.Error("something is kept during the drop")
	}
	m.Dropped()
	step(Release)
	m.Released(now)
	if m.Held() != None {
		t.Errorf("held as %d", m.Held())
	}
}

// What a change has added while everything was dropped is dropped when the change
// is over, and before the lock is given up.
func TestAddedDuringADrop(t *testing.T) {
	m := new(Machine)
	for range ManyLooks {
		m.Look(1)
	}
	step := func(want Task) {
		t.Helper()
		if task, _ := m.Next(1); task != want {
			t.Fatalf("task %d, want %d", task, want)
		}
	}
	step(TryKeep)
	m.Got(1)
	if !m.Begin(1) {
		t.Fatal("a change does not begin")
	}
	m.Wanted()
	step(Drop)
	m.Added()
	m.Dropped()
	step(Nothing)
	m.End(1)
	if !m.Awaited() {
		t.Error("nothing is to be done")
	}
	step(Drop)
	m.Dropped()
	step(Release)
}
