package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/erasure"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/threads"
)

// UserData counts what a store and its archive hold for a user. Schedules are omitted if
// there are none, so that receipts signed before schedules existed remain valid.
type UserData struct {
	Threads     int `json:"threads" jsonschema:"threads in the store, including forks and children"`
	Archived    int `json:"archived" jsonschema:"threads in the archive"`
	Memory      int `json:"memory" jsonschema:"values that agents remember"`
	Rules       int `json:"rules" jsonschema:"rules that allow tool calls on the user's threads"`
	Credentials int `json:"credentials" jsonschema:"credentials that agents use for the user"`
	Uploads     int `json:"uploads" jsonschema:"uploaded files that have not expired"`
	Jobs        int `json:"jobs" jsonschema:"bulk jobs for the user's threads"`
	Exports     int `json:"exports" jsonschema:"exports of threads that bulk jobs wrote to the archive"`
	Schedules   int `json:"schedules,omitempty" jsonschema:"schedules that start runs for the user"`
}

func userData(n map[erasure.Kind]int) UserData {
	return UserData{Threads: n[erasure.Threads], Archived: n[erasure.Archived], Memory: n[erasure.Memory], Rules: n[erasure.Rules],
		Credentials: n[erasure.Credentials], Uploads: n[erasure.Uploads], Jobs: n[erasure.Jobs], Exports: n[erasure.Exports], Schedules: n[erasure.Schedules]}
}

// Receipt proves that a store erased what it held for a user, without revealing who the
// user is or what was erased. [VerifyReceipt] checks its signature, [Runtime.CheckReceipt]
// checks which user it is about, and [Receipt.Covers] whether it includes an exported
// thread.
type Receipt struct {
	Format  int       `json:"format" jsonschema:"1"`
	Tenant  string    `json:"tenant" jsonschema:"the user's tenant"`
	User    string    `json:"user" jsonschema:"a hash of the user, keyed with a secret of the store"`
	Begun   time.Time `json:"begun" jsonschema:"when the first erase of this user began"`
	Ended   time.Time `json:"ended" jsonschema:"when the last one ended, with nothing left"`
	Erased  UserData  `json:"erased" jsonschema:"how much all erases of this user have removed"`
	Threads []string  `json:"threads" jsonschema:"for each thread, the SHA-256 of its last entry's hash; - for a damaged one"`
	Key     string    `json:"key" jsonschema:"the public key of the store, as perdure verify prints it"`
	Sig     string    `json:"sig" jsonschema:"the signature, made with that key, of all other fields"`
}

// receiptPurpose distinguishes signatures of receipts from those of exports.
const receiptPurpose = "receipt"

// text returns what is signed.
func (rc Receipt) text() ([]byte, error) {
	rc.Sig = ""
	return json.Marshal(rc)
}

// Covers reports whether the erased threads include the one with the given head, the hash
// of its last entry. [Verification] has the head of an export, which must have been made
// after the thread's last change.
func (rc *Receipt) Covers(head string) bool {
	return head != "" && slices.Contains(rc.Threads, threads.ReceiptDigest(head))
}

// EraseUserOptions configures the erase of a user.
type EraseUserOptions struct {
	By, Reason string // recorded only in what is erased
}

// EraseUser erases everything that the store and [Options.Archive] hold for a user of
// the tenant: the user's threads, whatever their state, with forks, children, snapshots,
// files and large values; archived threads; memory, rules and credentials; uploads;
// schedules; bulk jobs for the user's threads, and the exports that such jobs wrote to
// the archive. Threads that the user starts meanwhile are erased too. Tokens belong to
// the server: see its operation users.erase.
//
// EraseUser can be repeated after any error, and several processes may call it at once: it
// continues where it was cut off. So do [Runtime.Rebuild] and, after a few minutes,
// workers. If something cannot be erased, such as an archived thread in a process without
// the archive, EraseUser erases everything else and then returns an error.
//
// The user's name may remain in threads of other users, as someone who answered an ask or
// may answer one. Downloaded exports, backups, and what steps did outside remain too.
//
// The receipt covers all erases of the user in this store. Keyed hashes stay in the
// store, so that [Runtime.UserReceipt] can return the receipt again. If nothing is left to
// erase, EraseUser returns the same receipt as before.
func (r *Runtime) EraseUser(ctx context.Context, user string, o EraseUserOptions) (*Receipt, error) {
	e, err := r.eraser(user)
	if err != nil {
		return nil, err
	}
	if err := e.Erase(ctx, user, lifecycle.Note{By: o.By, Reason: o.Reason}); err != nil {
		return nil, fmt.Errorf("perdure: erasing a user: %w", err)
	}
	return r.receipt(ctx, e, user)
}

// UserData counts what EraseUser would erase now. A thread whose erase was cut off counts
// until nothing is left of it.
func (r *Runtime) UserData(ctx context.Context, user string) (*UserData, error) {
	e, err := r.eraser(user)
	if err != nil {
		return nil, err
	}
	n, err := e.Count(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("perdure: counting what there is of a user: %w", err)
	}
	return new(userData(n)), nil
}

// UserReceipt returns the receipt of the erases of a user. It returns ErrNothingToDo if
// the user was never erased, and ErrBusy if an erase has not ended.
func (r *Runtime) UserReceipt(ctx context.Context, user string) (*Receipt, error) {
	e, err := r.eraser(user)
	if err != nil {
		return nil, err
	}
	return r.receipt(ctx, e, user)
}

func (r *Runtime) receipt(ctx context.Context, e *erasure.Eraser, user string) (*Receipt, error) {
	p, err := e.Proof(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("perdure: the receipt of an erase: %w", err)
	}
	rc := &Receipt{Format: 1, Tenant: r.tenant.Name, User: p.User, Begun: clock.Stamp(p.Begun), Ended: clock.Stamp(p.Ended), Erased: userData(p.Counts), Threads: p.Digests}
	if rc.Threads == nil {
		rc.Threads = []string{}
	}
	if rc.Key, err = r.ExportKey(ctx); err != nil {
		return nil, err
	}
	text, err := rc.text()
	if err != nil {
		return nil, err
	}
	_, rc.Sig, err = r.archive().Sign(ctx, receiptPurpose, text)
	return rc, err
}

// VerifyReceipt reads a receipt and checks that it has not changed since it was signed
// with its Key. Compare that key with the store's, see [Runtime.ExportKey]. A receipt
// that was changed is ErrInvalid.
func VerifyReceipt(rd io.Reader) (*Receipt, error) {
	raw, err := io.ReadAll(io.LimitReader(rd, maxReceipt+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxReceipt {
		return nil, fmt.Errorf("%w: a receipt has at most %d bytes", fault.ErrInvalid, maxReceipt)
	}
	rc := new(Receipt)
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(rc); err != nil {
		return nil, fmt.Errorf("%w: this is no receipt: %w", fault.ErrInvalid, err)
	}
	if rc.Format != 1 {
		return nil, fmt.Errorf("%w: a receipt of format %d; this version knows format 1", fault.ErrInvalid, rc.Format)
	}
	text, err := rc.text()
	if err == nil {
		err = archive.CheckSigned(rc.Key, rc.Sig, receiptPurpose, text)
	}
	if err != nil {
		return nil, fmt.Errorf("perdure: a receipt: %w", err)
	}
	return rc, nil
}

const maxReceipt = 1 << 30

// CheckReceipt returns ErrInvalid unless a receipt was signed by this store and is
// about the user.
func (r *Runtime) CheckReceipt(ctx context.Context, rc *Receipt, user string) error {
	key, err := r.ExportKey(ctx)
	if err != nil {
		return err
	}
	text, err := rc.text()
	if err != nil {
		return err
	}
	if err := archive.CheckSigned(key, rc.Sig, receiptPurpose, text); err != nil {
		return fmt.Errorf("%w: the receipt is not from this store, or was changed", fault.ErrInvalid)
	}
	if rc.Tenant != r.tenant.Name || rc.User != r.tenant.UserHash(user) {
		return fmt.Errorf("%w: the receipt is about another user", fault.ErrInvalid)
	}
	return nil
}

// eraser returns what erases a user, if the runtime may do that.
func (r *Runtime) eraser(user string) (*erasure.Eraser, error) {
	if user == "" || len(user) > 500 {
		return nil, fmt.Errorf("%w: a user is 1 to 500 bytes of text, not %.40q", fault.ErrInvalid, user)
	}
	if r.tenant.Owner != nil && *r.tenant.Owner != user {
		return nil, fmt.Errorf("%w: %q cannot erase %q", fault.ErrInvalid, *r.tenant.Owner, user)
	}
	return r.core.eraser(r.tenant.Name), nil
}

// eraser returns what erases the users of a tenant.
func (c *core) eraser(tenant string) *erasure.Eraser {
	all := c.runtime(c.threads.Tenant(tenant))
	return erasure.New(all.tenant, all.life, c.opts.Archive)
}

// finishErases completes erases of users, and of archived threads, that were interrupted.
func (c *core) finishErases(ctx context.Context) error {
	_, err := erasure.FinishAll(ctx, c.threads, c.eraser)
	return errors.Join(c.runtime(c.threads.Tenant("")).vault().Tidy(ctx), err)
}
