// Benchplot draws what go test -bench prints of everyday work (see docs/performance.md) as a
// plot, SVG or PNG by the ending of its name:
//
//	make bench-everyday | tee everyday.txt
//	go run ./internal/benchplot -o docs/images/everyday.svg everyday.txt
//
// A row is a kind of work, a mark how many times as long it takes as on the storage below.
package main
