package threads

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// A thread that is archived leaves the store: its journal is dropped, which is for
// ever, and so it has another name when it is restored. Everything that others keep
// or derive from a thread's name stays the same: keys of steps, ids of asks and
// events, pins. That is because the name of a restored thread contains the one that
// the thread had first, see Self.
//
// A cell under that first name says where the thread is. It is there from the first
// attempt to archive the thread until the thread is erased, and it decides: the cell
// of the id only leads to it.

// restoredMark begins the mark in the names of restored threads. What follows is the
// first name without tenant and owner.
const restoredMark = "r"

// Self returns the name that a thread had first, which differs from its name once it
// was archived and restored.
func Self(name string) string {
	first, ok := strings.CutPrefix(markOf(name), restoredMark)
	if !ok {
		return name
	}
	tenant, _, _ := strings.Cut(name, ".")
	return tenant + "." + first + name[len(name)-ownerSize:]
}

// RestoredName returns a new name for a thread whose first name is self. It sorts as
// that one does in lists, which are in the order of creation.
func RestoredName(self string) string {
	tenant, first, _ := strings.Cut(self, ".")
	made, ok := MadeAt(self)
	if !ok {
		made = clock.Now()
	}
	return tenant + "." + newIncarnation(made, restoredMark+first)
}

// The states of a thread that is or was archived.
const (
	Archiving = "archiving" // it is in the store, and may be in the archive; its last entry decides
	InArchive = "archived"
	Restoring = "restoring" // it is in the archive; a part of it may be in the store
	InStore   = "restored"  // it is in the store again
	Erasing   = "erasing"
)

// Archived is what the store knows about a thread that is or was archived.
type Archived struct {
	State   string            `json:"state"`
	From    string            `json:"from,omitempty"` // the name under which it is or was archived
	Name    string            `json:"name,omitempty"` // the name under which it is or was restored
	ID      string            `json:"id,omitempty"`
	Tenant  string            `json:"tenant,omitempty"`
	IDCell  string            `json:"idcell,omitempty"` // the key of the cell that leads from the id
	User    string            `json:"user,omitempty"`
	Title   string            `json:"title,omitempty"`
	Flow    string            `json:"flow,omitempty"`
	Status  journal.Status    `json:"status,omitempty"`
	Meta    map[string]string `json:"meta,omitempty"`
	Created int64             `json:"created,omitempty"`
	Updated int64             `json:"updated,omitempty"`
	At      int64             `json:"at,omitempty"`   // when it was archived
	Back    int64             `json:"back,omitempty"` // when it was restored

	Seq   uint64   `json:"seq,omitempty"`  // of its last entry
	Head  string   `json:"head,omitempty"` // the hash of that entry
	Roots []Root   `json:"roots,omitempty"`
	Of    []string `json:"of,omitempty"` // the names of the threads that it pins

	Place  string   `json:"place,omitempty"` // the URL of the place
	In     string   `json:"in,omitempty"`    // its id, if it has one
	Object string   `json:"object,omitempty"`
	Sum    string   `json:"sum,omitempty"` // the SHA-256 of the object
	Size   int64    `json:"size,omitempty"`
	Key    []byte   `json:"key,omitempty"`   // encrypts the object
	Tries  []string `json:"tries,omitempty"` // objects that processes are about to write there, or were when they died
}

// HasObjects reports whether there may be objects of the thread.
func (a *Archived) HasObjects() bool { return a.Object != "" || len(a.Tries) > 0 }

// Live returns the name of the thread if it is in the store, else "". An archiving
// thread may also have left it: its journal says so.
func (a *Archived) Live() string {
	switch a.State {
	case Archiving:
		return a.From
	case InStore:
		return a.Name
	}
	return ""
}

// Error returns the error for those who ask for the thread.
func (a *Archived) Error() error {
	if a.State == Erasing {
		return &fault.ErasedError{Thread: a.ID}
	}
	return &fault.ArchivedError{Thread: a.ID, At: clock.Stamp(a.At), Where: a.Place + "/" + a.Object}
}

// ArchivedPrefix is that of the keys of cells that say where threads are, and
// ArchivedKey the key of one.
const ArchivedPrefix = "archived/"

func ArchivedKey(name string) string { return ArchivedPrefix + Self(name) }

// ReadArchived returns the content of that cell and its version, nil if there is none.
func (c *Threads) ReadArchived(ctx context.Context, name string) (*Archived, store.Version, error) {
	cell, err := c.Store.Get(ctx, ArchivedKey(name))
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	a, err := DecodeArchived(cell)
	return a, cell.Version, err
}

// DecodeArchived returns what such a cell says.
func DecodeArchived(cell store.Cell) (*Archived, error) {
	var a Archived
	if err := json.Unmarshal(cell.Value, &a); err != nil {
		return nil, fmt.Errorf("%w: cell %q: %w", fault.ErrCorrupt, cell.Key, err)
	}
	return &a, nil
}

// UpdateArchived changes the cell of a thread. Decide returns what it shall be, given
// what it is or nil, or ErrNothing; UpdateArchived returns what it is then.
func (c *Threads) UpdateArchived(ctx context.Context, name string, decide func(*Archived) (*Archived, error)) (now *Archived, err error) {
	for range 3 { // to be sure, if an answer was lost
		_, err = store.Update(ctx, c.Store, ArchivedKey(name), func(old store.Cell) ([]byte, error) {
			now = nil
			if old.Version != "" {
				var err error
				if now, err = DecodeArchived(old); err != nil {
					return nil, err
				}
			}
			next, err := decide(now)
			if err != nil {
				return nil, err
			}
			now = next
			return json.Marshal(next)
		})
		if errors.Is(err, ErrNothing) {
			return now, nil
		}
		if err == nil || !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknown) {
			break
		}
	}
	return now, err
}

// awayMark begins the cell of an id whose thread is archived; its first name follows.
const awayMark = "archived:"

// AwayLead returns the content of the cell of an id whose thread, with this first
// name, is archived.
func AwayLead(self string) string { return awayMark + self }

// Away returns the first name of the archived thread that the cell of an id leads to,
// and whether it leads to one. A thread that was restored need not be.
func Away(lead string) (self string, away bool) { return strings.CutPrefix(lead, awayMark) }

// led returns the name of the thread that the cell of an id leads to, or the error
// that says where it is.
func (r *Tenant) led(ctx context.Context, id, lead string) (string, error) {
	self, away := Away(lead)
	if !away {
		return lead, nil
	}
	a, _, err := r.All.ReadArchived(ctx, self)
	switch {
	case err != nil:
		return "", err
	case a == nil, r.Owner != nil && a.User != *r.Owner && a.Live() == "":
		return "", fmt.Errorf("%w: %q", fault.ErrNoThread, id)
	case a.Live() != "":
		return a.Live(), nil
	case a.State == Erasing:
		return "", &fault.ErasedError{Thread: id}
	}
	return "", r.All.away(ctx, a)
}

// away returns the error for those who ask for an archived thread. It first completes
// what a process that died while it archived the thread has left of it here: the gate
// of the thread goes last.
func (c *Threads) away(ctx context.Context, a *Archived) error {
	if c.FinishAway == nil || a.State == Erasing {
		return a.Error()
	}
	_, err := c.Store.Get(ctx, GateKey(a.From))
	if err == nil {
		err = c.FinishAway(ctx, a)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		c.Warn("completing the archiving of a thread", err, "thread", a.From)
	}
	return a.Error()
}

// Returned returns the name of a thread that was archived and is in the store again,
// "" if it was erased. It is for those who want the id: to them a thread in the
// archive is an error, and one of another user too.
func (r *Tenant) Returned(ctx context.Context, id, self string) (string, error) {
	a, _, err := r.All.ReadArchived(ctx, self)
	switch {
	case err != nil || a == nil:
		return "", err
	case a.Live() != "":
		return a.Live(), nil
	case a.State == Erasing:
		return "", &fault.ErasedError{Thread: id}
	case r.Owner != nil && a.User != *r.Owner:
		return "", fmt.Errorf("%w: %q", fault.ErrExists, id)
	}
	return "", r.All.away(ctx, a)
}

// Here returns the name that a thread has now, given one that it has or had. If it
// is archived, the error says so.
func (c *Threads) Here(ctx context.Context, name string) (string, error) {
	a, _, err := c.ReadArchived(ctx, name)
	switch {
	case err != nil:
		return "", err
	case a == nil:
		return name, nil
	case a.Live() == "":
		return "", a.Error()
	}
	return a.Live(), nil
}

// HereIfMoved is Here for callers that found the journal of a name gone: it returns
// their error if the thread has no other name.
func (c *Threads) HereIfMoved(ctx context.Context, name string, gone error) (string, error) {
	here, err := c.Here(ctx, name)
	if err == nil && here == name {
		err = gone
	}
	return here, err
}

// IfArchived returns the error of reading or changing a thread: one that was erased
// because it is in the archive is archived, not erased. Nor is it damaged: what is left
// of a fork cannot be read once the thread that it was forked from is gone too.
func (c *Threads) IfArchived(ctx context.Context, o *Opened, err error) error {
	if o == nil || !errors.Is(err, fault.ErrErased) && !errors.Is(err, fault.ErrCorrupt) {
		return err
	}
	a, _, readErr := c.ReadArchived(ctx, o.Name)
	if readErr != nil || a == nil || a.State == Erasing || a.Live() != "" && !(o.Thread.Archived && a.From == o.Name) {
		return err
	}
	if a.Live() == "" && errors.Is(err, fault.ErrCorrupt) && a.From != o.Name {
		return err
	}
	away := c.away(ctx, a)
	if a.State == Archiving { // now it is known since when
		if now, _, err := c.ReadArchived(ctx, o.Name); err == nil && now != nil && now.Live() == "" {
			return now.Error()
		}
	}
	return away
}

// Roots returns where a thread was forked, newest first, with the first names of its
// ancestors. Those of a restored thread are in its cell, since it has all entries in
// its own journal.
func (c *Threads) Roots(ctx context.Context, name string) ([]Root, error) {
	var roots []Root
	for IsFork(name) {
		r, err := c.RootOf(ctx, name)
		if err != nil || r.Parent == "" {
			return roots, err
		}
		roots = append(roots, Root{Self(r.Parent), r.Base})
		name = r.Parent
	}
	if !IsFork(Self(name)) {
		return roots, nil
	}
	a, _, err := c.ReadArchived(ctx, name)
	if err == nil && a == nil {
		err = fmt.Errorf("%w: nothing says where thread %s was forked", fault.ErrCorrupt, name)
	}
	if err != nil {
		return nil, err
	}
	return append(roots, a.Roots...), nil
}

// MadeAt returns when a thread's name was made, which is part of the name.
func MadeAt(name string) (time.Time, bool) {
	_, part, ok := strings.Cut(name, ".")
	if !ok || len(part) < 16 {
		return time.Time{}, false
	}
	b, err := Base32.DecodeString(part[:16])
	if err != nil {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(b[:8]) >> 8)), true
}
