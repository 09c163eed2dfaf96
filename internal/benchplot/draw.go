package main

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// marks tell the series apart, also in black and white (colors: Okabe and Ito, "Color
// Universal Design", 2002).
var marks = []draw.GlyphStyle{
	{Color: color.RGBA{0x80, 0x80, 0x80, 0xff}, Shape: draw.RingGlyph{}},
	{Color: color.RGBA{0x00, 0x72, 0xb2, 0xff}, Shape: draw.CircleGlyph{}},
	{Color: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, Shape: draw.TriangleGlyph{}},
	{Color: color.RGBA{0xcc, 0x79, 0xa7, 0xff}, Shape: draw.CrossGlyph{}},
}

// figure is the plot of what was measured.
func figure(all []result) (*plot.Plot, error) {
	all = slices.Clone(all)
	slices.Reverse(all) // the first one is the uppermost
	p := plot.New()
	p.X.Label.Text = "times as long as on the storage below (less is better)"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks{}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	low, high := 1.0, 1.0
	for i, s := range series {
		var xys plotter.XYs
		for row, x := range all {
			if v, ok := s.of(x.values); ok {
				xys = append(xys, plotter.XY{X: v, Y: float64(row)})
				low, high = min(low, v), max(high, v)
			}
		}
		if len(xys) == 0 {
			continue
		}
		sc, err := plotter.NewScatter(xys)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.label, err)
		}
		sc.GlyphStyle = marks[i]
		sc.Radius = vg.Points(3.5)
		p.Add(sc)
		p.Legend.Add(s.label, sc)
	}
	if len(all) == 0 || high == low {
		return nil, fmt.Errorf("nothing was measured: a result has the unit x-storage")
	}
	same, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(all)) - 0.5}})
	if err != nil {
		return nil, err
	}
	same.Width = vg.Points(1)
	p.Add(same)
	var names []string
	for _, x := range all {
		names = append(names, x.name)
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max = low/1.2, high*1.2
	p.Y.Min, p.Y.Max = -0.5, float64(len(all))+float64(len(series))*0.5 // room for the legend
	return p, nil
}

// ticks are 1, 2, 5, 10 and so on.
type ticks struct{}

func (ticks) Ticks(low, high float64) []plot.Tick {
	var all []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= low && v <= high {
				all = append(all, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
			}
		}
	}
	return all
}
