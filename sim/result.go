package sim

import (
	"encoding/json"
	"math"
)

// Result is what one run has measured; see the package comment. What there was
// none of is NaN.
type Result struct {
	CS       int // completed
	Messages int // sent

	NME       float64 // messages per CS
	RT        float64 // mean
	RTRead    float64 // mean of those that read
	RTWrite   float64 // mean of those that write
	RTP99     float64 // 99 of 100 take no longer
	RTMax     float64
	Sync      float64 // mean
	Fairness  float64
	Overtaken float64
	Bytes     float64 // per CS, if they were measured
}

var nothing = math.NaN()

func mean(s []Time) float64 {
	if len(s) == 0 {
		return nothing
	}
	sum := 0.0
	for _, t := range s {
		sum += t.units()
	}
	return sum / float64(len(s))
}

// jain is the index of fairness of Jain, Chiu and Hawe (1984).
func jain(shares []int) float64 {
	sum, squares := 0.0, 0.0
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// Stat is a measure over several runs.
type Stat struct {
	Mean float64
	SD   float64 // of the runs, with N-1; 0 for one run
	N    int     // runs that had it; if 0, there is no Mean
}

// MarshalJSON writes null if no run had it.
func (s Stat) MarshalJSON() ([]byte, error) {
	if s.N == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(struct {
		Mean float64 `json:"mean"`
		SD   float64 `json:"sd"`
	}{s.Mean, s.SD})
}

// Summary is the same measures over the runs of several seeds.
type Summary struct {
	Runs      int  `json:"runs"`
	CS        int  `json:"cs"`       // of all runs
	Messages  int  `json:"messages"` // of all runs
	NME       Stat `json:"nme"`
	RT        Stat `json:"rt"`
	RTRead    Stat `json:"rt_read"`
	RTWrite   Stat `json:"rt_write"`
	RTP99     Stat `json:"rt_p99"`
	RTMax     Stat `json:"rt_max"`
	Sync      Stat `json:"sync_delay"`
	Fairness  Stat `json:"fairness"`
	Overtaken Stat `json:"overtaken"`
	Bytes     Stat `json:"bytes"`
}

// Summarize puts runs together.
func Summarize(runs []*Result) Summary {
	s := Summary{Runs: len(runs)}
	for _, r := range runs {
		s.CS += r.CS
		s.Messages += r.Messages
	}
	over := func(measure func(*Result) float64) Stat { return statOf(runs, measure) }
	s.NME = over(func(r *Result) float64 { return r.NME })
	s.RT = over(func(r *Result) float64 { return r.RT })
	s.RTRead = over(func(r *Result) float64 { return r.RTRead })
	s.RTWrite = over(func(r *Result) float64 { return r.RTWrite })
	s.RTP99 = over(func(r *Result) float64 { return r.RTP99 })
	s.RTMax = over(func(r *Result) float64 { return r.RTMax })
	s.Sync = over(func(r *Result) float64 { return r.Sync })
	s.Fairness = over(func(r *Result) float64 { return r.Fairness })
	s.Overtaken = over(func(r *Result) float64 { return r.Overtaken })
	s.Bytes = over(func(r *Result) float64 { return r.Bytes })
	return s
}

func statOf(runs []*Result, measure func(*Result) float64) Stat {
	var s Stat
	sum := 0.0
	for _, r := range runs {
		if v := measure(r); !math.IsNaN(v) {
			s.N++
			sum += v
		}
	}
	if s.N == 0 {
		return s
	}
	s.Mean = sum / float64(s.N)
	if s.N > 1 {
		squares := 0.0
		for _, r := range runs {
			if v := measure(r); !math.IsNaN(v) {
				d := v - s.Mean
				squares += d * d
			}
		}
		s.SD = math.Sqrt(squares / float64(s.N-1))
	}
	return s
}
