package maekawa

import "slices"

// planes are perfect difference sets D: every number but 0 modulo v is the
// difference of one pair in D, so the sets i+D are the lines of a finite
// projective plane of v = q(q+1)+1 points. There is one for each power q of a
// prime, by Singer's construction (Trans. AMS 43, 1938); none is known for
// other q. The first "plane" has the points of a triangle.
var planes = [][]int{
	{0, 1},
	{0, 1, 3},
	{0, 1, 3, 9},
	{0, 1, 4, 14, 16},
	{0, 1, 3, 8, 12, 18},
	{0, 1, 3, 13, 32, 36, 43, 52},
	{0, 1, 3, 7, 15, 31, 36, 54, 63},
	{0, 1, 3, 9, 27, 49, 56, 61, 77, 81},
	{0, 1, 3, 12, 20, 34, 38, 81, 88, 94, 104, 109},
	{0, 1, 3, 16, 23, 28, 42, 76, 82, 86, 119, 137, 154, 175},
	{0, 1, 3, 7, 15, 31, 63, 90, 116, 127, 136, 181, 194, 204, 233, 238, 255},
	{0, 1, 3, 21, 25, 31, 68, 77, 91, 170, 177, 185, 196, 212, 225, 257, 269, 274},
}

// points is the number of points, and of lines, of a plane with that set.
func points(d []int) int { return len(d)*(len(d)-1) + 1 }

// Quorum is the quorum of node i of n: the indexes of its members, in order,
// i among them. Any two quorums of one n have a member in common. It is a
// [Plane] where there is one that is large enough, which is up to 307 nodes;
// its quorums are never larger than those of the [Grid], on the average.
func Quorum(n, i int) []int {
	if n > points(planes[len(planes)-1]) {
		return Grid(n, i)
	}
	return Plane(n, i)
}

// Plane is a quorum in the smallest plane with at least n points: the line
// i+D. The points that are no nodes are folded onto those that are, e onto
// e mod n: what two lines have in common they still have. There is no plane
// for more than 307 nodes; Plane panics then.
func Plane(n, i int) []int {
	k := slices.IndexFunc(planes, func(d []int) bool { return points(d) >= n })
	if k < 0 {
		panic("maekawa: no plane is known for so many nodes")
	}
	d := planes[k]
	q := make([]int, len(d))
	for j, x := range d {
		q[j] = (i + x) % points(d) % n
	}
	slices.Sort(q)
	return slices.Compact(q)
}

// Grid is the row and the column of i when the nodes are written in rows of
// the square root of n, rounded up. The last row may be short: of two nodes,
// the column of the one in the lower row crosses the row of the other.
func Grid(n, i int) []int {
	w := 1
	for w*w < n {
		w++
	}
	var q []int
	for k := range n {
		if k/w == i/w || k%w == i%w {
			q = append(q, k)
		}
	}
	return q
}
