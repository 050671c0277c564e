package main

import (
	"context"
	"os"
	"sync"
)

// preallocate makes a file of this size beforehand, so that a sync writes
// data and no change of the file's size.
const preallocate = 64 << 20

func openPreallocated(dir, name string) (*os.File, error) {
	f, err := os.Create(dir + "/" + name)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for at := 0; at < preallocate; at += len(zeros) {
		if _, err := f.WriteAt(zeros, int64(at)); err != nil {
			return nil, err
		}
	}
	return f, f.Sync()
}

// rawFile is the plain loop: one write and one sync an append.
type rawFile struct {
	mu sync.Mutex
	f  *os.File
	at int64
}

func openRawFile(_ context.Context, dir string) (target, error) {
	f, err := openPreallocated(dir, "raw")
	return &rawFile{f: f}, err
}

func (r *rawFile) append(_ context.Context, _ int, _ uint64, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.f.WriteAt(data, r.at%(preallocate-entrySize)); err != nil {
		return err
	}
	r.at += int64(len(data))
	return datasync(r.f)
}

func (r *rawFile) close() error { return r.f.Close() }

// rawPages is the plain loop with what a commit of SQLite's writes for one
// entry: two or three pages, each behind a header of its own. It is the limit
// of a store on SQLite's file format.
type rawPages struct{ rawFile }

func openRawPages(_ context.Context, dir string) (target, error) {
	f, err := openPreallocated(dir, "pages")
	return &rawPages{rawFile{f: f}}, err
}

func (r *rawPages) append(_ context.Context, _ int, n uint64, _ []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages := 3
	if n%5 == 0 {
		pages = 2 // 2.8 on average, as counted
	}
	var frame [24 + 4096]byte
	if r.at+int64(pages*len(frame)) > preallocate {
		r.at = 0
	}
	for range pages {
		for _, part := range [][]byte{frame[:24], frame[24:]} {
			if _, err := r.f.WriteAt(part, r.at); err != nil {
				return err
			}
			r.at += int64(len(part))
		}
	}
	return datasync(r.f)
}

// rawLog is the limit with many writers: those who come while a batch is
// being written gather in the next, and the first of them to get its turn
// writes and syncs once for all.
type rawLog struct {
	turn sync.Mutex // held while a batch is written; guards f and at
	f    *os.File
	at   int64

	mu   sync.Mutex
	next *rawBatch
}

type rawBatch struct {
	data    []byte
	written bool // guarded by turn, like err
	err     error
}

func openRawLog(_ context.Context, dir string) (target, error) {
	f, err := openPreallocated(dir, "log")
	return &rawLog{f: f, next: new(rawBatch)}, err
}

func (l *rawLog) append(_ context.Context, _ int, _ uint64, data []byte) error {
	l.mu.Lock()
	b := l.next
	b.data = append(b.data, data...)
	l.mu.Unlock()

	l.turn.Lock()
	defer l.turn.Unlock()
	if !b.written {
		l.mu.Lock()
		l.next = new(rawBatch)
		l.mu.Unlock()
		b.written, b.err = true, l.write(b.data)
	}
	return b.err
}

func (l *rawLog) write(data []byte) error {
	if l.at+int64(len(data)) > preallocate {
		l.at = 0
	}
	if _, err := l.f.WriteAt(data, l.at); err != nil {
		return err
	}
	l.at += int64(len(data))
	return datasync(l.f)
}

func (l *rawLog) close() error { return l.f.Close() }
