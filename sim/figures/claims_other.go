package figures

import (
	"fmt"
	"math"

	"github.com/dmxfs/dmxfs/locks/maekawa"
)

var quorumClaims = []asserted{
	memberClaim(planes, "planes", maekawa.Quorum),
	memberClaim(grid, "a grid", maekawa.Grid),
	{
		cao, "The synchronization delay of Maekawa is 2T (section 2); quorums of planes", "within 10 % of 2Tn at every λ",
		func(d *Data) (string, Verdict) { return delayIs(d, planes, 2*tn) },
	},
	{
		cao, "The synchronization delay of Maekawa is 2T (section 2); quorums of a grid", "within 10 % of 2Tn at every λ",
		func(d *Data) (string, Verdict) { return delayIs(d, grid, 2*tn) },
	},
}

// memberClaim is about the messages of Maekawa's algorithm, with quorums of a
// kind.
func memberClaim(s Series, kind string, quorum func(n, i int) []int) asserted {
	return asserted{
		paperM, "3 to 5 messages for each member of the quorum; quorums of " + kind,
		"on the average, oneself left out, 2.95 to 5 at every N and λ: all at once, one after the other, and in between",
		func(d *Data) (string, Verdict) {
			low, high := math.Inf(1), 0.0
			per := func(experiment string, x float64, n int) {
				members := 0
				for i := range n {
					members += len(quorum(n, i)) - 1
				}
				v := d.value(nme, experiment, s, x) * float64(n) / float64(members)
				low, high = math.Min(low, v), math.Max(high, v)
			}
			for _, experiment := range []string{burst, light} {
				for _, n := range d.over(experiment) {
					per(experiment, n, int(n))
				}
			}
			for _, x := range d.over(rate) {
				per(rate, x, rateNodes)
			}
			return fmt.Sprintf("%.2f to %.2f", low, high), yesno(low >= 2.95 && high <= 5)
		},
	}
}

var otherClaims = []asserted{
	{
		paperRA, "2(N-1) messages, always", "within 1 % everywhere",
		func(d *Data) (string, Verdict) {
			return always(d, ricart, func(n float64) float64 { return 2 * (n - 1) }, 0.01)
		},
	},
	{
		paperSK, "N messages, or none where the token is", "at most N, and within 10 % of N under the heaviest load",
		func(d *Data) (string, Verdict) {
			got := d.value(nme, rate, broadcast, d.last(rate))
			most := d.where(light, func(n float64) bool { return d.value(nme, light, broadcast, n) <= n })
			return fmt.Sprintf("%.1f at N = 30 under the heaviest load; one after the other: at most N %s", got, at("N", most, d.over(light))),
				yesno(near(got, rateNodes, 0.1, 0) && len(most) == len(d.over(light)))
		},
	},
	{
		cao, "Light load: Broadcast and Ricart answer in 2T (section 2)", "RT within 10 % of 2Tn + Tc at the least λ",
		func(d *Data) (string, Verdict) {
			a, b := d.value(rt, rate, broadcast, d.first(rate)), d.value(rt, rate, ricart, d.first(rate))
			return fmt.Sprintf("%.1f and %.1f, said %.0f", a, b, 2*tn+tc), yesno(near(a, 2*tn+tc, 0.1, 0) && near(b, 2*tn+tc, 0.1, 0))
		},
	},
	{
		paperL, "An R-lock costs no message", "none at all when all read",
		func(d *Data) (string, Verdict) {
			sent := d.At(reads, liu(0), 1)
			return fmt.Sprintf("%d messages for %d reads", sent.Messages, sent.CS), yesno(sent.Messages == 0 && sent.CS > 0)
		},
	},
	{
		paperL, "A write that is alone costs 2(N-1) messages, as with Ricart-Agrawala", "within 5 % at every N, one request after the other",
		func(d *Data) (string, Verdict) {
			good := d.where(light, func(n float64) bool { return near(d.value(nme, light, liu(0), n), 2*(n-1), 0.05, 0) })
			return fmt.Sprintf("so %s; N = 30: %.0f, said 58", at("N", good, d.over(light)), d.value(nme, light, liu(0), 30)),
				verdict(len(good), len(d.over(light)))
		},
	},
	{
		paperL, "Writes that are all concurrent cost N messages", "within 5 % at every N, all nodes at once",
		func(d *Data) (string, Verdict) {
			good := d.where(burst, func(n float64) bool { return near(d.value(nme, burst, liu(0), n), n, 0.05, 0) })
			return fmt.Sprintf("so %s; N = 30: %.1f", at("N", good, d.over(burst)), d.value(nme, burst, liu(0), 30)), verdict(len(good), len(d.over(burst)))
		},
	},
	{
		paperL, "The synchronization delay is one message delay", "within 10 % of Tn at every λ; partly if only under heavy load",
		func(d *Data) (string, Verdict) { return delayIs(d, liu(0), tn) },
	},
	{
		paperT, "N-1 messages", "within 1 % everywhere, N = 5 and above",
		func(d *Data) (string, Verdict) {
			return always(d, ring, func(n float64) float64 { return n - 1 }, 0.01)
		},
	},
}

// always checks NME against a formula in N, in all of the papers' experiments.
func always(d *Data, s Series, formula func(n float64) float64, share float64) (string, Verdict) {
	good, of := 0, 0
	count := func(experiment string, x, n float64) {
		of++
		if near(d.value(nme, experiment, s, x), formula(n), share, 0) {
			good++
		}
	}
	for _, experiment := range []string{burst, light} {
		for _, n := range d.over(experiment) {
			count(experiment, n, n)
		}
	}
	for _, x := range d.over(rate) {
		count(rate, x, rateNodes)
	}
	return fmt.Sprintf("so at %d of %d points; N = 30: %.1f in the burst, %.1f one after the other, %.1f under the heaviest load; said %.0f", good, of,
		d.value(nme, burst, s, 30), d.value(nme, light, s, 30), d.value(nme, rate, s, d.last(rate)), formula(30)), verdict(good, of)
}

// What locks/rw promises, since it is what is shipped.
var ownClaims = []asserted{
	{
		ours, "rw: an R-lock costs no message where nobody writes", "none at all when all read",
		func(d *Data) (string, Verdict) {
			sent := d.At(reads, rw(0), 1)
			return fmt.Sprintf("%d messages for %d reads", sent.Messages, sent.CS), yesno(sent.Messages == 0 && sent.CS > 0)
		},
	},
	{
		ours, "rw: a lock that one node repeats costs no message", "only the first one does: 2(N-1) in all",
		func(d *Data) (string, Verdict) {
			s := d.At(active, rw(0), 1)
			return fmt.Sprintf("%.0f messages for %d locks", float64(s.Messages)/float64(s.Runs), s.CS/s.Runs),
				yesno(s.Messages == s.Runs*2*(rateNodes-1))
		},
	},
	{
		ours, "rw: two nodes that use a lock exchange at most 2 messages for each, whatever N", "at most 2, and the first ones",
		func(d *Data) (string, Verdict) {
			s := d.At(active, rw(0), 2)
			first := float64(4*(rateNodes-1)*s.Runs) / float64(s.CS)
			return fmt.Sprintf("%.2f", s.NME.Mean), yesno(s.NME.Mean <= 2+first)
		},
	},
	{
		ours, "rw: never dearer than Ricart-Agrawala, and half of it for random writers one after the other", "at most 2(N-1) everywhere; within 10 % of N-1 at N = 30",
		func(d *Data) (string, Verdict) {
			bound := func(n float64) float64 { return 2*(n-1) + 0.5 }
			good, of := 0, 0
			for _, f := range fractions {
				for _, experiment := range []string{burst, light} {
					for _, n := range d.over(experiment) {
						of++
						if d.value(nme, experiment, rw(f), n) <= bound(n) {
							good++
						}
					}
				}
				for _, x := range d.over(rate) {
					of++
					if d.value(nme, rate, rw(f), x) <= bound(rateNodes) {
						good++
					}
				}
			}
			half := d.value(nme, light, rw(0), 30)
			of++
			if near(half, 29, 0.1, 0) {
				good++
			}
			return fmt.Sprintf("so at %d of %d points; %.1f one after the other at N = 30 (Ricart-Agrawala 58, Liu %.0f)", good, of, half, d.value(nme, light, liu(0), 30)), verdict(good, of)
		},
	},
	{
		ours, "Keeping permissions makes rw cheaper than the paper's form", "lower NME than Liu at the same share of reads, at every λ",
		func(d *Data) (string, Verdict) {
			good, of := 0, 0
			worst, where := 0.0, ""
			for _, f := range fractions {
				for _, x := range d.over(rate) {
					of++
					a, b := d.value(nme, rate, rw(f), x), d.value(nme, rate, liu(f), x)
					if a < b {
						good++
					}
					if r := a / b; r > worst {
						worst, where = r, fmt.Sprintf("reads %v, λ = %s", f, short(x))
					}
				}
			}
			return fmt.Sprintf("so at %d of %d points; at worst %.2f times Liu's (%s); λ = %s: %s", good, of, worst, where,
				short(d.first(rate)), d.sideBySide(nme, rate, d.first(rate), rw(0), liu(0), rw(0.9), liu(0.9))), verdict(good, of)
		},
	},
}
