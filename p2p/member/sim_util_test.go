package member_test

import "slices"

// percentiles are the median, the 99th percentile and the maximum.
func percentiles(x []int64) (p50, p99, top int64) {
	if len(x) == 0 {
		return 0, 0, 0
	}
	slices.Sort(x)
	return x[len(x)/2], x[len(x)*99/100], x[len(x)-1]
}
