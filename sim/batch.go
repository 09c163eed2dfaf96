package sim

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Batch runs all of them, as many at a time as there are processors, and
// returns the results in their order. done, if not nil, is called after each
// run, one call at a time.
func Batch(ctx context.Context, runs []Config, done func()) ([]*Result, error) {
	results := make([]*Result, len(runs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	for i, c := range runs {
		g.Go(func() error {
			r, err := Run(ctx, c)
			if err != nil {
				return err
			}
			results[i] = r
			if done != nil {
				mu.Lock()
				defer mu.Unlock()
				done()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return results, nil
}

// Seeds is c with n seeds, from its own on.
func (c Config) Seeds(n int) []Config {
	all := make([]Config, n)
	for i := range all {
		all[i] = c
		all[i].Seed += uint64(i)
	}
	return all
}
