package figures

import (
	"reflect"
	"testing"
)

func TestLinear(t *testing.T) {
	for _, c := range []struct {
		most float64
		want []float64
	}{
		{98, []float64{0, 20, 40, 60, 80, 100}},
		{100, []float64{0, 20, 40, 60, 80, 100}},
		{30, []float64{0, 5, 10, 15, 20, 25, 30}},
		{0.9, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
	} {
		if end, got := linear(c.most); !reflect.DeepEqual(got, c.want) || end != c.want[len(c.want)-1] {
			t.Errorf("linear(%v) = %v, %v, want %v", c.most, end, got, c.want)
		}
	}
}

func TestLogarithmic(t *testing.T) {
	for _, c := range []struct {
		least, most float64
		want        []float64
	}{
		{0.0001, 0.02, []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02}},
		{0.87, 86, []float64{0.5, 1, 2, 5, 10, 20, 50, 100}},
		{1, 30, []float64{1, 2, 5, 10, 20, 50}},
		{7, 7, []float64{5, 10}},
		{10, 10, []float64{10, 20}},
	} {
		if begin, end, got := logarithmic(c.least, c.most); !reflect.DeepEqual(got, c.want) || begin != c.want[0] || end != c.want[len(c.want)-1] {
			t.Errorf("logarithmic(%v, %v) = %v, %v, %v, want %v", c.least, c.most, begin, end, got, c.want)
		}
	}
}
