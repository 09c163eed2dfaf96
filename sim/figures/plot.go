package figures

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is one plot: a measure of some series of an experiment.
type Figure struct {
	Name       string // of the files, without ending
	Title      string
	experiment string
	measure    measure
	series     []Series
	logX, logY bool
	// formula, if not nil, is drawn beside them.
	formula      func(x float64) float64
	formulaLabel string
}

// Figures are all of them.
func Figures() []Figure {
	kinds := readWrite()
	withRing := append(slices.Clone(paperSix), ring)
	return []Figure{
		{Name: "figure-4-burst-nme", Title: "Figure 4: all nodes ask at once", experiment: burst, measure: nme, series: paperSix},
		{Name: "figure-5-burst-rt", Title: "Figure 5: all nodes ask at once", experiment: burst, measure: rt, series: paperSix},
		{Name: "figure-6-rate-nme", Title: "Figure 6: N = 30, over the load", experiment: rate, measure: nme, series: paperSix, logX: true},
		{Name: "figure-7-rate-rt", Title: "Figure 7: N = 30, over the load", experiment: rate, measure: rt, series: paperSix, logX: true, logY: true},
		{Name: "figure-4-read-write", Title: "As figure 4, with readers", experiment: burst, measure: nme, series: kinds, logY: true},
		{Name: "figure-5-read-write", Title: "As figure 5, with readers", experiment: burst, measure: rt, series: kinds, logY: true},
		{Name: "figure-6-read-write", Title: "As figure 6, with readers", experiment: rate, measure: nme, series: kinds, logX: true, logY: true},
		{Name: "figure-7-read-write", Title: "As figure 7, with readers", experiment: rate, measure: rt, series: kinds, logX: true, logY: true},
		{Name: "light-nme", Title: "One request after the other", experiment: light, measure: nme, series: withRing,
			formula: func(x float64) float64 { return math.Floor(x/2) + 2 }, formulaLabel: "[N/2] + 2"},
		{Name: "sync-delay", Title: "N = 30, over the load: from one to the next", experiment: rate, measure: syn, series: withRing, logX: true},
		{Name: "reads-nme", Title: "N = 30, λ = 0.002: what readers save", experiment: reads, measure: nme,
			series: []Series{rw(0), givenBack(rw(0)), liu(0), ricart, broadcast}},
		{Name: "kept-nme", Title: "N = 30, one request after the other: what keeping saves", experiment: active, measure: nme, logX: true,
			series: []Series{rw(0), givenBack(rw(0)), liu(0), ricart, broadcast, kept(rcv), kept(planes), kept(ring)}},
	}
}

// label is that of a legend; where reads are the axis it says nothing of them.
func (f *Figure) label(s Series) string {
	if f.experiment == reads || f.experiment == active {
		return strings.Replace(s.Label, ", reads 0", "", 1)
	}
	return s.Label
}

// colors are told apart by people who do not see all of them (Okabe and Ito,
// "Color Universal Design", 2002).
var colors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0x80, 0x80, 0x80, 0xff},
}

var glyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{},
	draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.PlusGlyph{},
}

// style: where rw and Liu are beside each other, a color is a share of reads,
// and Liu is dashed; else a color is a series.
func (f *Figure) style(i int, s Series) (color.Color, draw.GlyphDrawer, []vg.Length) {
	if len(f.series) > len(colors) {
		if s.Algorithm == "ring" {
			return colors[4], glyphs[4], nil
		}
		var dashes []vg.Length
		if s.Algorithm == "liu" {
			dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		return colors[i/2], glyphs[i/2], dashes
	}
	return colors[i], glyphs[i], nil
}

const (
	width  = 20 * vg.Centimeter
	height = 12 * vg.Centimeter
	aside  = 4.5 * vg.Centimeter // for the legend
)

// SVG draws the figure.
func (d *Data) SVG(f Figure) ([]byte, error) {
	c := vgsvg.New(width, height)
	if err := d.draw(f, draw.New(c)); err != nil {
		return nil, err
	}
	return written(c)
}

// PNG draws the figure.
func (d *Data) PNG(f Figure) ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(120))
	if err := d.draw(f, draw.New(c)); err != nil {
		return nil, err
	}
	return written(vgimg.PngCanvas{Canvas: c})
}

func written(w io.WriterTo) ([]byte, error) {
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	return b.Bytes(), err
}

func (d *Data) draw(f Figure, c draw.Canvas) error {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = f.Title
	p.Title.Padding = vg.Points(8)
	p.X.Padding, p.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xdd}
	p.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding = vg.Points(3)
	for i, s := range f.series {
		xys := f.xys(func(x float64) float64 { return d.value(f.measure, f.experiment, s, x) }, d)
		line, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", f.Name, s.Label, err)
		}
		line.Color, points.Shape, line.Dashes = f.style(i, s)
		line.Width = vg.Points(1.5)
		points.Color, points.Radius = line.Color, vg.Points(2.5)
		p.Add(line, points)
		legend.Add(f.label(s), line, points)
	}
	if f.formula != nil {
		line, err := plotter.NewLine(f.xys(f.formula, d))
		if err != nil {
			return fmt.Errorf("%s, formula: %w", f.Name, err)
		}
		line.Color, line.Width, line.Dashes = color.Gray{0x60}, vg.Points(1), []vg.Length{vg.Points(2), vg.Points(2)}
		p.Add(line)
		legend.Add(f.formulaLabel, line)
	}
	d.axes(f, p)
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	margin := vg.Points(6)
	// Not as p.Y.Label: on a logarithmic scale gonum takes that to be where it
	// is not, and leaves room for it above the figure.
	label := p.Y.Label.TextStyle
	label.Rotation = math.Pi / 2
	beside := 2*margin + label.Height(f.measure.label)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	c.FillText(label, vg.Point{X: beside - margin, Y: c.Center().Y}, f.measure.label)
	p.Draw(draw.Crop(c, beside, -aside, margin, -margin))
	legend.Draw(draw.Crop(c, width-aside+margin, 0, 0, -vg.Points(30)))
	return nil
}

// axes gives both axes their labels, and the vertical one round ends. It comes
// after the data.
func (d *Data) axes(f Figure, p *plot.Plot) {
	for _, e := range d.Experiments {
		if e.Name == f.experiment {
			p.X.Label.Text = e.XLabel
			p.X.Tick.Marker = ticks(e.Ticks)
		}
	}
	if f.logX {
		p.X.Scale = plot.LogScale{}
	}
	var values []float64
	if f.logY {
		p.Y.Scale = plot.LogScale{}
		p.Y.Min, p.Y.Max, values = logarithmic(p.Y.Min, p.Y.Max)
	} else {
		p.Y.Min = 0
		p.Y.Max, values = linear(p.Y.Max)
	}
	p.Y.Tick.Marker = ticks(values)
}

// xys are the points that can be drawn: without what was not measured and,
// where the scale has none, zero.
func (f *Figure) xys(value func(x float64) float64, d *Data) plotter.XYs {
	var all plotter.XYs
	for _, x := range d.over(f.experiment) {
		if y := value(x); !math.IsNaN(y) && (y > 0 || !f.logY) {
			all = append(all, plotter.XY{X: x, Y: y})
		}
	}
	return all
}

// CSV is what the figure shows: the axis, and mean and standard deviation of
// each series. What was not measured is empty.
func (d *Data) CSV(f Figure) []byte {
	head := []string{"x"}
	for _, s := range f.series {
		head = append(head, f.label(s), f.label(s)+" sd")
	}
	rows := [][]string{head}
	for _, x := range d.over(f.experiment) {
		row := []string{number(x)}
		for _, s := range f.series {
			v := f.measure.of(d.At(f.experiment, s, x))
			if v.N == 0 {
				row = append(row, "", "")
			} else {
				row = append(row, number(v.Mean), number(v.SD))
			}
		}
		rows = append(rows, row)
	}
	return table(rows)
}

func table(rows [][]string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.WriteAll(rows) // a Buffer takes all
	return b.Bytes()
}

// number is enough of f to compare, the same on every machine.
func number(f float64) string { return strconv.FormatFloat(f, 'g', 7, 64) }
