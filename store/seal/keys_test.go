package seal

import (
	"fmt"
	"testing"
)

// Each journal and cell has a key of its own, and yet is bound by name too.
func TestBoundToKindNameAndSequence(t *testing.T) {
	box := newBox(make([]byte, keySize))
	type place struct {
		kind kind
		name string
		seq  uint64
	}
	places := []place{
		{entryKind, "j", 1}, {entryKind, "j", 2}, {entryKind, "k", 1}, {entryKind, "", 1},
		{entryKind, "j\x00", 1}, {cellKind, "j", 1}, {castKind, "j", 1}, {entryKind, "j", 1 << 63},
	}
	for _, from := range places {
		sealed := lock(box, []byte("x"), bound(from.kind, from.name, from.seq))
		for _, to := range places {
			plain, reason := unlock(box, sealed, bound(to.kind, to.name, to.seq))
			if opened := reason == ""; opened != (from == to) {
				t.Errorf("what was sealed for %v opens for %v as %q", from, to, plain)
			}
		}
	}
}

func TestBoxesAreBounded(t *testing.T) {
	var b boxes
	box := newBox(make([]byte, keySize))
	for i := range 2 * maxBoxes {
		name := fmt.Sprint(i)
		b.put(name, box)
		if b.get(name) == nil {
			t.Fatalf("the box of journal %s is not kept", name)
		}
	}
	if len(b.m) != maxBoxes {
		t.Errorf("%d boxes are kept, want %d", len(b.m), maxBoxes)
	}
	b.put("again", box)
	b.forget("again")
	if b.get("again") != nil {
		t.Error("a box is kept that was to be forgotten")
	}
}
