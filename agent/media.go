package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/llm"
)

// inlineMedia is the size up to which media stay in their message.
const inlineMedia = 2 << 10

// blobKey returns the key of the state that holds the bytes of media. They are
// part of the thread: they fork, rewind, export and are erased with it.
func blobKey(blob string) string { return "agent.blob:" + blob }

// changeMedia returns a message with its media changed; the one that it is given
// stays as it is.
func changeMedia(m llm.Message, change func(llm.Media) (llm.Media, error)) (_ llm.Message, err error) {
	m.Parts = slices.Clone(m.Parts)
	for i, p := range m.Parts {
		if p.Media != nil {
			changed, err := change(*p.Media)
			if err != nil {
				return m, err
			}
			m.Parts[i].Media = &changed
		}
		if p.Result == nil || len(p.Result.Media) == 0 {
			continue
		}
		r := *p.Result
		r.Media = slices.Clone(r.Media)
		for j := range r.Media {
			if r.Media[j], err = change(r.Media[j]); err != nil {
				return m, err
			}
		}
		m.Parts[i].Result = &r
	}
	return m, nil
}

// keepMedia moves the bytes of a message's media into the thread's state, once
// for equal bytes. It is called in a step.
func keepMedia(ctx context.Context, m llm.Message) (llm.Message, error) {
	return changeMedia(m, func(m llm.Media) (llm.Media, error) { return keepMedium(ctx, m) })
}

func keepMedium(ctx context.Context, m llm.Media) (llm.Media, error) {
	if len(m.Data) == 0 && m.Blob != "" {
		if file, there, err := engine.Attached(ctx, m.Blob); err != nil || there {
			m.MIME, m.Name = cmp.Or(m.MIME, file.MIME), cmp.Or(m.Name, file.Name)
			return m, err
		}
		_, err := readBlob(ctx, m.Blob) // without it every later request would fail
		return m, err
	}
	if m.Blob = ""; len(m.Data) <= inlineMedia {
		return m, nil
	}
	sum := sha256.Sum256(m.Data)
	m.Blob = hex.EncodeToString(sum[:])
	state, data := perdure.NewState[[]byte](blobKey(m.Blob)), m.Data
	m.Data = nil
	if _, there, err := state.Lookup(ctx); err != nil || there {
		return m, err
	}
	return m, state.Set(ctx, data)
}

// MediaData returns the bytes of an image or file that a flow was given, either those
// in m or those of the upload that m refers to. Call it in a flow.
func MediaData(ctx context.Context, m llm.Media) ([]byte, error) {
	if m.Blob == "" {
		return m.Data, nil
	}
	return readBlob(ctx, m.Blob)
}

func readBlob(ctx context.Context, blob string) ([]byte, error) {
	if data, there, err := engine.ReadAttached(ctx, blob); err != nil || there {
		return data, err
	}
	data, there, err := perdure.NewState[[]byte](blobKey(blob)).Lookup(ctx)
	if err == nil && !there {
		err = perdure.Permanent(fmt.Errorf("%w: the thread has no blob %q; a child has no files of its parent, so pass it the bytes, see MediaData", ErrOption, blob))
	}
	return data, err
}

// bringMedia puts the bytes of media back, for a model. The messages that it is
// given stay as they are.
func bringMedia(ctx context.Context, messages []llm.Message) (_ []llm.Message, err error) {
	out := slices.Clone(messages)
	for i, m := range out {
		if len(mediaOf(m)) == 0 {
			continue
		}
		out[i], err = changeMedia(m, func(m llm.Media) (llm.Media, error) {
			if m.Blob == "" {
				return m, nil
			}
			data, err := readBlob(ctx, m.Blob)
			m.Data, m.Blob = data, ""
			return m, err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// mediaOf returns the media of a message.
func mediaOf(m llm.Message) (all []llm.Media) {
	for _, p := range m.Parts {
		if p.Media != nil {
			all = append(all, *p.Media)
		}
		if p.Result != nil {
			all = append(all, p.Result.Media...)
		}
	}
	return all
}

// BlobAt returns the bytes of a blob that a message of a thread refers to, and their
// media type, "" if no message in the state names it. If there is no such blob, it
// returns [files.ErrNotFound]. [perdure.Runtime.StateAt] returns the state, now or at
// any earlier time.
func BlobAt(state map[string]json.RawMessage, blob string) (data []byte, mime string, err error) {
	raw, ok := state[blobKey(blob)]
	if !ok {
		return nil, "", fmt.Errorf("%w: the thread has no blob %.80q", files.ErrNotFound, blob)
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, "", fmt.Errorf("agent: the blob %s: %w", blob, err)
	}
	records, err := Transcript(state)
	if err != nil {
		return nil, "", err
	}
	for _, r := range records {
		for _, m := range mediaOf(r.Message) {
			if m.Blob == blob {
				return data, m.MIME, nil
			}
		}
	}
	return data, "", nil
}
