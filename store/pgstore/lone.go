package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/store"
)

// A group of one append with required cells, such as the start or the end of a run that
// has the server to itself, is a plain statement, which takes less of the server's time
// than the function. There is one for each set of kinds of writes.

// begins is in the set if the journal is new; cells have 1 << replaces, 1 << creates and
// 1 << removes.
const begins = 1 << optional

// lone reports whether sendLone can make a request.
func (r *request) lone() bool {
	return r.Journal != "" && len(r.Cells) > 0 && r.After < math.MaxInt64-store.MaxBatch &&
		!slices.ContainsFunc(r.Cells, func(w store.Write) bool { return w.Optional })
}

// loneSQL returns the statement for a set of kinds. The head of the journal is locked
// first, since everything else refers to it, and then the cells, in the order in which
// they are counted. If one is not as expected, a cast that fails undoes everything.
func loneSQL(kinds int) string {
	const last, soon = "$2::bigint + cardinality($3::bytea[])", "set_config('lock_timeout', $4, true) <> ''"
	var b strings.Builder
	if kinds&begins != 0 {
		b.WriteString("WITH head AS (INSERT INTO SCHEMA.journals (name, last) SELECT $1, " + last + " WHERE " + soon + " ON CONFLICT DO NOTHING RETURNING id)")
	} else {
		b.WriteString("WITH head AS (UPDATE SCHEMA.journals SET last = " + last + " WHERE name = $1 AND last = $2 AND " + soon + " RETURNING id)")
	}
	checks, arg := "true", 5
	for k, write := range []string{
		replaces: "UPDATE SCHEMA.cells c SET version = w.version, value = w.value FROM %s WHERE c.key = w.key AND c.version = w.prev",
		creates:  "INSERT INTO SCHEMA.cells SELECT w.key, w.version, w.value FROM %s ON CONFLICT DO NOTHING",
		removes:  "DELETE FROM SCHEMA.cells c USING %s WHERE c.key = w.key AND c.version = w.prev",
	} {
		if kinds&(1<<k) == 0 {
			continue
		}
		rows := fmt.Sprintf("head, unnest($%d::bytea[], $%d::text[], $%d::text[], $%d::bytea[]) AS w(key, prev, version, value)", arg, arg+1, arg+2, arg+3)
		fmt.Fprintf(&b, ", cells%d AS ("+write+" RETURNING 1)", k, rows)
		checks += fmt.Sprintf(" AND (SELECT count(*) FROM cells%d) = cardinality($%d)", k, arg)
		arg += 4
	}
	b.WriteString(", lines AS (INSERT INTO SCHEMA.entries SELECT head.id, $2 + e.n, e.data FROM head, unnest($3) WITH ORDINALITY AS e(data, n))")
	return b.String() + " SELECT CASE WHEN EXISTS (SELECT FROM head) THEN (CASE WHEN " + checks + " THEN '1' ELSE 'a cell is not as expected' END)::int ELSE 0 END"
}

// sendLone is send for a request that is lone.
func (s *Store) sendLone(ctx context.Context, q querier, r *request, wait any) ([]bool, error) {
	var byKind [3]statement
	var cells []cellWrite
	for i := range r.Cells {
		cells = append(cells, cellWrite{Write: &r.Cells[i], version: r.versions[i]})
	}
	slices.SortFunc(cells, func(a, b cellWrite) int { return cmp.Compare(a.Key, b.Key) })
	for _, c := range cells {
		byKind[c.kind()].write(c)
	}
	kinds := 0
	if r.After == 0 {
		kinds = begins
	}
	args := []any{[]byte(r.Journal), int64(r.After), pgtype.FlatArray[[]byte](r.Entries), wait}
	for k, st := range byKind {
		if len(st.keys) > 0 {
			kinds |= 1 << k
			args = append(args, st.keys, st.prevs, st.versions, st.values)
		}
	}
	var made int
	err := q.QueryRow(ctx, s.sqlLone[kinds], args...).Scan(&made)
	if code(err) == "22P02" {
		err = errVeto
	}
	return []bool{made != 0}, err
}

// errVeto is the error of the function if a required cell is not as expected.
var errVeto = &pgconn.PgError{Code: "PD001", Message: "a cell is not as expected"}
