package journal

import "testing"

// TestMoved: a thread that has moved has nothing due, and its snapshot keeps that.
func TestMoved(t *testing.T) {
	w := &writer{}
	w.add(Created, 0, "", `{"thread":"t"}`)
	w.add(Queued, 0, "", `{"id":"one","flow":"f"}`)
	if run, _ := mustFold(t, w.lines).Next(1, func(*Run) bool { return true }); run == nil {
		t.Fatal("nothing is due before the move")
	}
	w.add(Moved, 0, "", `{"name":"there"}`)
	th := mustFold(t, w.lines)
	if run, at := th.Next(1, func(*Run) bool { return true }); run != nil || at != 0 || th.Moved != "there" {
		t.Errorf("after the move to %q, run %v is due at %d", th.Moved, run, at)
	}
	restored, err := Restore(mustSnapshot(t, th))
	if err != nil || restored.Moved != "there" {
		t.Errorf("the snapshot: %+v, %v", restored, err)
	}
	w.add(Moved, 0, "", `{}`)
	if _, at, err := fold(w.lines); err == nil || at != 4 {
		t.Errorf("a move to nowhere is read: %d, %v", at, err)
	}
	if !Moved.Known() || Moved.Open() {
		t.Error("a worker absorbs a move")
	}
}
