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
