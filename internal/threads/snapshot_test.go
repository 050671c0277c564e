package threads_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// doctored is a store that changes snapshots as they are read, and counts the bytes
// of the snapshots and journals written to it.
type doctored struct {
	store.Store
	read                func(store.Cell) (store.Cell, error)
	snapshots, journals atomic.Int64
}

func (d *doctored) Unwrap() store.Store { return d.Store }

func (d *doctored) Get(ctx context.Context, key string) (store.Cell, error) {
	cell, err := d.Store.Get(ctx, key)
	if err == nil && d.read != nil && strings.HasPrefix(key, "snapshot/") {
		return d.read(cell)
	}
	return cell, err
}

func (d *doctored) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, "snapshot/") {
		d.snapshots.Add(int64(len(value)))
	}
	return d.Store.Put(ctx, key, value, prev)
}

func (d *doctored) Append(ctx context.Context, name string, after uint64, entries ...[]byte) (uint64, error) {
	for _, e := range entries {
		d.journals.Add(int64(len(e)))
	}
	return d.Store.Append(ctx, name, after, entries...)
}

// blind makes a store appear to have no snapshots.
func blind(store.Cell) (store.Cell, error) { return store.Cell{}, store.ErrNotFound }

// snapshotCell returns the snapshot of the only thread that has one.
func snapshotCell(t *testing.T, s store.Store) store.Cell {
	t.Helper()
	var found store.Cell
	for cell, err := range s.List(t.Context(), "snapshot/", "") {
		kit.NoErr(t, err)
		if strings.Count(cell.Key, "/") == 1 {
			found = cell
		}
	}
	return found
}

// reader returns a runtime without a worker on a store whose snapshots are
// doctored.
func reader(t *testing.T, s store.Store, read func(store.Cell) (store.Cell, error), flows ...perdure.Flow) *kit.Kit {
	t.Helper()
	d := &doctored{Store: s, read: read}
	rt := kit.Runtime(t, d, perdure.Options{Version: "test"}, flows...)
	return &kit.Kit{Runtime: rt, T: t, Store: d}
}

// sameThread expects two runtimes to report a thread alike.
func sameThread(t *testing.T, what, thread string, a, b *kit.Kit) {
	t.Helper()
	diff := cmp.Diff(a.MustStateAt(thread, 0), b.MustStateAt(thread, 0), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(perdure.Run{}, "Err"))
	if diff != "" {
		t.Fatalf("%s: with its snapshot the thread is another:\n%s", what, diff)
	}
}

// long returns a text too long to be repeated in a snapshot.
func long(text string) string { return text + strings.Repeat("-", 80) }

var page = perdure.NewText("page")

// stretch is a flow of many steps that leave short and long values in the state. It
// fails at the end if its input says so.
func stretch(steps int) perdure.Flow {
	return perdure.NewFlow("stretch", func(ctx context.Context, in string) (string, error) {
		for i := range steps {
			if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (string, error) {
				said := long(fmt.Sprint(in, i))
				err := errors.Join(kit.Count.Add(ctx, 1), kit.Tone.Set(ctx, in))
				switch i % 5 {
				case 0:
					err = errors.Join(err, kit.Items.AppendResult(ctx))
				case 1:
					err = errors.Join(err, kit.Items.Append(ctx, said, "short", said+"!"))
				case 2:
					err = errors.Join(err, page.Set(ctx, said+said))
				case 3:
					_, replaceErr := page.Replace(ctx, in, "page")
					err = errors.Join(err, replaceErr)
				}
				return said, err
			}); err != nil {
				return "", err
			}
		}
		if in == "fail" {
			return "", errors.New("as told")
		}
		return in, nil
	})
}

func TestSnapshotsSayWhatTheJournalSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &doctored{Store: memstore.New()}
		k := kit.New(t, s, perdure.Options{}, stretch(8), kit.Hear, kit.AskFlow("ask", perdure.Question{}), kit.Ledger)
		taken := map[string]bool{}
		var plain *kit.Kit // reads from the beginning
		rounds := kit.Sized(16, 30, 30)
		for i := range rounds {
			in := fmt.Sprint("run ", i)
			if i%4 == 3 {
				in = "fail"
			}
			run := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "stretch", Input: in, Key: fmt.Sprint("k", i)})
			run, err := k.Wait(t.Context(), "t", run.ID)
			kit.WantErr(t, "wait", err, nil)
			switch i % 6 {
			case 1:
				k.NoteInLedger("t", in)
			case 2:
				kit.WantErr(t, "signal", k.Signal(t.Context(), "t", "go", i, perdure.SignalOptions{Key: in}), nil)
			case 3:
				kit.WantErr(t, "pause", k.Pause(t.Context(), "t", k.StartOn("t", "ask", "").ID, perdure.Note{}), nil)
				asked := k.MustStateAt("t", 0).Thread.Runs
				kit.WantErr(t, "resume", k.Resume(t.Context(), "t", asked[len(asked)-1].ID, perdure.Note{}), nil)
				k.AnswerAt(k.WaitFor("t", perdure.Suspended), "/ask", perdure.Answer{Value: "x"})
				k.WaitFor("t", perdure.Succeeded)
			case 4:
				k.MustRewind("t", k.MustStateAt("t", 0).Seq-1-uint64(boundaryBack(k, "t")))
			}
			synctest.Wait()
			if cell := snapshotCell(t, s.Store); cell.Key != "" {
				taken[string(cell.Version)] = true
			}
			plain = reader(t, s.Store, blind, stretch(8), kit.Hear, kit.Ledger)
			sameThread(t, in, "t", plain, k)
			sameThread(t, in+", in a process that comes in", "t", plain, reader(t, s.Store, nil, stretch(8), kit.Hear, kit.Ledger))
			if a, b := plain.Trace("t"), k.Trace("t"); a != b {
				t.Fatalf("%s: the events differ:\n%s", in, cmp.Diff(a, b))
			}
			if run.Status == perdure.Failed && i%6 == 5 {
				kit.WantErr(t, "retry", k.Retry(t.Context(), "t", run.ID, perdure.Note{}), nil)
				k.WaitForRun("t", run.ID, perdure.Failed)
				sameThread(t, "a retry", "t", reader(t, s.Store, blind, stretch(8), kit.Hear, kit.Ledger), k)
			}
		}
		if len(taken) < rounds/7 {
			t.Errorf("only %d snapshots were taken", len(taken))
		}
		if s.snapshots.Load() >= s.journals.Load() {
			t.Errorf("%d bytes of snapshots, %d of the journal", s.snapshots.Load(), s.journals.Load())
		}
		end := k.MustStateAt("t", 0).Seq
		for at := uint64(1); at <= end; at += uint64(kit.Sized(37, 7, 7)) {
			if diff := cmp.Diff(plain.MustStateAt("t", at), k.MustStateAt("t", at), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(perdure.Run{}, "Err")); diff != "" {
				t.Fatalf("at %d:\n%s", at, diff)
			}
		}
	})
}

// TestKeysOfSignalsOutliveAFold: a repeated signal is compared with the one in the
// journal, also by a process that reads a snapshot, a fork or an import.
func TestKeysOfSignalsOutliveAFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, stretch(70))
		k.StartOn("t", "stretch", "a")
		k.WaitFor("t", perdure.Succeeded)
		large := strings.Repeat("x", 1<<20)
		values := map[string]any{"small": map[string]int{"n": 1}, "none": nil, "large": large}
		for key, v := range values {
			k.MustSignal("t", "go", v, key)
		}
		k.StartOn("t", "stretch", "b")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		if cell := snapshotCell(t, s); !bytes.Contains(cell.Value, []byte(`"small":`)) {
			t.Fatalf("no snapshot has the keys: %.100s", cell.Value)
		}
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"})
		kit.NoErr(t, err)
		var file bytes.Buffer
		kit.NoErr(t, k.Export(t.Context(), "t", &file, perdure.ExportOptions{}))
		_, err = k.Import(t.Context(), &file, perdure.ImportOptions{As: "i"})
		kit.NoErr(t, err)
		r := reader(t, s, nil, stretch(70))
		for _, thread := range []string{"t", "f", "i"} {
			before := r.MustStateAt(thread, 0).Seq
			for key, v := range values {
				r.MustSignal(thread, "go", v, key)
				kit.WantErr(t, thread+" "+key, r.Signal(t.Context(), thread, "go", "another", perdure.SignalOptions{Key: key}), perdure.ErrKeyReused)
				kit.WantErr(t, thread+" "+key, r.Signal(t.Context(), thread, "gone", v, perdure.SignalOptions{Key: key}), perdure.ErrKeyReused)
				kit.WantErr(t, thread+" "+key, r.Signal(t.Context(), thread, "go", large+"y", perdure.SignalOptions{Key: key}), perdure.ErrKeyReused)
			}
			if after := r.MustStateAt(thread, 0).Seq; after != before {
				t.Errorf("%s: %d entries were written", thread, after-before)
			}
		}
	})
}

// boundaryBack returns how many entries before the last but one a thread had no
// active run.
func boundaryBack(k *kit.Kit, thread string) int {
	last := k.MustStateAt(thread, 0).Seq
	for n := range int(last) - 2 {
		runs := k.MustStateAt(thread, last-1-uint64(n)).Thread.Runs
		if !slices.ContainsFunc(runs, func(r *perdure.Run) bool { return !r.Status.Final() }) {
			return n
		}
	}
	k.T.Fatal("no boundary")
	return 0
}

// An incomplete or damaged snapshot is ignored.
func TestSnapshotsThatAreBadAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, stretch(70))
		k.StartOn("t", "stretch", "a")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		cell := snapshotCell(t, s)
		if len(cell.Value) == 0 {
			t.Fatal("no snapshot was taken")
		}
		want := k.MustStateAt("t", 0)
		check := func(what string, value []byte) {
			t.Helper()
			r := reader(t, s, func(c store.Cell) (store.Cell, error) { c.Value = value; return c, nil })
			got, err := r.Get(t.Context(), "t")
			if err != nil || got.Seq != want.Seq || len(got.Runs) != 1 || got.Runs[0].Steps != 70 || string(got.Runs[0].Output) != `"a"` {
				t.Fatalf("%s: %+v, %v", what, got, err)
			}
		}
		check("whole", cell.Value)
		for i := range cell.Value {
			for bit := range 8 {
				if i > 150 && bit != i%8 {
					continue // internal/journal flips each bit of what follows
				}
				if (8*i+bit)%kit.Sized(7, 1, 1) != 0 {
					continue
				}
				bad := bytes.Clone(cell.Value)
				bad[i] ^= 1 << bit
				check(fmt.Sprintf("bit %d of byte %d", bit, i), bad)
			}
		}
		for n := 0; n < len(cell.Value); n += kit.Sized(7, 1, 1) {
			check(fmt.Sprintf("cut at %d", n), cell.Value[:n])
		}
		check("longer", append(bytes.Clone(cell.Value), ' '))
		check("a blob that is not there", []byte(`b{"Seq":74,"Ref":{"hash":"x","size":3}}`))
		check("of the format before", []byte(`h{"v":2,"shape":"abcdefghijkl","sum":"","thread":{"seq":74}}`))
	})
}

// An intact snapshot of another thread, or of more than the journal has, is
// ignored; the next boundary writes a good one.
func TestSnapshotsThatDoNotFitAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, stretch(70))
		k.StartOn("t", "stretch", "mine")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		mine := snapshotCell(t, s)
		name := kit.Journals(t, s)[0]
		lines, err := store.ReadAll(t.Context(), s, name, 0)
		kit.WantErr(t, "read", err, nil)
		k.StartOn("t", "stretch", "later")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		later := snapshotCell(t, s)
		if bytes.Equal(later.Value, mine.Value) {
			t.Fatal("no second snapshot was taken")
		}
		other := kit.New(t, memstore.New(), perdure.Options{}, stretch(70))
		other.StartOn("t", "stretch", "theirs")
		other.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		for what, value := range map[string][]byte{
			"of a later sequence": later.Value, "of another thread": snapshotCell(t, other.Store).Value, "damaged": mine.Value[:50], "good": mine.Value} {
			// The store as it was after the first run, except for the snapshot.
			twin := memstore.New()
			for cell, err := range s.List(t.Context(), "", "") {
				kit.WantErr(t, "list", err, nil)
				if strings.HasPrefix(cell.Key, "snapshot/") {
					cell.Value = value
				}
				if !strings.HasPrefix(cell.Key, "lease/") {
					_, err = twin.Put(t.Context(), cell.Key, cell.Value, "")
					kit.WantErr(t, "put", err, nil)
				}
			}
			for i := range lines {
				_, err := twin.Append(t.Context(), name, uint64(i), lines[i].Data)
				kit.WantErr(t, "append", err, nil)
			}
			kt := kit.New(t, twin, perdure.Options{}, stretch(70))
			got := kt.MustStateAt("t", 0)
			if got.Seq != uint64(len(lines)) || len(got.Thread.Runs) != 1 || string(got.State["tone"]) != `"mine"` {
				t.Errorf("%s: at %d, %d runs, %s", what, got.Seq, len(got.Thread.Runs), got.State["tone"])
			}
			kt.StartOn("t", "stretch", "next")
			kt.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			restored, err := journal.Restore(snapshotCell(t, twin).Value[1:])
			if err != nil || restored.Seq != kt.MustStateAt("t", 0).Seq || string(restored.State["tone"].Base.JSON) != `"next"` {
				t.Errorf("%s: the next snapshot is %+v, %v", what, restored, err)
			}
			kt.Stop()
		}
	})
}

func TestSnapshotsThatAreLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, perdure.NewFlow("fill", func(ctx context.Context, in string) (string, error) {
			for i := range 2400 {
				if _, err := perdure.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (bool, error) {
					if i >= 1200 || in == "" {
						return true, nil
					}
					return true, kit.Items.Append(ctx, strings.Repeat(in, 60)) // short enough to be repeated in a snapshot
				}); err != nil {
					return "", err
				}
			}
			return "", nil
		}))
		plain := reader(t, s, blind)
		var places []string
		for _, in := range []string{"x", ""} {
			k.StartOn("t", "fill", in)
			k.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			cell := snapshotCell(t, s)
			if len(cell.Value) == 0 || cell.Value[0] != 'b' {
				t.Fatalf("the snapshot is %.40q", cell.Value)
			}
			sameThread(t, "a blob", "t", plain, k)
			here := map[string]bool{}
			for c, err := range s.List(t.Context(), cell.Key+"/", "") {
				kit.WantErr(t, "list", err, nil)
				here[strings.Split(strings.TrimPrefix(c.Key, cell.Key+"/"), "/")[0]] = true
				// It is ignored if any one of its cells is missing.
				r := reader(t, s, nil)
				version, value := c.Version, c.Value
				kit.WantErr(t, "delete", s.Delete(t.Context(), c.Key, version), nil)
				sameThread(t, "without "+c.Key, "t", plain, r)
				_, err = s.Put(t.Context(), c.Key, value, "")
				kit.WantErr(t, "put", err, nil)
			}
			if len(here) != 1 {
				t.Errorf("blobs of %d snapshots are there", len(here))
			}
			for place := range here {
				places = append(places, place)
			}
		}
		if len(places) != 2 || places[0] == places[1] {
			t.Errorf("snapshots were taken at %v", places)
		}
	})
}

// However fast the state of a thread grows, few snapshots are taken, the newest
// covers at least a third of the entries, and all together are smaller than the
// journal.
func TestSnapshotsFollowAGrowingState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &doctored{Store: memstore.New()}
		k := kit.New(t, s, perdure.Options{}, perdure.NewFlow("talk", func(ctx context.Context, in string) (bool, error) {
			return perdure.Step(ctx, "say", func(ctx context.Context) (bool, error) {
				return true, kit.Items.Append(ctx, strings.Repeat(in, 300))
			})
		}))
		taken := map[string]bool{}
		for range 100 {
			k.StartOn("t", "talk", "x")
			k.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			if cell := snapshotCell(t, s.Store); cell.Key != "" {
				taken[string(cell.Version)] = true
			}
		}
		restored, err := journal.Restore(snapshotCell(t, s.Store).Value[1:])
		kit.NoErr(t, err)
		if last := k.MustStateAt("t", 0).Seq; restored.Seq < last/3 || len(taken) > 8 {
			t.Errorf("%d snapshots, the last one at %d of %d", len(taken), restored.Seq, last)
		}
		if s.snapshots.Load() >= s.journals.Load() {
			t.Errorf("%d bytes of snapshots, %d of the journal", s.snapshots.Load(), s.journals.Load())
		}
	})
}

// A fork of a long thread restores the shared part from its parent's snapshot.
func TestSnapshotsServeForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, stretch(200), kit.Game)
		k.StartOn("t", "stretch", "a")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		k.MustFork(perdure.ForkRequest{Thread: "t", As: "a"})
		k.MustFork(perdure.ForkRequest{Thread: "a", As: "b"})
		k.StartOn("b", "game", "ann")
		k.WaitFor("b", perdure.Succeeded)
		sameThread(t, "a fork of a fork", "b", reader(t, s, blind), k)
		sameThread(t, "a fork of a fork, in a process that comes in", "b", reader(t, s, blind), reader(t, s, nil))
		hits := 0
		seen := reader(t, s, func(c store.Cell) (store.Cell, error) { hits++; return c, nil })
		if _, err := seen.Get(t.Context(), "b"); err != nil || hits != 1 {
			t.Errorf("the snapshot was used %d times, %v", hits, err)
		}
	})
}
