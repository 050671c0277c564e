package retain_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
)

// flows succeed, fail until they are mended, wait for an answer, or spawn a child that
// does one of these.
func flows(mended *atomic.Bool) []perdure.Flow {
	ask := perdure.NewFlow("ask", func(ctx context.Context, _ string) (string, error) {
		return perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: "?"})
	})
	broken := perdure.NewFlow("broken", func(ctx context.Context, _ string) (string, error) {
		if mended != nil && mended.Load() {
			return "well", nil
		}
		return "", errors.New("no luck")
	})
	echo := kit.EchoFlow("echo")
	parent := perdure.NewFlow("parent", func(ctx context.Context, child string) (string, error) {
		c, err := perdure.Spawn(ctx, "child", child, "")
		if err != nil {
			return "", err
		}
		if _, err = perdure.Join[string](ctx, "join", c); child == "broken" {
			err = nil
		}
		return c.Thread(), err
	})
	return []perdure.Flow{echo, ask, broken, parent}
}

const day = 24 * time.Hour

// attic returns an archive in a folder.
func attic(t *testing.T) archive.Place {
	t.Helper()
	p, err := archive.Open(t.Context(), "file:"+t.TempDir())
	kit.NoErr(t, err)
	return p
}

// here returns the threads of a tenant that are in the store.
func here(t *testing.T, rt *perdure.Runtime) string {
	t.Helper()
	var ids []string
	for s, err := range rt.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// away returns the threads of a tenant that are in the archive.
func away(t *testing.T, rt *perdure.Runtime) string {
	t.Helper()
	var ids []string
	for a, err := range rt.Archived(t.Context(), perdure.ArchivedOptions{}) {
		kit.NoErr(t, err)
		ids = append(ids, a.ID)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// due returns what a dry run says.
func due(t *testing.T, rt *perdure.Runtime) string {
	t.Helper()
	var lines []string
	for i, err := range rt.RetentionDue(t.Context(), perdure.RetentionOptions{}) {
		kit.NoErr(t, err)
		lines = append(lines, strings.TrimSpace(fmt.Sprintln(i.Thread, i.Action, i.Skipped, strings.Join(i.By, ","), strings.Join(i.Children, ","))))
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func status(t *testing.T, rt *perdure.Runtime) *perdure.RetentionStatus {
	t.Helper()
	s, err := rt.Retention(t.Context())
	kit.NoErr(t, err)
	return s
}

func skips(s *perdure.RetentionStatus) string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(s.Skipped)) {
		all = append(all, fmt.Sprint(reason, ":", s.Skipped[reason]))
	}
	return strings.Join(all, " ")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func sorted(ids ...string) string {
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
