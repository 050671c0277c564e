package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/llm"
	"github.com/spf13/cobra"
)

func uploadCommand(a *app) *cobra.Command {
	var q perdure.UploadRequest
	c := &cobra.Command{
		Use:   "upload FILE",
		Short: api.UploadsCreate.Title,
		Long: `Upload a file, and print its id. Inputs, answers and signals that attach it can
refer to it; run and chat do all of that with --attach FILE. An upload expires after
a day, and threads that it was attached to keep a copy.`,
		Example: "  perdure upload receipt.png\n  perdure upload scan.bin --type application/pdf --json",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				u, err := upload(ctx, l, args[0], q)
				if err != nil {
					return err
				}
				if a.term.JSON {
					return a.term.PrintJSON(u)
				}
				a.term.PrintName(u.ID)
				a.hint("attach %s, and refer to it with {\"media\": {\"blob\": %q}}; it expires %s", safe.Label(u.ID), u.Blob, a.term.When(u.Expires))
				return nil
			})
		},
	}
	c.Flags().StringVar(&q.MIME, "type", "", "media type; by default that of the file's name or content")
	c.Flags().StringVar(&q.User, "user", "", "its owner; by default you")
	return c
}

// upload uploads a file.
func upload(ctx context.Context, l *link.Link, path string, q perdure.UploadRequest) (*perdure.Upload, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, &exit.Error{Code: exit.NotFound, Err: err}
	case err != nil:
		return nil, exit.Usage(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, exit.Usage(fmt.Errorf("%s is not a file", path))
	}
	q.Name = filepath.Base(path)
	if q.MIME == "" {
		q.MIME, _, _ = mime.ParseMediaType(mime.TypeByExtension(filepath.Ext(path)))
	}
	if q.MIME == "" {
		head := make([]byte, 512)
		n, err := io.ReadFull(f, head)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		q.MIME, _, _ = mime.ParseMediaType(http.DetectContentType(head[:n]))
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, exit.Usage(fmt.Errorf("name the media type of %s: perdure upload --type", path))
		}
	}
	return l.Client.Upload(ctx, f, q)
}

// attach uploads files for a start, and makes them parts of its input.
func attach(ctx context.Context, l *link.Link, files []string, q *perdure.StartRequest) error {
	if len(files) == 0 {
		return nil
	}
	var parts []llm.Part
	if q.Input != nil {
		input, _ := q.Input.(json.RawMessage)
		var text string
		if json.Unmarshal(input, &text) == nil {
			parts = append(parts, llm.Text(text))
		} else if json.Unmarshal(input, &parts) != nil {
			return exit.Usage(errors.New("with --attach the input is a text or a list of parts; to put a file elsewhere, use perdure upload and attach it by its id"))
		}
	}
	for _, path := range files {
		u, err := upload(ctx, l, path, perdure.UploadRequest{User: q.User})
		if err != nil {
			return err
		}
		q.Attach = append(q.Attach, u.ID)
		parts = append(parts, llm.Part{Media: &llm.Media{MIME: u.MIME, Name: u.Name, Blob: u.Blob}})
	}
	input, err := json.Marshal(parts)
	q.Input = json.RawMessage(input)
	return err
}
