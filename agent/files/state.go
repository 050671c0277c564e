package files

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// A file in the state has two keys: its text, of which only changes are
// written, and what else is known of it, which is small.
const (
	textPrefix = "agent.file:"
	infoPrefix = "agent.file-info:"
)

type stateInfo struct {
	Size     int       `json:"size"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
}

func stateText(p string) perdure.Text { return perdure.NewText(textPrefix + p) }

func infoOf(p string) perdure.State[stateInfo] { return perdure.NewState[stateInfo](infoPrefix + p) }

// State keeps files in the state of the thread. They are forked and rewound with it.
// A change commits with the step that makes it, and only the changed text goes into the
// journal, not the whole file. All agents of a thread see the same files.
func State() FS { return stateFS{} }

type stateFS struct{}

var (
	_ FS       = stateFS{}
	_ stateful = stateFS{}
	_ replacer = stateFS{}
)

func (stateFS) inState(string) bool { return true }

func (f stateFS) Read(ctx context.Context, p string) (File, error) {
	p, err := CleanFile(p)
	if err != nil {
		return File{}, err
	}
	text, ok, err := stateText(p).Lookup(ctx)
	if err != nil {
		return File{}, err
	}
	if !ok {
		return File{}, f.missing(ctx, p)
	}
	info, err := infoOf(p).Get(ctx)
	return File{Path: p, Text: text, Size: len(text), Created: info.Created, Modified: info.Modified}, err
}

func (f stateFS) Write(ctx context.Context, p, text string) error {
	p, err := cleanWrite(p, text)
	if err != nil {
		return err
	}
	for _, dir := range foldersAbove(p) {
		if _, ok, err := infoOf(dir).Lookup(ctx); err != nil {
			return err
		} else if ok {
			return badPath(p, "%s is a file, not a folder", dir)
		}
	}
	if err := f.refuseFolder(ctx, p); err != nil {
		return err
	}
	if err := stateText(p).Set(ctx, text); err != nil {
		return err
	}
	return f.touch(ctx, p, len(text))
}

// refuseFolder returns an error if the path is a folder.
func (stateFS) refuseFolder(ctx context.Context, p string) error {
	inside, err := perdure.StateKeys(ctx, infoPrefix+p+"/")
	if err == nil && len(inside) > 0 {
		err = isFolder(p)
	}
	return err
}

// missing returns the error for a path without a file.
func (f stateFS) missing(ctx context.Context, p string) error {
	if err := f.refuseFolder(ctx, p); err != nil {
		return err
	}
	return notFound(p)
}

func (stateFS) touch(ctx context.Context, p string, size int) error {
	info, err := infoOf(p).Get(ctx)
	if err != nil {
		return err
	}
	now := perdure.Now(ctx)
	if info.Created.IsZero() {
		info.Created = now
	}
	info.Size, info.Modified = size, now
	return infoOf(p).Set(ctx, info)
}

// replace replaces every old by new, and writes only that.
func (f stateFS) replace(ctx context.Context, p, old, new string) error {
	n, err := stateText(p).Replace(ctx, old, new)
	if err != nil {
		return err
	}
	info, err := infoOf(p).Get(ctx)
	if err != nil {
		return err
	}
	return f.touch(ctx, p, info.Size+n*(len(new)-len(old)))
}

func (f stateFS) Remove(ctx context.Context, p string) error {
	p, err := CleanFile(p)
	if err != nil {
		return err
	}
	if _, ok, err := infoOf(p).Lookup(ctx); err != nil {
		return err
	} else if !ok {
		return f.missing(ctx, p)
	}
	if err := stateText(p).Delete(ctx); err != nil {
		return err
	}
	return infoOf(p).Delete(ctx)
}

func (stateFS) List(ctx context.Context, dir string) ([]File, error) {
	dir, err := Clean(dir)
	if err != nil {
		return nil, err
	}
	keys, err := perdure.StateKeys(ctx, infoPrefix+strings.TrimSuffix(dir, "/")+"/")
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, infoPrefix)
	}
	return listFolder(dir, keys, func(p string) (File, error) {
		info, err := infoOf(p).Get(ctx)
		return File{Size: info.Size, Created: info.Created, Modified: info.Modified}, err
	})
}

// At returns the files in the state of a thread, with their texts, ordered by
// path. [perdure.Runtime.StateAt] returns the state, now or at any earlier time.
func At(state map[string]json.RawMessage) ([]File, error) {
	var all []File
	for _, key := range slices.Sorted(maps.Keys(state)) {
		p, ok := strings.CutPrefix(key, textPrefix)
		if !ok {
			continue
		}
		f := File{Path: p}
		if err := json.Unmarshal(state[key], &f.Text); err != nil {
			return nil, fmt.Errorf("agent: the text of %s: %w", p, err)
		}
		if raw, ok := state[infoPrefix+p]; ok {
			var info stateInfo
			if err := json.Unmarshal(raw, &info); err != nil {
				return nil, fmt.Errorf("agent: what is known of %s: %w", p, err)
			}
			f.Created, f.Modified = info.Created, info.Modified
		}
		f.Size = len(f.Text)
		all = append(all, f)
	}
	return all, nil
}
