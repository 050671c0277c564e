package files

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
	"pgregory.net/rapid"
)

type fileOp struct{ Do, Path, Text string }

// fileModel is what files have to behave like: a map of texts.
type fileModel map[string]string

func (m fileModel) apply(op fileOp) string {
	folder := func(p string) bool {
		return p == "/" || slices.ContainsFunc(slices.Collect(maps.Keys(m)), func(q string) bool { return strings.HasPrefix(q, p+"/") })
	}
	_, there := m[op.Path]
	switch op.Do {
	case "write":
		blocked := slices.ContainsFunc(foldersAbove(op.Path), func(dir string) bool { _, ok := m[dir]; return ok })
		if folder(op.Path) || blocked {
			return "path"
		}
		m[op.Path] = op.Text
	case "remove":
		if !there {
			return "none"
		}
		delete(m, op.Path)
	case "read":
		if !there {
			return "none"
		}
		return m[op.Path]
	case "list":
		var all []string
		for p := range m {
			if rest, ok := pathBelow(op.Path, p); ok {
				name, _, deeper := strings.Cut(rest, "/")
				if deeper {
					name += "/"
				}
				if !slices.Contains(all, name) {
					all = append(all, name)
				}
			}
		}
		slices.SortFunc(all, func(a, b string) int { return strings.Compare(strings.TrimSuffix(a, "/"), strings.TrimSuffix(b, "/")) })
		return strings.Join(all, " ")
	}
	return "ok"
}

func applyOp(ctx context.Context, f FS, op fileOp) (string, error) {
	var err error
	out := "ok"
	switch op.Do {
	case "write":
		err = f.Write(ctx, op.Path, op.Text)
	case "remove":
		err = f.Remove(ctx, op.Path)
	case "read":
		var file File
		file, err = f.Read(ctx, op.Path)
		out = file.Text
		if err == nil && (file.Path != op.Path || file.Size != len(file.Text)) {
			return "", fmt.Errorf("read %s: %+v", op.Path, file)
		}
	case "list":
		var all []File
		all, err = f.List(ctx, op.Path)
		var names []string
		for _, e := range all {
			name, ok := pathBelow(op.Path, e.Path)
			if !ok {
				return "", fmt.Errorf("%s is listed in %s", e.Path, op.Path)
			}
			if e.Dir {
				name += "/"
			}
			names = append(names, name)
		}
		out = strings.Join(names, " ")
	}
	switch {
	case errors.Is(err, ErrPath) && op.Do == "list": // of what is a file
		return "", nil
	case errors.Is(err, ErrPath) && op.Do != "write": // a folder, or in a file
		return "none", nil
	case errors.Is(err, ErrPath):
		return "path", nil
	case errors.Is(err, ErrNotFound):
		return "none", nil
	}
	return out, err
}

// TestEveryBackendIsAMapOfTexts does the same to all backends and to a map, over
// two runs.
func TestEveryBackendIsAMapOfTexts(t *testing.T) {
	base := t.TempDir()
	n := 0
	names := []string{"a", "b", "mem", "mem.txt", "memo", "ü"}
	rapid.Check(t, func(rt *rapid.T) {
		var ops []fileOp
		for range rapid.IntRange(1, 30).Draw(rt, "n") {
			p := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(names), 1, 3).Draw(rt, "path"), "/")
			op := fileOp{rapid.SampledFrom([]string{"write", "write", "write", "remove", "read", "list"}).Draw(rt, "do"), p, ""}
			if op.Do == "list" && rapid.Bool().Draw(rt, "root") {
				op.Path = "/"
			}
			if op.Do == "write" {
				op.Text = rapid.SampledFrom([]string{"", "x\n", strings.Repeat("line\n", 200), "ü☃", "\x00\u2028", rapid.String().Draw(rt, "text")}).Draw(rt, "which")
			}
			ops = append(ops, op)
		}
		model := fileModel{}
		var want []string
		for _, op := range ops {
			want = append(want, model.apply(op))
		}
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		// Those of one group are on one thread, so that only one is in its state.
		for _, backends := range [][]FS{
			{State(), Disk(filepath.Join(dir, "1")), Shared(&testShelf{}), Memory("part")},
			{Composite(nil, State()), Composite(map[string]FS{"/q": Shared(&testShelf{})}, Disk(filepath.Join(dir, "2")))},
		} {
			all, err := runOps(t, backends, ops)
			if err != nil {
				rt.Fatal(err)
			}
			for i, f := range backends {
				var got []string
				for j, outs := range all {
					if ops[j].Do == "list" && ops[j].Path == "/" { // where the prefix shows
						outs[i] = strings.Join(slices.DeleteFunc(strings.Fields(outs[i]), func(s string) bool { return s == "q/" }), " ")
					}
					got = append(got, outs[i])
				}
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("%T is no map:\n%v\n%s", f, ops, diff)
				}
			}
		}
		_ = os.RemoveAll(dir)
	})
}

// runOps does the operations in two runs of a thread, each in all backends.
func runOps(t *testing.T, backends []FS, ops []fileOp) (got [][]string, err error) {
	flow := perdure.NewFlow("ops", func(ctx context.Context, ops []fileOp) (all [][]string, err error) {
		for i, op := range ops {
			outs, err := perdure.Step(ctx, fmt.Sprint("op-", i), func(ctx context.Context) ([]string, error) {
				var outs []string
				for _, f := range backends {
					out, err := applyOp(ctx, f, op)
					if err != nil {
						return nil, fmt.Errorf("%T: %w", f, err)
					}
					outs = append(outs, out)
				}
				return outs, nil
			})
			if err != nil {
				return nil, err
			}
			all = append(all, outs)
		}
		return all, nil
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{flow}}, func(t *testing.T, e *perduretest.Env) {
		for _, part := range [][]fileOp{ops[:len(ops)/2], ops[len(ops)/2:]} {
			e.Start("t", "ops", part)
			var outs [][]string
			outs, err = perdure.Output[[][]string](e.Wait("t", perdure.Succeeded))
			got = append(got, outs...)
		}
	})
	return got, err
}
