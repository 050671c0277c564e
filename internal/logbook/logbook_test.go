package logbook_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/logbook"
)

func TestTheLastLinesAreRemembered(t *testing.T) {
	var out bytes.Buffer
	b := logbook.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	log := slog.New(b).With("worker", "w").WithGroup("g")
	log.Debug("not remembered")
	for i := range 300 {
		log.Info("remembered", "n", i)
	}
	log.Warn("passed on", "long", strings.Repeat("x", 5000))
	lines := b.Lines()
	if len(lines) != 200 || lines[0].Text != "remembered" || fmt.Sprint(lines[0].Attrs) != "[[worker w] [g.n 101]]" {
		t.Errorf("%d lines, the first is %+v", len(lines), lines[0])
	}
	if last := lines[199]; last.Level != "WARN" || len(last.Attrs[1][1]) > 1010 {
		t.Errorf("the last is %+v", last)
	}
	if text := out.String(); !strings.Contains(text, "passed on") || !strings.Contains(text, "g.long=x") || strings.Contains(text, "remembered") {
		t.Errorf("passed on: %.200s", text)
	}
}
