package pgstore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/store"
)

// statement holds the arguments of the SQL function write1, see writeFunction.
type statement struct {
	unsynced bool

	names  pgtype.FlatArray[[]byte] // of each append
	afters []int64
	counts []int32

	owners []int32 // of each entry
	seqs   []int64
	datas  pgtype.FlatArray[[]byte]

	cellOwners []int32 // of each cell
	keys       pgtype.FlatArray[[]byte]
	prevs      []string
	versions   []string
	values     pgtype.FlatArray[[]byte]
	kinds      []int32
}

// newStatement returns a statement with empty arrays: nil would be NULL.
func newStatement() *statement {
	return &statement{
		unsynced: true,
		names:    [][]byte{}, afters: []int64{}, counts: []int32{},
		owners: []int32{}, seqs: []int64{}, datas: [][]byte{},
		cellOwners: []int32{}, keys: [][]byte{}, prevs: []string{}, versions: []string{}, values: [][]byte{}, kinds: []int32{},
	}
}

// cellWrite is the write of a cell in a group.
type cellWrite struct {
	*store.Write
	version store.Version
	owner   int32 // index of its append, from 1; 0 if it has none
	request int   // index in the group
}

// kind returns the kind of the write, as if it was required.
func (c cellWrite) kind() int32 {
	switch {
	case c.Remove:
		return removes
	case c.Prev == "":
		return creates
	}
	return replaces
}

// querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// send writes as much of a group as it can in one statement, and reports for each
// request whether it was made. If lockWait is not 0, it is how long the statement
// waits for a lock, at most; otherwise that is as the session says.
func (s *Store) send(ctx context.Context, q querier, group []*request, lockWait time.Duration) ([]bool, error) {
	sqlAppend, sqlWrite, wait := s.sqlAppend, s.sqlWrite, []any(nil)
	if lockWait > 0 {
		sqlAppend, sqlWrite, wait = s.sqlAppendSoon, s.sqlWriteSoon, []any{strconv.FormatInt(lockWait.Milliseconds(), 10)}
	}
	if r := group[0]; len(group) == 1 && len(r.Cells) == 0 && r.After > 0 && r.After < math.MaxInt64-store.MaxBatch {
		done, err := q.Exec(ctx, sqlAppend, append([]any{[]byte(r.Journal), int64(r.After), pgtype.FlatArray[[]byte](r.Entries)}, wait...)...)
		return []bool{done.RowsAffected() > 0}, err
	}
	if r := group[0]; len(group) == 1 && lockWait > 0 && !s.pooled && r.lone() {
		return s.sendLone(ctx, q, r, wait[0])
	}
	// All groups lock journals, and then cells, in the same order.
	slices.SortFunc(group, func(a, b *request) int { return cmp.Compare(a.Journal, b.Journal) })
	st := newStatement()
	var required, optional []cellWrite
	places := make([]int, len(group)) // in the result, of what says whether a request was made
	for i, r := range group {
		st.unsynced = st.unsynced && r.unsynced
		owner := int32(0)
		if r.Journal != "" {
			places[i] = len(st.names)
			owner = st.append(r)
		}
		for j := range r.Cells {
			c := cellWrite{&r.Cells[j], r.versions[j], owner, i}
			if c.Optional {
				optional = append(optional, c) // their order matters
			} else {
				required = append(required, c)
			}
		}
	}
	slices.SortFunc(required, func(a, b cellWrite) int { return cmp.Compare(a.Key, b.Key) })
	for i, c := range slices.Concat(required, optional) {
		st.write(c)
		if c.owner == 0 {
			places[c.request] = len(st.names) + i
		}
	}
	var made []int64
	err := q.QueryRow(ctx, sqlWrite, append([]any{st.unsynced, st.names, st.afters, st.counts, st.owners, st.seqs, st.datas,
		st.cellOwners, st.keys, st.prevs, st.versions, st.values, st.kinds}, wait...)...).Scan(&made)
	if err != nil {
		return nil, err
	}
	won := make([]bool, len(group))
	for i, place := range places {
		won[i] = made[place] != 0
	}
	return won, nil
}

// append adds an append and returns its index, from 1.
func (st *statement) append(r *request) (owner int32) {
	after := int64(-2) // no journal ends there
	if r.After <= math.MaxInt64-store.MaxBatch {
		after = int64(r.After)
	}
	st.names = append(st.names, []byte(r.Journal))
	st.afters = append(st.afters, after)
	st.counts = append(st.counts, int32(len(r.Entries)))
	owner = int32(len(st.names))
	for i, data := range r.Entries {
		st.owners = append(st.owners, owner)
		st.seqs = append(st.seqs, after+1+int64(i))
		st.datas = append(st.datas, data)
	}
	return owner
}

// write adds the write of a cell.
func (st *statement) write(c cellWrite) {
	kind := c.kind()
	if c.Optional {
		kind += optional
	}
	st.cellOwners = append(st.cellOwners, c.owner)
	st.keys = append(st.keys, []byte(c.Key))
	st.prevs = append(st.prevs, string(c.Prev))
	st.versions = append(st.versions, string(c.version))
	st.values = append(st.values, c.Value)
	st.kinds = append(st.kinds, kind)
}

// examine returns for each request why it cannot be made, nil if it now can. A
// refusal is final: neither the end of a journal nor the version of a cell recurs.
func (s *Store) examine(ctx context.Context, q querier, group []*request) ([]error, error) {
	names, keys := [][]byte{}, [][]byte{}
	for _, r := range group {
		if r.Journal != "" {
			names = append(names, []byte(r.Journal))
		}
		for _, c := range r.Cells {
			keys = append(keys, []byte(c.Key))
		}
	}
	rows, err := q.Query(ctx, s.sql("SELECT name, last, NULL::text FROM SCHEMA.journals WHERE name = ANY($1) UNION ALL SELECT key, NULL, version FROM SCHEMA.cells WHERE key = ANY($2)"), names, keys)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	lasts, versions := map[string]int64{}, map[string]store.Version{}
	for rows.Next() {
		var name []byte
		var last *int64
		var version *store.Version
		if err := rows.Scan(&name, &last, &version); err != nil {
			return nil, err
		}
		if last != nil {
			lasts[string(name)] = *last
		} else {
			versions[string(name)] = *version
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	why := make([]error, len(group))
	for i, r := range group {
		why[i] = r.refused(lasts[r.Journal], versions)
	}
	return why, nil
}

// refused returns why a request cannot be made, given the last entry of its journal
// and the versions of the cells.
func (r *request) refused(last int64, versions map[string]store.Version) error {
	switch {
	case r.Journal == "":
	case last < 0:
		return store.WasDropped(r.Journal)
	case uint64(last) != r.After:
		return store.NotAtEnd(r.Journal, r.After, uint64(last))
	}
	for _, c := range r.Cells {
		if now := versions[c.Key]; now != c.Prev && !c.Optional {
			err := store.NotVersion(c.Key, c.Prev, now)
			if r.Journal != "" {
				err = &store.CellConflict{Key: c.Key, Err: err}
			}
			return err
		}
	}
	return nil
}
