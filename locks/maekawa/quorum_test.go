package maekawa

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// What quorums must be: the properties (a) and (b) of section 2.
func checkQuorums(t *testing.T, name string, n int, quorum func(n, i int) []int) (sizes []int, load int) {
	t.Helper()
	sets := make([][]int, n)
	in := make([]int, n)
	for i := range n {
		q := quorum(n, i)
		if !slices.IsSorted(q) || len(slices.Compact(slices.Clone(q))) != len(q) || q[0] < 0 || q[len(q)-1] >= n {
			t.Fatalf("%s: quorum %d of %d is %v", name, i, n, q)
		}
		if !slices.Contains(q, i) {
			t.Fatalf("%s: %d of %d is not in its own quorum %v", name, i, n, q)
		}
		sets[i] = q
		sizes = append(sizes, len(q))
		for _, m := range q {
			in[m]++
		}
	}
	for i, a := range sets {
		for j, b := range sets[:i] {
			if !slices.ContainsFunc(a, func(m int) bool { return slices.Contains(b, m) }) {
				t.Fatalf("%s: quorums %d and %d of %d do not meet: %v, %v", name, j, i, n, b, a)
			}
		}
	}
	return sizes, slices.Max(in)
}

func average(sizes []int) float64 {
	sum := 0
	for _, s := range sizes {
		sum += s
	}
	return float64(sum) / float64(len(sizes))
}

// For every number of nodes quorums meet; a plane, where there is one, has no
// larger quorums than a grid, on the average.
func TestQuorumsMeet(t *testing.T) {
	most := long.OrPure(100, 320)
	if testing.Short() {
		most = 80
	}
	for n := 1; n <= most; n++ {
		grid, _ := checkQuorums(t, "grid", n, Grid)
		sizes, _ := checkQuorums(t, "quorum", n, Quorum)
		if average(sizes) > average(grid) {
			t.Errorf("%d nodes: quorums of %.2f, the grid has %.2f", n, average(sizes), average(grid))
		}
		if bound := 2*math.Sqrt(float64(n)) + 2; average(sizes) > bound {
			t.Errorf("%d nodes: quorums of %.2f", n, average(sizes))
		}
	}
}

// Every difference occurs once, so two lines of a plane meet in one point.
func TestPlanesAreDifferenceSets(t *testing.T) {
	for _, d := range planes {
		v := points(d)
		seen := make([]bool, v)
		for _, a := range d {
			for _, b := range d {
				if x := (a - b + v) % v; a != b && seen[x] {
					t.Fatalf("%v: the difference %d occurs twice", d, x)
				} else if a != b {
					seen[x] = true
				}
			}
		}
	}
}

// The sizes of quorums: least, most, and the most quorums that one node is
// in, of folded planes and of grids.
func TestQuorumSizes(t *testing.T) {
	for _, c := range []struct {
		n           int
		plane       string
		average     float64
		load        int
		grid        string
		gridAverage float64
	}{
		{1, "1-1", 1, 1, "1-1", 1}, {2, "2-2", 2, 2, "2-2", 2}, {3, "2-2", 2, 2, "2-3", 2.33},
		{4, "3-3", 3, 3, "3-3", 3}, {5, "2-3", 2.8, 3, "3-4", 3.4}, {6, "3-3", 3, 4, "4-4", 4},
		{7, "3-3", 3, 3, "3-5", 4.14}, {8, "3-4", 3.5, 4, "4-5", 4.5}, {9, "3-4", 3.56, 4, "5-5", 5},
		{10, "4-4", 4, 5, "4-6", 5.2}, {11, "3-4", 3.91, 5, "5-6", 5.55}, {12, "4-4", 4, 6, "6-6", 6},
		{13, "4-4", 4, 4, "4-7", 6.08}, {15, "4-5", 4.67, 6, "6-7", 6.6}, {20, "5-5", 5, 8, "8-8", 8},
		{21, "5-5", 5, 5, "5-9", 8.05}, {25, "5-6", 5.76, 8, "9-9", 9}, {29, "5-6", 5.97, 9, "9-10", 9.69},
		{30, "6-6", 6, 10, "10-10", 10}, {31, "6-6", 6, 6, "6-11", 10.03}, {32, "7-8", 7.22, 9, "7-11", 10.12},
		{36, "7-8", 7.42, 10, "11-11", 11}, {42, "7-8", 7.67, 11, "12-12", 12}, {44, "8-8", 8, 12, "8-13", 12.09},
		{50, "7-8", 7.86, 12, "8-14", 13.04},
	} {
		plane, load := checkQuorums(t, "plane", c.n, Plane)
		grid, _ := checkQuorums(t, "grid", c.n, Grid)
		sizes := func(s []int) string { return fmt.Sprintf("%d-%d", slices.Min(s), slices.Max(s)) }
		near := func(a, b float64) bool { return math.Abs(a-b) <= 0.005+1e-9 }
		if sizes(plane) != c.plane || !near(average(plane), c.average) || load != c.load {
			t.Errorf("%d nodes: planes of %s (%.2f), load %d; want %s (%.2f), %d", c.n, sizes(plane), average(plane), load, c.plane, c.average, c.load)
		}
		if sizes(grid) != c.grid || !near(average(grid), c.gridAverage) {
			t.Errorf("%d nodes: grids of %s (%.2f); want %s (%.2f)", c.n, sizes(grid), average(grid), c.grid, c.gridAverage)
		}
	}
}

// figure1 are the sets of Figure 1 of the paper, as it numbers them.
var figure1 = map[int]string{
	3: `1: 1 2, 2: 2 3, 3: 1 3`,
	7: `1: 1 2 3, 4: 1 4 5, 6: 1 6 7, 2: 2 4 6, 5: 2 5 7, 7: 3 4 7, 3: 3 5 6`,
	13: `1: 1 2 3 4, 5: 1 5 6 7, 8: 1 8 9 10, 11: 1 11 12 13, 2: 2 5 8 11, 6: 2 6 9 12, 7: 2 7 10 13,
		10: 3 5 10 12, 3: 3 6 8 13, 9: 3 7 9 11, 13: 4 5 9 13, 4: 4 6 10 11, 12: 4 7 8 12`,
	21: `1: 1 2 3 4 5, 6: 1 6 7 8 9, 10: 1 10 11 12 13, 14: 1 14 15 16 17, 18: 1 18 19 20 21, 2: 2 6 10 14 18,
		7: 2 7 11 15 19, 8: 2 8 12 16 20, 9: 2 9 13 17 21, 11: 3 6 11 17 20, 3: 3 7 10 16 21, 13: 3 8 13 15 18,
		12: 3 9 12 14 19, 15: 4 6 12 15 21, 4: 4 7 13 14 20, 17: 4 8 10 17 19, 16: 4 9 11 16 18, 19: 5 6 13 16 19,
		5: 5 7 12 17 18, 21: 5 8 11 14 21, 20: 5 9 10 15 20`,
}

// paperQuorum is the quorum of Figure 1; its node i is the index i-1 here.
func paperQuorum(n, i int) []int {
	for _, s := range strings.Split(figure1[n], ",") {
		name, list, _ := strings.Cut(s, ":")
		var id int
		if _, err := fmt.Sscan(name, &id); err != nil {
			panic(err)
		}
		if id != i+1 {
			continue
		}
		var q []int
		for _, f := range strings.Fields(list) {
			var m int
			if _, err := fmt.Sscan(f, &m); err != nil {
				panic(err)
			}
			q = append(q, m-1)
		}
		return q
	}
	panic("not in the figure")
}

// The sets of Figure 1 have the properties (a) to (d) of section 2, and so have
// ours for the same numbers of nodes: K members, each in K quorums, two
// quorums with one member in common, and N = K(K-1)+1.
func TestFigure1(t *testing.T) {
	for n := range figure1 {
		for name, quorum := range map[string]func(n, i int) []int{"figure 1": paperQuorum, "ours": Quorum} {
			sizes, load := checkQuorums(t, name, n, quorum)
			k := sizes[0]
			if slices.Min(sizes) != slices.Max(sizes) || load != k || n != k*(k-1)+1 {
				t.Errorf("%s, %d nodes: sizes %v, load %d", name, n, sizes, load)
			}
			for i := range n {
				for j := range i {
					both := slices.DeleteFunc(quorum(n, i), func(m int) bool { return !slices.Contains(quorum(n, j), m) })
					if len(both) != 1 {
						t.Errorf("%s, %d nodes: quorums %d and %d have %v in common", name, n, i, j, both)
					}
				}
			}
		}
	}
}

// Our seven quorums are those of Figure 1 (b) under other names of the nodes.
func TestOurPlaneOfSevenIsTheOneOfFigure1(t *testing.T) {
	want := map[string]bool{}
	for i := range 7 {
		want[fmt.Sprint(paperQuorum(7, i))] = true
	}
	names := []int{0, 1, 2, 3, 4, 5, 6}
	found := false
	var permute func(k int)
	permute = func(k int) {
		if found {
			return
		}
		if k == len(names) {
			for i := range 7 {
				q := Quorum(7, i)
				for j := range q {
					q[j] = names[q[j]]
				}
				slices.Sort(q)
				if !want[fmt.Sprint(q)] {
					return
				}
			}
			found = true
			return
		}
		for i := k; i < len(names); i++ {
			names[k], names[i] = names[i], names[k]
			permute(k + 1)
			names[k], names[i] = names[i], names[k]
		}
	}
	permute(0)
	if !found {
		t.Error("there are no such names")
	}
}

// The quorums of the figure, which are not cyclic, do as well.
func TestSimulateFigure1(t *testing.T) {
	opt := options
	opt.Nodes = 7
	locktest.Simulate(t, With(Options{Quorum: paperQuorum}), opt)
}
