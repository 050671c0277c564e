package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// logger passes on what a server says, other than what Watch says better and what does
// not concern the one who reads it.
type logger struct{ log *slog.Logger }

func (l logger) Noticef(format string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l logger) Warnf(format string, v ...any)   { l.tell(slog.LevelWarn, format, v...) }
func (l logger) Fatalf(format string, v ...any)  { l.tell(slog.LevelError, format, v...) }
func (l logger) Errorf(format string, v ...any)  { l.tell(slog.LevelError, format, v...) }
func (l logger) Debugf(string, ...any)           {}
func (l logger) Tracef(string, ...any)           {}

func (l logger) tell(level slog.Level, format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	for _, known := range []string{"Plaintext passwords", "Error trying to connect to route", "Waiting for routing"} {
		if strings.HasPrefix(text, known) {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, "nats: "+text)
}
