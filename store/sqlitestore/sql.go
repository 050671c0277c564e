package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/store"
)

// SQL runs the statements of a program in a transaction of the store, see package
// sqltx. The tables, views and indexes of the store are out of their reach.
type SQL struct{ tx *tx }

// Exec runs one statement and returns how many rows it has inserted, updated or
// deleted. The arguments are bound to its parameters.
func (q *SQL) Exec(ctx context.Context, query string, args ...any) (rows int64, err error) {
	err = q.run(ctx, query, args, func(c *conn, s *sqlite3.Stmt) error {
		before := c.c.TotalChanges()
		err := s.Exec()
		if c.c.TotalChanges() > before {
			rows = c.changes()
		}
		return err
	})
	return rows, err
}

// Query yields the rows of one statement. They are all read before the loop begins,
// so its body may run statements too.
func (q *SQL) Query(ctx context.Context, query string, args ...any) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var rows []Row
		err := q.run(ctx, query, args, func(_ *conn, s *sqlite3.Stmt) error {
			for s.Step() {
				row := Row{values: make([]any, s.ColumnCount())}
				for i := range row.values {
					row.values[i] = column(s, i)
				}
				rows = append(rows, row)
			}
			return s.Err()
		})
		for _, row := range rows {
			if err != nil || !yield(row, nil) {
				break
			}
		}
		if err != nil {
			yield(Row{}, err)
		}
	}
}

// QueryRow returns the first row of one statement. Its Scan returns the error, which
// is [sql.ErrNoRows] if there is no row.
func (q *SQL) QueryRow(ctx context.Context, query string, args ...any) Row {
	for row, err := range q.Query(ctx, query, args...) {
		row.err = err
		return row
	}
	return Row{err: sql.ErrNoRows}
}

// run prepares one statement of the program, binds its arguments and calls do.
func (q *SQL) run(ctx context.Context, query string, args []any, do func(*conn, *sqlite3.Stmt) error) error {
	t := q.tx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	return t.use(func(_ *writer, c *conn) error {
		c.interruptible(ctx)
		c.guarded, c.defines, c.denied = true, false, ""
		err := runOne(c, query, args, do)
		c.guarded = false
		t.defined = t.defined || c.defines
		c.interruptible(context.Background()) // or the rollback would be interrupted too
		if err == nil {
			return nil
		}
		if c.denied != "" {
			err = fmt.Errorf("%w: sqltx: %s is not for statements of a step: %s", store.ErrInvalid, c.denied, reason(err))
		}
		if ended := context.Cause(t.ctx); ended != nil {
			t.end(ended)
			return t.ended
		}
		if c.c.GetAutocommit() { // an interrupt, a full disk or ON CONFLICT ROLLBACK
			t.end(err)
			return t.ended
		}
		return err
	})
}

func runOne(c *conn, query string, args []any, do func(*conn, *sqlite3.Stmt) error) error {
	s, tail, err := c.c.Prepare(query)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("%w: sqltx: the statement is empty", store.ErrInvalid)
	}
	defer s.Close()
	if rest, _, err := c.c.Prepare(tail); err != nil || rest != nil {
		if rest != nil {
			rest.Close()
		}
		return fmt.Errorf("%w: sqltx: there is more than one statement; run them one by one", store.ErrInvalid)
	}
	if n := s.BindCount(); n != len(args) {
		return fmt.Errorf("%w: sqltx: the statement has %d parameters, and there are %d arguments", store.ErrInvalid, n, len(args))
	}
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err == nil {
			err = bind(s, i+1, value)
		}
		if err != nil {
			return fmt.Errorf("%w: sqltx: argument %d: %w", store.ErrInvalid, i+1, err)
		}
	}
	return do(c, s)
}

// bind binds a value of one of the types that package driver names.
func bind(s *sqlite3.Stmt, param int, value driver.Value) error {
	switch v := value.(type) {
	case nil:
		return s.BindNull(param)
	case int64:
		return s.BindInt64(param, v)
	case float64:
		return s.BindFloat(param, v)
	case bool:
		return s.BindBool(param, v)
	case string:
		return s.BindText(param, v)
	case []byte:
		return s.BindBlob(param, v)
	case time.Time:
		return s.BindText(param, v.UTC().Format(timeFormat))
	}
	return fmt.Errorf("a value of the type %T", value)
}

// timeFormat is how a time is kept: text that is ordered as the times are, and
// that SQLite's functions understand.
const timeFormat = "2006-01-02 15:04:05.000000000"

func column(s *sqlite3.Stmt, i int) any {
	switch s.ColumnType(i) {
	case sqlite3.INTEGER:
		return s.ColumnInt64(i)
	case sqlite3.FLOAT:
		return s.ColumnFloat(i)
	case sqlite3.TEXT:
		return s.ColumnText(i)
	case sqlite3.BLOB:
		return s.ColumnBlob(i, []byte{})
	}
	return nil
}

// Row is a row of a query.
type Row struct {
	values []any
	err    error
}

// Scan copies the columns into the variables that dest points to, one for each.
// They may be of the basic types, []byte, [time.Time], any, or implement
// [sql.Scanner], as [sql.Null] does for columns that may be NULL.
func (r Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	if len(dest) != len(r.values) {
		return fmt.Errorf("%w: sqltx: Scan has %d variables for %d columns", store.ErrInvalid, len(dest), len(r.values))
	}
	for i, value := range r.values {
		if err := scan(dest[i], value); err != nil {
			return fmt.Errorf("%w: sqltx: column %d: %w", store.ErrInvalid, i+1, err)
		}
	}
	return nil
}

func scan(dest, value any) error {
	switch d := dest.(type) {
	case sql.Scanner:
		return d.Scan(value)
	case *any:
		*d = value
		return nil
	case *[]byte:
		return scanAs(d, value)
	case *string:
		return scanAs(d, value)
	case *bool:
		return scanAs(d, value)
	case *int:
		return scanAs(d, value)
	case *int32:
		return scanAs(d, value)
	case *int64:
		return scanAs(d, value)
	case *uint64:
		return scanAs(d, value)
	case *float64:
		return scanAs(d, value)
	case *time.Time:
		text, _ := value.(string)
		at, err := time.Parse(timeFormat, text)
		*d = at
		return err
	}
	return fmt.Errorf("a variable of the type %T", dest)
}

// scanAs converts as package sql does.
func scanAs[T any](dest *T, value any) error {
	var v sql.Null[T]
	if err := v.Scan(value); err != nil {
		return err
	}
	if !v.Valid {
		return errors.New("it is NULL; scan it into a sql.Null")
	}
	*dest = v.V
	return nil
}

// guard keeps statements of the program, while guarded is set, from what belongs
// to the store and from what would change the connection.
func (c *conn) guard() error {
	if c.hasGuard {
		return nil
	}
	err := c.c.SetAuthorizer(func(action sqlite3.AuthorizerActionCode, third, fourth, _, _ string) sqlite3.AuthorizerReturnCode {
		if c.guarded {
			c.defines = c.defines || action == sqlite3.AUTH_CREATE_TABLE || action == sqlite3.AUTH_ALTER_TABLE
			if c.denied = denied(action, third, fourth); c.denied != "" {
				return sqlite3.AUTH_DENY
			}
		}
		return sqlite3.AUTH_OK
	})
	c.hasGuard = err == nil
	return err
}

// denied names what a statement of a program may not do, "" if it may.
func denied(action sqlite3.AuthorizerActionCode, third, fourth string) string {
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_RECURSIVE, sqlite3.AUTH_FUNCTION:
		return ""
	case sqlite3.AUTH_READ, sqlite3.AUTH_INSERT, sqlite3.AUTH_UPDATE, sqlite3.AUTH_DELETE,
		sqlite3.AUTH_CREATE_TABLE, sqlite3.AUTH_DROP_TABLE, sqlite3.AUTH_CREATE_VIEW, sqlite3.AUTH_DROP_VIEW,
		sqlite3.AUTH_REINDEX: // asked for a new index too
		return ours(third)
	case sqlite3.AUTH_CREATE_INDEX, sqlite3.AUTH_DROP_INDEX, sqlite3.AUTH_CREATE_TRIGGER, sqlite3.AUTH_DROP_TRIGGER:
		if name := ours(third); name != "" {
			return name
		}
		return ours(fourth)
	case sqlite3.AUTH_ALTER_TABLE:
		return ours(fourth)
	case sqlite3.AUTH_PRAGMA:
		if third == "quick_check" { // which ALTER TABLE runs itself
			return ""
		}
		return "PRAGMA " + third
	case sqlite3.AUTH_ATTACH, sqlite3.AUTH_DETACH:
		return "ATTACH"
	case sqlite3.AUTH_TRANSACTION, sqlite3.AUTH_SAVEPOINT:
		return third
	}
	return "an object of this kind, or one that is temporary or virtual,"
}

// reserved begins the names of what the store may add later.
const reserved = "perdure_"

// ours returns the name of a table, view or index if it belongs to the store or to
// SQLite, and "" otherwise.
func ours(name string) string {
	low := strings.ToLower(name)
	switch low {
	case "sqlite_master", "sqlite_schema", "sqlite_sequence": // statements that define something write to them
		return ""
	}
	own := slices.ContainsFunc(views, func(v view) bool { return v.name == low }) ||
		slices.Contains([]string{"journals", "entries", "cells", "journals_sum", "cells_sum", "dbstat", "bytecode", "tables_used"}, low)
	if own || strings.HasPrefix(low, reserved) || strings.HasPrefix(low, "sqlite_") && !strings.HasPrefix(low, "sqlite_autoindex_") {
		return name
	}
	return ""
}
