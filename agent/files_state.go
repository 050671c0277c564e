package agent

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

// A file in the state is two keys: its text, of which only changes are written,
// and what else is known of it, which is small.
const (
	fileTexts = "agent.file:"
	fileInfos = "agent.file-info:"
)

type fileInfo struct {
	Size     int       `json:"size"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
}

func textOf(p string) perdure.Text            { return perdure.NewText(fileTexts + p) }
func infoOf(p string) perdure.State[fileInfo] { return perdure.NewState[fileInfo](fileInfos + p) }

// StateFiles keeps files in the state of the thread. They are forked and
// rewound with it, a change commits with the step that makes it, and costs in
// the journal what it changes, not what the file has. All agents of a thread
// see the same files.
func StateFiles() Files { return stateFiles{} }

type stateFiles struct{}

var (
	_ Files    = stateFiles{}
	_ stateful = stateFiles{}
	_ replacer = stateFiles{}
)

func (stateFiles) commits(string) bool { return true }

func (f stateFiles) Read(ctx context.Context, p string) (File, error) {
	p, err := cleanFile(p)
	if err != nil {
		return File{}, err
	}
	text, ok, err := textOf(p).Lookup(ctx)
	if err != nil {
		return File{}, err
	}
	if !ok {
		return File{}, f.missing(ctx, p)
	}
	info, err := infoOf(p).Get(ctx)
	return File{Path: p, Text: text, Size: len(text), Created: info.Created, Modified: info.Modified}, err
}

func (f stateFiles) Write(ctx context.Context, p, text string) error {
	p, err := cleanFile(p)
	if err != nil {
		return err
	}
	if err := checkFileText(p, text); err != nil {
		return err
	}
	if err := f.free(ctx, p); err != nil {
		return err
	}
	if err := textOf(p).Set(ctx, text); err != nil {
		return err
	}
	return f.touch(ctx, p, len(text))
}

// free returns an error if a file at the path would be a folder too, or in a
// file.
func (f stateFiles) free(ctx context.Context, p string) error {
	for _, dir := range foldersAbove(p) {
		if _, ok, err := infoOf(dir).Lookup(ctx); err != nil {
			return err
		} else if ok {
			return badPath(p, "%s is a file, not a folder", dir)
		}
	}
	return f.folder(ctx, p)
}

// folder returns an error if the path is a folder.
func (stateFiles) folder(ctx context.Context, p string) error {
	inside, err := perdure.StateKeys(ctx, fileInfos+p+"/")
	if err == nil && len(inside) > 0 {
		err = isFolder(p)
	}
	return err
}

// missing says what is at a path where no file is.
func (f stateFiles) missing(ctx context.Context, p string) error {
	if err := f.folder(ctx, p); err != nil {
		return err
	}
	return noFile(p)
}

func (stateFiles) touch(ctx context.Context, p string, size int) error {
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
func (f stateFiles) replace(ctx context.Context, p, old, new string) error {
	n, err := textOf(p).Replace(ctx, old, new)
	if err != nil {
		return err
	}
	info, err := infoOf(p).Get(ctx)
	if err != nil {
		return err
	}
	return f.touch(ctx, p, info.Size+n*(len(new)-len(old)))
}

func (f stateFiles) Remove(ctx context.Context, p string) error {
	p, err := cleanFile(p)
	if err != nil {
		return err
	}
	if _, ok, err := infoOf(p).Lookup(ctx); err != nil {
		return err
	} else if !ok {
		return f.missing(ctx, p)
	}
	if err := textOf(p).Delete(ctx); err != nil {
		return err
	}
	return infoOf(p).Delete(ctx)
}

func (stateFiles) List(ctx context.Context, dir string) ([]File, error) {
	dir, err := cleanPath(dir)
	if err != nil {
		return nil, err
	}
	keys, err := perdure.StateKeys(ctx, fileInfos+strings.TrimSuffix(dir, "/")+"/")
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		keys[i] = strings.TrimPrefix(key, fileInfos)
	}
	return filesIn(dir, keys, func(p string) (File, error) {
		info, err := infoOf(p).Get(ctx)
		return File{Size: info.Size, Created: info.Created, Modified: info.Modified}, err
	})
}

// FilesAt returns the files that are in the state of a thread, with their
// texts, in the order of paths. [perdure.Runtime.StateAt] has the state, of now
// or of any time before.
func FilesAt(state map[string]json.RawMessage) ([]File, error) {
	var all []File
	for _, key := range slices.Sorted(maps.Keys(state)) {
		p, ok := strings.CutPrefix(key, fileTexts)
		if !ok {
			continue
		}
		f := File{Path: p}
		if err := json.Unmarshal(state[key], &f.Text); err != nil {
			return nil, fmt.Errorf("agent: the text of %s: %w", p, err)
		}
		if raw, ok := state[fileInfos+p]; ok {
			var info fileInfo
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
