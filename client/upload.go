package client

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// Upload uploads a file, so that an input, an answer or a signal can refer to it:
// see [perdure.Runtime.Upload]. It streams, and is not retried.
func (c *Client) Upload(ctx context.Context, body io.Reader, q perdure.UploadRequest) (*perdure.Upload, error) {
	in := api.CreateUpload{MIME: cmp.Or(q.MIME, api.TypeBytes), Name: q.Name, User: q.User}
	if len(q.SHA256) > 0 {
		in.Digest = "sha-256=:" + base64.StdEncoding.EncodeToString(q.SHA256) + ":"
	}
	answer, err := Open(ctx, c, api.UploadsCreate, in, lend(body))
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	u := new(perdure.Upload)
	if err := json.NewDecoder(io.LimitReader(answer, c.opts.MaxAnswer)).Decode(u); err != nil {
		return nil, fmt.Errorf("client: the answer of %s: %w", api.UploadsCreate.Name, err)
	}
	return u, nil
}

// DropUpload removes an upload before it expires.
func (c *Client) DropUpload(ctx context.Context, id string) error {
	_, err := Do(ctx, c, api.UploadsDelete, api.OneUpload{Upload: id})
	return err
}
