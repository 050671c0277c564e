package terminal

import (
	"strings"

	"github.com/perdure/perdure/internal/safe"
)

// Table prints rows in columns; the first row is the heading. Cells are cut so that
// rows fit the terminal. Style gives the style of a cell by its text.
func (t *Terminal) Table(rows [][]string, style func(string) string) error {
	var widths []int
	for i, row := range rows {
		rows[i] = make([]string, len(row))
		for j, cell := range row {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			rows[i][j] = safe.Cut(safe.Line(cell), 200)
			widths[j] = max(widths[j], safe.Cells(rows[i][j]))
		}
	}
	fit(widths, t.Width())
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			with := Bold
			if i > 0 {
				with = style(cell)
			}
			cell = safe.Cut(cell, widths[j])
			line.WriteString(t.Style(with, cell))
			if j < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[j]-safe.Cells(cell)+2))
			}
		}
		if err := t.PrintClipped("", strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// fit narrows the widest columns until all fit a width; 0 is any.
func fit(widths []int, width int) {
	for width > 0 {
		sum, widest := 2*(len(widths)-1), 0
		for i, w := range widths {
			if sum += w; w > widths[widest] {
				widest = i
			}
		}
		if sum <= width || widths[widest] <= 8 {
			return
		}
		widths[widest] -= min(sum-width, max(1, widths[widest]/8))
	}
}
