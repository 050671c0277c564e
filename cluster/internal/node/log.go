package node

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"
)

// logger passes on what a server says, other than what Watch says better and what does
// not concern the one who reads it.
type logger struct {
	log *slog.Logger

	mu      sync.Mutex
	refused time.Time // when nodes refused each other last
	told    bool      // that they do, since the cluster was complete
	full    bool      // the server has met its limit, or a disk without space, since it was started
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.tell(slog.LevelWarn, format, v...) }
func (l *logger) Fatalf(format string, v ...any)  { l.tell(slog.LevelError, format, v...) }
func (l *logger) Errorf(format string, v ...any)  { l.tell(slog.LevelError, format, v...) }
func (l *logger) Debugf(string, ...any)           {}
func (l *logger) Tracef(string, ...any)           {}

// between matches what is said when a node does not let another one in, on either side
// of the route.
var between = regexp.MustCompile(`- rid:\d+ - (.*authentication error|.*Authorization Violation|TLS route handshake error)`)

func (l *logger) tell(level slog.Level, format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	for _, known := range []string{"Plaintext passwords", "Error trying to connect to route", "Waiting for routing"} {
		if strings.HasPrefix(text, known) {
			level = slog.LevelDebug
		}
	}
	if between.MatchString(text) {
		level = slog.LevelDebug
		l.refuse(text)
	}
	if crowded.MatchString(text) {
		l.mu.Lock()
		l.full = true
		l.mu.Unlock()
	}
	l.log.Log(context.Background(), level, "nats: "+text)
}

// crowded matches what a server says that keeps no more, in words that no API has.
var crowded = regexp.MustCompile(`^JetStream (file resource limits exceeded for server|out of .*resources)`)

// isFull reports whether the server has been without room.
func (l *logger) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// refuse records that nodes refuse each other, which they try again all the time, and
// says so once.
func (l *logger) refuse(text string) {
	l.mu.Lock()
	told := l.told
	l.refused, l.told = time.Now(), true
	l.mu.Unlock()
	if !told {
		l.log.Error("a node and this one refuse each other: "+differ, "nats", text)
	}
}

// differ says why nodes refuse each other.
const differ = "their secrets, certificates or lists of nodes differ; compare --join, --cluster, and --cluster-secret-file or --cluster-ca"

// refuses reports whether nodes have refused each other in the last seconds.
func (l *logger) refuses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.refused) < 10*time.Second
}

// agree records that all nodes are here.
func (l *logger) agree() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused, l.told = time.Time{}, false
}
