//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

// crewOrder tells a process of a crew what to do.
type crewOrder struct {
	Test, URL, Dir string
	Life           int
	Version        string // of its code
	Memory         uint64 // bytes that it may take more than it begins with; 0: all
}

const (
	crewEnv  = "PERDURE_CREW_CHILD"
	crewMark = "~crew "
)

// crewLease is short, since what a killed process held rests so long, and long
// enough for a process of many on few processors.
const crewLease = crewPace * 500 * time.Millisecond

const crewGrace = 5 * time.Second

// crewSay tells the test something with one write.
func crewSay(format string, args ...any) {
	fmt.Printf(crewMark+"%s\n", strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// crewChild works until it is told to end.
func crewChild(order crewOrder, flows []perdure.Flow) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test is gone
	}()
	if err := crewWork(order, flows); err != nil {
		crewSay("fail %v", err)
		os.Exit(4)
	}
	os.Exit(0)
}

func crewWork(order crewOrder, flows []perdure.Flow) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	alive, err := os.OpenFile(lifeFile(order.Dir, order.Life), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	defer alive.Close() // the kernel does it when the process is killed
	if err := syscall.Flock(int(alive.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if order.Memory > 0 {
		if err := limitMemory(order.Memory); err != nil {
			return err
		}
	}
	opening := context.WithoutCancel(ctx) // told to end meanwhile it ends when it has begun
	s, err := store.Open(opening, order.URL)
	if err != nil {
		return err
	}
	defer s.Close()
	rt, err := perdure.New(opening, s, perdure.Options{
		Version: order.Version, Lease: crewLease, Grace: crewGrace, Concurrency: 8, Observer: crewObserver{},
		Logger: slog.New(crewLog{slog.NewTextHandler(io.Discard, nil)}),
	}, flows...)
	if err != nil {
		return err
	}
	crewSay("up")
	return rt.Work(ctx)
}

// crewLog tells the test when a worker begins anew because it lost its lease:
// none of its steps runs any more.
type crewLog struct{ slog.Handler }

func (h crewLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "a worker begins anew" {
		crewSay("lost")
	}
	return nil
}

// lifeFile is the name of a file that a process keeps locked while it lives.
func lifeFile(dir string, life int) string { return filepath.Join(dir, "life-"+strconv.Itoa(life)) }

// lifeOver reports whether a process is gone. One that is stopped is not.
func lifeOver(dir string, life int) (bool, error) {
	f, err := os.Open(lifeFile(dir, life))
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// crewObserver tells the test which threads the process holds.
type crewObserver struct{}

func (crewObserver) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

func (crewObserver) Committed(e perdure.Event) {
	switch e.Kind {
	case "claimed":
		crewSay("claimed %s %s", e.Worker, e.Thread)
	case "suspended", "released", "blocked", "ended":
		crewSay("free %s", e.Thread)
	}
}
