package cli

import (
	"context"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
)

type sampleOrder struct {
	ID    string    `json:"id"`
	N     int       `json:"n"`
	At    time.Time `json:"at"`
	Items []struct {
		Name string `json:"name"`
	} `json:"items"`
	To *struct {
		Name string `json:"name"`
	} `json:"to"`
}

func takes[T any](name string) perdure.Flow {
	return perdure.NewFlow(name, func(context.Context, T) (bool, error) { return true, nil })
}

// What dev suggests works, whatever a flow takes.
func TestDevSuggestsWhatFits(t *testing.T) {
	flows := []perdure.Flow{
		takes[sampleOrder]("greet"), takes[string]("text"), takes[any]("any"), takes[int]("int"), takes[bool]("bool"),
		takes[[]string]("list"), takes[time.Time]("time"), takes[map[string]int]("map"), takes[[]byte]("bytes"), takes[*float64]("pointer"),
	}
	for _, flow := range flows {
		p := stored(t)
		p.flows = []perdure.Flow{flow}
		ctx, stop := context.WithCancel(t.Context())
		p.setUp = func(a *app) {
			a.opts.Routes = func(_ *http.ServeMux, _ *perdure.Runtime) { stop() }
		}
		said := p.runIn(ctx, "", "dev", "--addr", "127.0.0.1:0").want(exit.OK).out
		for _, input := range []string{
			regexp.MustCompile(`run ` + flow.Name() + ` ['"]?(.*?)['"]? --server`).FindStringSubmatch(said)[1],
			regexp.MustCompile(`"input": (.*)}' http`).FindStringSubmatch(said)[1],
		} {
			p.setUp = nil
			p.run("", "run", flow.Name(), input).want(exit.OK, "true")
		}
	}
	greet := (&place{t: t, flows: flows, flags: stored(t).flags}).run("", "run", "greet", "Hello")
	greet.want(exit.BadUsage, "flow greet takes an object, not a string")
}
