// Package metrics counts what a daemon does and shows it to Prometheus.
//
// A [Set] is counted into on the way of requests and locks: each call is some
// atomic additions, takes no mutex, allocates nothing and reads no clock (measured
// by the benchmarks beside it). What can be asked for when somebody looks, such as
// the number of members, is in a [Snapshot], which [Handler] takes anew for each look.
//
// # Names
//
// They follow Prometheus's conventions: base units (seconds, bytes), _total for
// counters. Labels are class, algorithm, request, operation, state, and for members
// peer and host. None grows with files or processes; paths are shown only to who asks
// for some of them ([Handler.Paths]).
//
// # Histograms
//
// Durations are native histograms of schema 2: four buckets for each doubling, so a
// quantile is off by 9 in 100 at most. For those who read the text format, or whose
// Prometheus does not take native ones, they have classic buckets as well: one for
// each factor of four, from 2^-20 s (about 1 µs) to 2^12 s.
package metrics
