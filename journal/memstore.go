package journal

import (
	"bytes"
	"slices"
	"sync"
)

// memStore is a store in memory. Its hooks let tests fail an operation.
type memStore struct {
	mu    sync.Mutex
	pairs []pair // in order, never changed in place

	// hook is called before an operation with its name ("write", "sync",
	// "drop", "room"). When it returns an error, the operation fails with it,
	// and is done nonetheless if stored is true: the reply was lost.
	hook func(op string) (err error, stored bool)
}

// ask asks the hook, and tells whether to do it.
func (m *memStore) ask(op string) (error, bool) {
	if m.hook == nil {
		return nil, true
	}
	err, stored := m.hook(op)
	return err, stored || err == nil
}

func (m *memStore) search(key []byte) (int, bool) {
	return slices.BinarySearchFunc(m.pairs, key, func(p pair, k []byte) int {
		return bytes.Compare(p.key, k)
	})
}

func (m *memStore) write(pairs []pair) error {
	err, do := m.ask("write")
	if !do {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range pairs {
		p = pair{bytes.Clone(p.key), bytes.Clone(p.value)}
		if i, found := m.search(p.key); found {
			m.pairs[i] = p
		} else {
			m.pairs = slices.Insert(m.pairs, i, p)
		}
	}
	return err
}

func (m *memStore) scan(from, to blockKey, f func(blockKey, []byte) bool) error {
	end := to.bytes()
	for at := from.bytes(); ; {
		m.mu.Lock()
		i, _ := m.search(at)
		if i == len(m.pairs) || bytes.Compare(m.pairs[i].key, end) >= 0 {
			m.mu.Unlock()
			return nil
		}
		p := m.pairs[i]
		m.mu.Unlock()
		k, err := parseKey(p.key)
		if err != nil {
			return err
		}
		if !f(k, p.value) {
			return nil
		}
		at = k.next().bytes()
	}
}

func (m *memStore) drop(seq uint64) error {
	err, do := m.ask("drop")
	if !do {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i, _ := m.search(before(seq).bytes())
	m.pairs = slices.Delete(m.pairs, 0, i)
	return err
}

func (m *memStore) sync() error {
	err, _ := m.ask("sync")
	return err
}

func (m *memStore) room() error {
	err, _ := m.ask("room")
	return err
}

func (m *memStore) close() error { return nil }
