package archive_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// corruptible is a thread "bad" of entries of all kinds, whose journal can be
// rewritten, and a thread "good" beside it.
type corruptible struct {
	*kit.Kit
	shown *kit.Rewritten
	lines [][]byte
}

func newCorruptible(t *testing.T, r *ran) *corruptible {
	t.Helper()
	s := &kit.Rewritten{Store: memstore.New()}
	k := kit.New(t, s, perdure.Options{}, auditFlow(r))
	playAudit(k, "bad")
	playAudit(k, "good")
	s.Journal = kit.Journals(t, s)[0]
	c := &corruptible{Kit: k, shown: s}
	entries, err := store.ReadAll(t.Context(), s.Store, s.Journal, 0)
	if err != nil || len(entries) < 52 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		c.lines = append(c.lines, e.Data)
	}
	return c
}

// found expects that Verify and Get find the first damage at a sequence.
func (c *corruptible) found(t *testing.T, what string, seq int, lines [][]byte) {
	t.Helper()
	c.shown.Show(lines)
	v, err := c.Verify(context.Background(), "bad")
	if err != nil || v.OK() || v.Good != uint64(seq-1) || !strings.Contains(v.Problem, fmt.Sprintf("entry %d", seq)) {
		t.Fatalf("%s: %+v, %v; want the damage at entry %d", what, v, err, seq)
	}
}

// refused expects that Get tells of the damage at a sequence, and returns what
// is before it.
func (c *corruptible) refused(t *testing.T, what string, seq int) {
	t.Helper()
	info, err := c.Get(context.Background(), "bad")
	kit.WantErr(t, what, err, perdure.ErrCorrupt)
	says := fmt.Sprintf("thread bad is intact up to entry %d, where it can be forked", seq-1)
	if seq == 1 {
		says = "thread bad: none of it is intact"
	}
	if info == nil || info.ID != "bad" || info.Seq != uint64(seq-1) || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%s: Get returns %+v, %v", what, info, err)
	}
}

// flipBit returns lines with one bit of one of them changed.
func flipBit(lines [][]byte, entry, bit int) [][]byte {
	lines = slices.Clone(lines)
	lines[entry] = bytes.Clone(lines[entry])
	lines[entry][bit/8] ^= 1 << (bit % 8)
	return lines
}

// sweepBits yields the bits of n bytes: all of them in a torture run, else
// every 73rd, and every 219th in the short form, which are all bits of a byte in
// turn.
func sweepBits(n int) iter.Seq[int] {
	step := kit.Sized(219, 73, 1)
	return func(yield func(int) bool) {
		for i := 0; i < n*8 && yield(i); i += step {
		}
	}
}

func TestVerifyFindsAndLocatesEveryFlippedBit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorruptible(t, &ran{small: true})
		flips := 0
		for i, line := range c.lines {
			for bit := range sweepBits(len(line)) {
				c.found(t, fmt.Sprintf("bit %d of entry %d", bit, i+1), i+1, flipBit(c.lines, i, bit))
				flips++
			}
			c.shown.Show(flipBit(c.lines, i, 8*(len(line)-60)))
			c.refused(t, "a flipped bit", i+1)
		}
		if flips < kit.Sized(250, 800, 800) {
			t.Errorf("only %d bits were flipped", flips)
		}
		c.shown.Show(nil)
		c.MustVerify("bad")
	})
}

func TestVerifyFindsAndLocatesEveryMovedEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorruptible(t, &ran{small: true})
		n := len(c.lines)
		for i := range n {
			if i < n-1 { // the last one missing is a cut tail
				c.found(t, "a missing entry", i+1, slices.Delete(slices.Clone(c.lines), i, i+1))
				c.refused(t, "a missing entry", i+1)
				swapped := slices.Clone(c.lines)
				swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
				c.found(t, "swapped entries", i+1, swapped)
				c.refused(t, "swapped entries", i+1)
			}
			c.found(t, "a doubled entry", i+2, slices.Insert(slices.Clone(c.lines), i, c.lines[i]))
			c.refused(t, "a doubled entry", i+2)
			c.found(t, "an entry that is cut", i+1, slices.Replace(slices.Clone(c.lines), i, i+1, c.lines[i][:len(c.lines[i])-1]))

			// A tail that is gone leaves a thread that is good in itself.
			c.shown.Show(c.lines[:i])
			v, err := c.Verify(t.Context(), "bad")
			if err != nil || v.OK() || v.Good != uint64(i) || !strings.Contains(v.Problem, "tail is missing") {
				t.Errorf("a tail cut at %d: %+v, %v", i, v, err)
			}
		}
	})
}

func TestVerifyFindsDamagedAndMissingBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorruptible(t, new(ran))
		whole := c.MustVerify("bad")
		if whole.Blobs == 0 {
			t.Fatal("the thread has no blobs")
		}
		file := c.MustExport("bad", perdure.ExportOptions{})
		_, name, _ := strings.Cut(c.shown.Journal, "/")
		cells := 0
		for cell, err := range c.shown.Store.List(t.Context(), "blob/"+name+"/", "") {
			kit.NoErr(t, err)
			cells++
			// Gone, changed, empty.
			for what, value := range map[string][]byte{"gone": nil, "changed": append(bytes.Clone(cell.Value[1:]), 'x'), "empty": {}} {
				put := func(value []byte) {
					now, err := c.shown.Store.Get(t.Context(), cell.Key)
					if err == nil && value == nil {
						err = c.shown.Store.Delete(t.Context(), cell.Key, now.Version)
					} else {
						_, err = c.shown.Store.Put(t.Context(), cell.Key, value, now.Version)
					}
					kit.NoErr(t, err)
				}
				put(value)
				v, err := c.Verify(t.Context(), "bad")
				if err != nil || v.OK() || v.Good == 0 || v.Good >= whole.Good || !strings.Contains(v.Problem, "the value of") {
					t.Errorf("a blob's cell is %s: %+v, %v", what, v, err)
				}
				var short bytes.Buffer
				if err := c.Export(t.Context(), "bad", &short, perdure.ExportOptions{}); err == nil {
					t.Errorf("a blob's cell is %s, and the thread is exported", what)
				} else if v := kit.VerifyFile(t, short.Bytes()); v.OK() {
					t.Error("an export that failed is verified")
				}
				if err := c.Export(t.Context(), "bad", new(bytes.Buffer), perdure.ExportOptions{Redact: true}); err != nil {
					t.Errorf("the entries are good, and a redacted export is %v", err)
				}
				c.MustVerify("good")
				put(cell.Value)
			}
		}
		if cells == 0 {
			t.Error("no cell was damaged")
		}
		c.MustVerify("bad")
		if !bytes.Equal(file, c.MustExport("bad", perdure.ExportOptions{})) {
			t.Error("the export is another")
		}
	})
}
