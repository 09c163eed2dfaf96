package metrics

import (
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Family is a metric with its samples, for programs that do not read Prometheus's
// format.
type Family struct {
	Name    string   `json:"name"`
	Help    string   `json:"help"`
	Type    string   `json:"type"` // counter, gauge, histogram, …
	Samples []Sample `json:"samples"`
}

// Sample is one value, or the count and sum of a histogram or summary.
type Sample struct {
	Labels map[string]string `json:"labels"`
	Value  *float64          `json:"value,omitempty"`
	Count  *uint64           `json:"count,omitempty"`
	Sum    *float64          `json:"sum,omitempty"`
}

// Decode reads the text format. The families come by name.
func Decode(r io.Reader) ([]Family, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(r)
	if err != nil {
		return nil, err
	}
	out := make([]Family, 0, len(all))
	for _, f := range all {
		x := Family{Name: f.GetName(), Help: f.GetHelp(), Type: strings.ToLower(f.GetType().String()), Samples: []Sample{}}
		for _, m := range f.GetMetric() {
			x.Samples = append(x.Samples, sample(m))
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func sample(m *dto.Metric) Sample {
	s := Sample{Labels: map[string]string{}}
	for _, l := range m.GetLabel() {
		s.Labels[l.GetName()] = l.GetValue()
	}
	switch {
	case m.Counter != nil:
		s.Value = m.Counter.Value
	case m.Gauge != nil:
		s.Value = m.Gauge.Value
	case m.Untyped != nil:
		s.Value = m.Untyped.Value
	case m.Histogram != nil:
		s.Count, s.Sum = m.Histogram.SampleCount, m.Histogram.SampleSum
	case m.Summary != nil:
		s.Count, s.Sum = m.Summary.SampleCount, m.Summary.SampleSum
	}
	return s
}
