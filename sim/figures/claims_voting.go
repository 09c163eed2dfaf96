package figures

import (
	"fmt"
	"math"
)

// Claims of section 6 of the paper on relative consensus voting.
var votingClaims = []asserted{
	fewestClaim(rcv, "requests go where the vote is not known"),
	fewestClaim(uniform, "requests go to any node"),
	{
		cao, "Burst: RT of RCV is similar to that of the other three (figure 5)", "within 25 % of their mean at every N",
		func(d *Data) (string, Verdict) {
			good := d.where(burst, func(n float64) bool {
				sum := 0.0
				for _, s := range paperFour[1:] {
					sum += d.value(rt, burst, s, n)
				}
				return near(d.value(rt, burst, rcv, n), sum/3, 0.25, 0)
			})
			return fmt.Sprintf("so %s; N = 30: %s", at("N", good, d.over(burst)), d.sideBySide(rt, burst, 30, paperFour...)), verdict(len(good), len(d.over(burst)))
		},
	},
	fallsClaim(rcv, "requests go where the vote is not known"),
	fallsClaim(uniform, "requests go to any node"),
	gapClaim(planes, "planes"),
	gapClaim(grid, "a grid"),
	{
		cao, "RT of RCV is a little higher than that of Broadcast and Ricart (figure 7)", "at most 25 % higher than either at every λ",
		func(d *Data) (string, Verdict) {
			good := d.where(rate, func(x float64) bool {
				least := math.Min(d.value(rt, rate, broadcast, x), d.value(rt, rate, ricart, x))
				return d.value(rt, rate, rcv, x) <= 1.25*least
			})
			return "so " + at("λ", good, d.over(rate)) + "; " + ends(d, rt, rcv, broadcast, ricart), verdict(len(good), len(d.over(rate)))
		},
	},
	fasterClaim(planes, "planes"),
	fasterClaim(grid, "a grid"),
	{
		cao, "Light load: [N/2] + 2 messages (section 6.1.1)", "within 10 % or one message at every N",
		func(d *Data) (string, Verdict) {
			good := d.where(light, func(n float64) bool {
				return near(d.value(nme, light, rcv, n), math.Floor(n/2)+2, 0.1, 1)
			})
			n := d.last(light)
			return fmt.Sprintf("so %s; N = %s: %.1f, said %.0f", at("N", good, d.over(light)), short(n), d.value(nme, light, rcv, n), math.Floor(n/2)+2), verdict(len(good), len(d.over(light)))
		},
	},
	{
		cao, "Heavy load: RT is N (Tn + Tc) (section 6.1.3)", "within 5 % at the greatest λ",
		func(d *Data) (string, Verdict) {
			got, want := d.value(rt, rate, rcv, d.last(rate)), rateNodes*(tn+tc)
			return fmt.Sprintf("%.0f, said %.0f", got, want), yesno(near(got, want, 0.05, 0))
		},
	},
	{
		cao, "The synchronization delay is T (section 6.1.2)", "within 10 % of Tn; partly if only under heavy load",
		func(d *Data) (string, Verdict) { return delayIs(d, rcv, tn) },
	},
}

// fewestClaim is about the messages of a burst, with RCV of a kind.
func fewestClaim(voting Series, kind string) asserted {
	return asserted{
		cao, "Burst: RCV needs the fewest messages of the four (figure 4); " + kind, "least NME at every N",
		func(d *Data) (string, Verdict) {
			others := paperFour[1:]
			good := d.where(burst, func(n float64) bool {
				for _, s := range others {
					if d.value(nme, burst, s, n) <= d.value(nme, burst, voting, n) {
						return false
					}
				}
				return true
			})
			four := append([]Series{voting}, others...)
			return fmt.Sprintf("least %s; N = %s: %s; N = 30: %s", at("N", good, d.over(burst)), short(d.first(burst)),
				d.sideBySide(nme, burst, d.first(burst), four...), d.sideBySide(nme, burst, 30, four...)), verdict(len(good), len(d.over(burst)))
		},
	}
}

// fallsClaim is about the messages under load.
func fallsClaim(voting Series, kind string) asserted {
	return asserted{
		cao, "NME of RCV falls as λ rises (figure 6); " + kind,
		"lowest at the greatest λ, and never more than 2 % above what it was at a lesser one; partly if it falls from its peak on by more than 2 %",
		func(d *Data) (string, Verdict) {
			var values []float64
			falls, peak, least := true, 0, math.Inf(1)
			for i, x := range d.over(rate) {
				v := d.value(nme, rate, voting, x)
				values = append(values, v)
				falls = falls && v <= 1.02*least
				least = math.Min(least, v)
				if v > values[peak] {
					peak = i
				}
			}
			end := values[len(values)-1]
			measured := fmt.Sprintf("%.1f at λ = %s, at most %.1f at %s, %.1f at %s", values[0], short(d.first(rate)),
				values[peak], short(d.over(rate)[peak]), end, short(d.last(rate)))
			switch {
			case falls && end == least && end < values[0]:
				return measured, holds
			case end < 0.98*values[peak]:
				return measured, partly
			}
			return measured, fails
		},
	}
}

// gapClaim is about the messages of RCV and Maekawa, with quorums of a kind.
func gapClaim(maekawa Series, quorums string) asserted {
	return asserted{
		cao, "The heavier the load, the better RCV is than Maekawa in NME (figure 6); quorums of " + quorums,
		"Maekawa's NME less RCV's grows from the lightest to the heaviest load, and is above 0 there; partly if only one of these",
		func(d *Data) (string, Verdict) {
			gap := func(x float64) float64 { return d.value(nme, rate, maekawa, x) - d.value(nme, rate, rcv, x) }
			first, last := d.first(rate), d.last(rate)
			good := 0
			if gap(last) > gap(first) {
				good++
			}
			if gap(last) > 0 {
				good++
			}
			return fmt.Sprintf("difference %+.1f at λ = %s, %+.1f at %s", gap(first), short(first), gap(last), short(last)), verdict(good, 2)
		},
	}
}

// fasterClaim is about their response time.
func fasterClaim(maekawa Series, quorums string) asserted {
	return asserted{
		cao, "RT of RCV is much lower than Maekawa's (figure 7); quorums of " + quorums, "at least 20 % lower at every λ",
		func(d *Data) (string, Verdict) {
			good := d.where(rate, func(x float64) bool {
				return d.value(rt, rate, rcv, x) <= 0.8*d.value(rt, rate, maekawa, x)
			})
			return "so " + at("λ", good, d.over(rate)) + "; " + ends(d, rt, rcv, maekawa), verdict(len(good), len(d.over(rate)))
		},
	}
}

// ends shows a measure at the lightest and at the heaviest load.
func ends(d *Data, m measure, series ...Series) string {
	return fmt.Sprintf("λ = %s: %s; λ = %s: %s", short(d.first(rate)), d.sideBySide(m, rate, d.first(rate), series...),
		short(d.last(rate)), d.sideBySide(m, rate, d.last(rate), series...))
}

func yesno(so bool) Verdict {
	if so {
		return holds
	}
	return fails
}

// delayIs checks a synchronization delay over the load.
func delayIs(d *Data, s Series, want float64) (string, Verdict) {
	good := d.where(rate, func(x float64) bool { return near(d.value(syn, rate, s, x), want, 0.1, 0) })
	return fmt.Sprintf("%s at λ = %s, %s at %s; said %s; so %s", short(d.value(syn, rate, s, d.first(rate))), short(d.first(rate)),
		short(d.value(syn, rate, s, d.last(rate))), short(d.last(rate)), short(want), at("λ", good, d.over(rate))), verdict(len(good), len(d.over(rate)))
}
