package s3store

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

// bucket is the part of a bucket under a prefix, as an engine of kvstore. The version
// of a key is the ETag of its object.
//
// An object with the one byte of grave counts as none; all others are longer. Delete
// leaves one, since it needs a condition that exactly one of several callers meets.
// Services that know conditions for deletes also succeed where there is no object any
// more, and some check and delete in two steps.
type bucket struct {
	name    string
	prefix  string
	timeout time.Duration
	opened  bool        // the service and the bucket were good enough once
	reads   *minio.Core // repeats requests
	writes  *minio.Core // does not: a repeated condition would fail on its own success
	idle    func()      // closes idle connections
}

var _ kvstore.KV = (*bucket)(nil)

const grave = "-"

// Close closes connections that are not in use.
func (b *bucket) Close() error {
	b.idle()
	return nil
}

// Get implements kvstore.KV.
func (b *bucket) Get(ctx context.Context, key string) (store.Cell, error) {
	cell, err := b.get(ctx, key)
	if err == nil && string(cell.Value) == grave {
		return store.Cell{}, store.ErrNotFound
	}
	return cell, err
}

// get also returns the grave of a deleted key.
func (b *bucket) get(ctx context.Context, key string) (store.Cell, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	body, info, _, err := b.reads.GetObject(ctx, b.name, b.path(key), minio.GetObjectOptions{})
	var value []byte
	if err == nil {
		value, err = io.ReadAll(body)
		body.Close()
	}
	switch {
	case isCode(err, minio.NoSuchKey):
		return store.Cell{}, store.ErrNotFound
	case err != nil:
		return store.Cell{}, b.failed("read", err)
	case info.ETag == "":
		return store.Cell{}, fmt.Errorf("%w: an answer has no ETag", ErrUnsuited)
	}
	return store.Cell{Key: key, Value: value, Version: store.Version(info.ETag)}, nil
}

// Put implements kvstore.KV.
func (b *bucket) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	info, err := b.put(ctx, key, value, prev)
	if prev == "" && errors.Is(err, store.ErrConflict) {
		// The grave of a deleted key may be in the way.
		old, getErr := b.get(ctx, key)
		if getErr == nil && string(old.Value) == grave {
			info, err = b.put(ctx, key, value, old.Version)
		}
	}
	return store.Version(info.ETag), err
}

// put writes an object if its ETag is prev or, with "", if there is none.
func (b *bucket) put(ctx context.Context, key string, value []byte, prev store.Version) (minio.UploadInfo, error) {
	options := minio.PutObjectOptions{ContentType: "application/octet-stream"}
	if prev == "" {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(string(prev))
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	sum, hash := md5.Sum(value), sha256.Sum256(value)
	info, err := b.writes.PutObject(ctx, b.name, b.path(key), bytes.NewReader(value), int64(len(value)),
		base64.StdEncoding.EncodeToString(sum[:]), hex.EncodeToString(hash[:]), options)
	switch {
	case refusedCondition(err):
		return minio.UploadInfo{}, store.Conflictf("object %s has been changed", b.path(key))
	case err != nil:
		return minio.UploadInfo{}, b.failed("write to", err)
	case info.ETag == "":
		return minio.UploadInfo{}, fmt.Errorf("%w: an answer has no ETag; a write may have happened", ErrUnsuited)
	}
	return info, nil
}

// Delete implements kvstore.KV.
func (b *bucket) Delete(ctx context.Context, key string, prev store.Version) error {
	if strings.HasPrefix(key, "b-") {
		// The key of a batch has the same bytes for ever, and is deleted only
		// when its journal is dropped: no condition is needed.
		return b.remove(ctx, key)
	}
	_, err := b.put(ctx, key, []byte(grave), prev)
	return err
}

// remove removes an object, if there is one.
func (b *bucket) remove(ctx context.Context, key string) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	err := b.writes.RemoveObject(ctx, b.name, b.path(key), minio.RemoveObjectOptions{})
	if err != nil && !isCode(err, minio.NoSuchKey) {
		return b.failed("delete from", err)
	}
	return nil
}

// The number of keys in an answer to a list, and of objects that are read ahead of
// the one that List yields.
const (
	pageSize  = 1000
	readAhead = 16
)

// List implements kvstore.KV. The service lists keys without values, so these are
// read one by one, several at a time.
func (b *bucket) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		for {
			keys, next, err := b.page(ctx, prefix, after)
			if err != nil {
				yield(store.Cell{}, err)
				return
			}
			for cell, err := range b.values(ctx, keys) {
				if errors.Is(err, store.ErrNotFound) {
					continue // deleted since
				}
				if !yield(cell, err) || err != nil {
					return
				}
			}
			if next == "" {
				return
			}
			after = next
		}
	}
}

// page returns some keys after the given one, and the key after which there may be
// more, if any.
func (b *bucket) page(ctx context.Context, prefix, after string) (keys []string, next string, err error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	options := minio.ListObjectsOptions{Prefix: b.path(prefix), Recursive: true, MaxKeys: pageSize}
	if after != "" {
		options.StartAfter = b.path(after)
	}
	seen := 0
	for object := range b.reads.ListObjectsIter(ctx, b.name, options) {
		if object.Err != nil {
			return nil, "", b.failed("list", object.Err)
		}
		key, ok := b.key(object.Key)
		if ok && key > after && object.Size != int64(len(grave)) {
			keys = append(keys, key)
		}
		if seen++; ok && seen >= pageSize {
			return keys, key, nil // the next object is on another page
		}
	}
	return keys, "", nil
}

// values yields what is stored under keys, in their order.
func (b *bucket) values(ctx context.Context, keys []string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type result struct {
			cell store.Cell
			err  error
		}
		var ahead []chan result
		for len(keys) > 0 || len(ahead) > 0 {
			for len(keys) > 0 && len(ahead) < readAhead {
				key, got := keys[0], make(chan result, 1)
				keys, ahead = keys[1:], append(ahead, got)
				go func() {
					cell, err := b.Get(ctx, key)
					got <- result{cell, err}
				}()
			}
			r := <-ahead[0]
			ahead = ahead[1:]
			if !yield(r.cell, r.err) {
				return
			}
		}
	}
}

// bounded bounds a request, including its repetitions.
func (b *bucket) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, b.timeout, fmt.Errorf("the service did not answer within %v", b.timeout))
}
