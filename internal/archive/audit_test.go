package archive_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

func TestVerifyTellsThatAThreadIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, auditFlow(new(ran)))
		playAudit(k, "t")
		v := k.MustVerify("t")
		info, err := k.Get(t.Context(), "t")
		kit.NoErr(t, err)
		if v.Entries != info.Seq || v.Good != info.Seq || v.Blobs != 3 || v.Bytes < 210_000 || v.Head == "" {
			t.Errorf("%+v of a thread of %d entries", v, info.Seq)
		}
		if info.Seq < 40 {
			t.Errorf("the thread has %d entries", info.Seq)
		}
		_, err = k.Verify(t.Context(), "another")
		kit.WantErr(t, "an unknown thread", err, perdure.ErrNoThread)
	})
}

func TestAnExportIsVerifiedWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, auditFlow(new(ran)))
		playAudit(k, "t")
		want := k.MustVerify("t")
		file := k.MustExport("t", perdure.ExportOptions{})
		var err error
		want.Signer, err = k.ExportKey(t.Context())
		kit.WantErr(t, "the key", err, nil)
		if diff := cmp.Diff(want, kit.VerifyFile(t, file)); diff != "" {
			t.Errorf("the export and the thread are verified alike (-thread +export):\n%s", diff)
		}
		if !bytes.Equal(file, k.MustExport("t", perdure.ExportOptions{})) {
			t.Error("two exports differ")
		}
		_, err = perdure.VerifyExport(cutReader(file, 5000, errors.New("the line is down")))
		if err == nil || !strings.Contains(err.Error(), "the line is down") {
			t.Errorf("a reader that fails is %v", err)
		}
	})
}

func TestARedactedExportSaysNothingAndVerifies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, auditFlow(new(ran)))
		playAudit(k, "t")
		file := k.MustExport("t", perdure.ExportOptions{Redact: true})
		v, whole := kit.VerifyFile(t, file), k.MustVerify("t")
		if !v.OK() || !v.Redacted || v.Head != whole.Head || v.Good != whole.Good || v.Blobs != 0 {
			t.Errorf("%+v, the thread is %+v", v, whole)
		}
		for _, secret := range []string{"hello", "so glad", "Go on?", "rather blue", "large large", "not yet", "inner inner"} {
			if bytes.Contains(file, []byte(secret)) {
				t.Errorf("it says %q", secret)
			}
		}
		for _, line := range kit.ExportedEntries(file) {
			if len(line) > 400 {
				t.Errorf("a redacted entry has %d bytes", len(line))
			}
		}
		_, err := k.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{As: "u"})
		kit.WantErr(t, "import", err, perdure.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), "redacted") {
			t.Errorf("it does not say why: %v", err)
		}
	})
}

func TestAnImportedThreadGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(ran)
		k := kit.New(t, nil, perdure.Options{}, auditFlow(r))
		was := playAudit(k, "t")
		file := k.MustExport("t", perdure.ExportOptions{})
		calls := r.n.Load()

		other := kit.New(t, nil, perdure.Options{}, auditFlow(r))
		other.MustImport(file, "")
		time.Sleep(time.Hour)
		run := other.WaitForRun("t", "", perdure.Paused)
		if len(run.Asks) != 0 || run.Steps != was.Steps || run.ID != was.ID {
			t.Errorf("the run is %+v, it was %+v", run, was)
		}
		again := other.MustExport("t", perdure.ExportOptions{})
		a, b := kit.ExportedEntries(file), kit.ExportedEntries(again)
		if len(b) != len(a)+1 || !cmp.Equal(a, b[:len(a)]) {
			t.Errorf("%d entries became %d, and are not the same", len(a), len(b))
		}
		if v := kit.VerifyFile(t, again); !v.OK() {
			t.Error(v.Problem)
		}
		other.MustVerify("t")
		before, err := k.StateAt(t.Context(), "t", 0)
		kit.WantErr(t, "the state", err, nil)
		after, err := other.StateAt(t.Context(), "t", 0)
		kit.WantErr(t, "the new state", err, nil)
		kit.NoDiff(t, cmp.Diff(before.State, after.State)+cmp.Diff(before.Deps, after.Deps))

		kit.NoErr(t, other.Resume(t.Context(), "t", "", perdure.Note{}))
		other.AnswerAt(other.WaitForRun("t", "", perdure.Suspended), "/ok", perdure.Answer{Value: "fine"})
		end := other.WaitForRun("t", "", perdure.Succeeded)
		k.AnswerAt(was, "/ok", perdure.Answer{Value: "fine"})
		mine := k.WaitForRun("t", "", perdure.Succeeded)
		if !strings.HasPrefix(string(end.Output), `"so glad fine`) || !strings.HasPrefix(string(mine.Output), `"so glad fine`) {
			t.Errorf("the outputs are %s and %s", end.Output, mine.Output)
		}
		if n := r.n.Load() - calls; n != 2 {
			t.Errorf("%d steps ran behind the export, want the last one of each", n)
		}
		listed := 0
		for s, err := range other.List(t.Context(), perdure.ListOptions{}) {
			kit.WantErr(t, "list", err, nil)
			if listed++; s.ID != "t" {
				t.Errorf("%+v is listed", s)
			}
		}
		if listed != 1 {
			t.Errorf("%d threads are listed", listed)
		}
		// An import can be exported and imported again.
		other.MustImport(other.MustExport("t", perdure.ExportOptions{}), "third")
		other.MustVerify("third")
	})
}

func TestAnImportTakesNoIDThatIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, auditFlow(new(ran)))
		playAudit(k, "t")
		file := k.MustExport("t", perdure.ExportOptions{})
		before := kit.Holdings(t, k.Store)
		_, err := k.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{})
		kit.WantErr(t, "the same id", err, perdure.ErrExists)
		_, err = k.Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{As: "a\nb"})
		kit.WantErr(t, "a bad id", err, perdure.ErrInvalid)
		if diff := cmp.Diff(before, kit.Holdings(t, k.Store)); diff != "" {
			t.Errorf("something is left of it:\n%s", diff)
		}
		k.Tenant("acme") // another tenant's ids are its own
		if _, err := k.Tenant("acme").Import(t.Context(), bytes.NewReader(file), perdure.ImportOptions{}); err != nil {
			t.Fatal(err)
		}
		info, err := k.Tenant("acme").Get(t.Context(), "t")
		if err != nil || info.Tenant != "acme" {
			t.Errorf("%+v, %v", info, err)
		}
		k.MustVerify("t")
	})
}
