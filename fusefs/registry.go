package fusefs

import "sync"

// registry finds things by the numbers under which the kernel knows them.
// Numbers are never used again.
type registry[T any] struct {
	mu sync.RWMutex
	m  map[uint64]*T
}

func (r *registry[T]) get(id uint64) *T {
	r.mu.RLock()
	v := r.m[id]
	r.mu.RUnlock()
	return v
}

func (r *registry[T]) put(id uint64, v *T) {
	r.mu.Lock()
	if r.m == nil {
		r.m = make(map[uint64]*T)
	}
	r.m[id] = v
	r.mu.Unlock()
}

// take removes and returns what is under id, or nil.
func (r *registry[T]) take(id uint64) *T {
	r.mu.Lock()
	v := r.m[id]
	delete(r.m, id)
	r.mu.Unlock()
	return v
}

// all is what is registered now, in no order.
func (r *registry[T]) all() []*T {
	r.mu.RLock()
	defer r.mu.RUnlock()
	vs := make([]*T, 0, len(r.m))
	for _, v := range r.m {
		vs = append(vs, v)
	}
	return vs
}

func (r *registry[T]) len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.m)
}
