package pgstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/store"
)

// migrations build the schema, in order. The number of migrations made is the
// schema's format. Binaries of an earlier format may be running meanwhile, so a
// migration only adds and does not change what they use. SCHEMA stands for the
// schema's name.
var migrations = []string{tables + writeFunction, fieldFunction + views, fieldFunction, pathViews}

// A row of journals is the head of a journal, which all writers compare and swap. A
// drop leaves it with last = -1. Updates change only columns without an index, and
// pages have spare room, so that an update stays on its page and needs no vacuum to
// be cleaned up.
const tables = `
CREATE TABLE SCHEMA.journals (
	id   bigint GENERATED ALWAYS AS IDENTITY,
	last bigint NOT NULL,
	name bytea PRIMARY KEY
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE SCHEMA.entries (
	journal bigint NOT NULL,
	seq     bigint NOT NULL,
	data    bytea NOT NULL,
	PRIMARY KEY (journal, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE SCHEMA.cells (
	key     bytea PRIMARY KEY,
	version text COLLATE "C" NOT NULL,
	value   bytea NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
`

// The kinds of cell writes.
const (
	replaces = iota
	creates
	removes
	optional // is added to one of the others
)

// writeFunction makes a group of appends and cell writes, whose names are distinct
// and sorted. It returns a number for each append and then for each cell, 0 if it was
// not made. An append is made if its journal ends as expected, and its cells only if
// it is made. If a required cell of an append is not as expected, the function undoes
// everything with an error; the caller finds the request and leaves it out. The owner
// of a cell is the index of its append, from 1, or 0 if the cell is written by itself.
//
// Statements use indexes in the order of the arrays, whatever the planner knows about
// the tables, so that groups take their locks in the same order.
const writeFunction = `
CREATE FUNCTION SCHEMA.write1(unsynced boolean,
	names bytea[], afters bigint[], counts int[], owners int[], seqs bigint[], datas bytea[],
	cell_owners int[], keys bytea[], prevs text[], versions text[], vals bytea[], kinds int[]) RETURNS bigint[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $write$
DECLARE
	ids  bigint[] := array_fill(0::bigint, ARRAY[cardinality(names)]);
	made bigint[] := array_fill(0::bigint, ARRAY[cardinality(keys)]);
	r    record;
	off  int := 0;
BEGIN
	IF unsynced THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
	IF cardinality(names) > 0 THEN
		FOR r IN UPDATE SCHEMA.journals j SET last = w.after + w.n
			FROM unnest(names, afters, counts) WITH ORDINALITY AS w(name, after, n, place)
			WHERE w.after > 0 AND j.name = w.name AND j.last = w.after
			RETURNING j.id, w.place
		LOOP
			ids[r.place] := r.id;
		END LOOP;
		IF 0 = ANY (afters) THEN
			FOR r IN INSERT INTO SCHEMA.journals AS j (name, last)
				SELECT w.name, w.n FROM unnest(names, afters, counts) AS w(name, after, n) WHERE w.after = 0
				ON CONFLICT DO NOTHING RETURNING j.id, j.name
			LOOP
				ids[array_position(names, r.name)] := r.id;
			END LOOP;
		END IF;
		INSERT INTO SCHEMA.entries (journal, seq, data)
			SELECT ids[e.owner], e.seq, e.data FROM unnest(owners, seqs, datas) AS e(owner, seq, data) WHERE ids[e.owner] <> 0;
	END IF;
	IF cardinality(keys) = 0 THEN
		RETURN ids;
	END IF;
	IF 0 = ANY (kinds) THEN
		FOR r IN UPDATE SCHEMA.cells c SET version = w.version, value = w.value
			FROM unnest(cell_owners, keys, prevs, versions, vals, kinds) WITH ORDINALITY AS w(owner, key, prev, version, value, kind, place)
			WHERE w.kind = 0 AND (w.owner = 0 OR ids[w.owner] <> 0) AND c.key = w.key AND c.version = w.prev
			RETURNING w.place
		LOOP
			made[r.place] := 1;
		END LOOP;
	END IF;
	IF 1 = ANY (kinds) THEN
		FOR r IN INSERT INTO SCHEMA.cells AS c (key, version, value)
			SELECT w.key, w.version, w.value FROM unnest(cell_owners, keys, versions, vals, kinds) AS w(owner, key, version, value, kind)
			WHERE w.kind = 1 AND (w.owner = 0 OR ids[w.owner] <> 0)
			ON CONFLICT DO NOTHING RETURNING c.key
		LOOP
			made[array_position(keys, r.key)] := 1;
		END LOOP;
	END IF;
	IF 2 = ANY (kinds) THEN
		FOR r IN DELETE FROM SCHEMA.cells c
			USING unnest(cell_owners, keys, prevs, kinds) WITH ORDINALITY AS w(owner, key, prev, kind, place)
			WHERE w.kind = 2 AND (w.owner = 0 OR ids[w.owner] <> 0) AND c.key = w.key AND c.version = w.prev
			RETURNING w.place
		LOOP
			made[r.place] := 1;
		END LOOP;
	END IF;
	FOR i IN 1 .. cardinality(keys) LOOP
		CONTINUE WHEN cell_owners[i] = 0 OR ids[cell_owners[i]] = 0;
		IF kinds[i] < 3 THEN
			IF made[i] = 0 THEN
				RAISE EXCEPTION 'a cell is not as expected' USING ERRCODE = 'PD001';
			END IF;
			CONTINUE;
		END IF;
		CONTINUE WHEN cell_owners[i] = off;
		IF kinds[i] = 3 THEN
			UPDATE SCHEMA.cells SET version = versions[i], value = vals[i] WHERE key = keys[i] AND version = prevs[i];
		ELSIF kinds[i] = 4 THEN
			INSERT INTO SCHEMA.cells VALUES (keys[i], versions[i], vals[i]) ON CONFLICT DO NOTHING;
		ELSE
			DELETE FROM SCHEMA.cells WHERE key = keys[i] AND version = prevs[i];
		END IF;
		IF NOT FOUND THEN
			off := cell_owners[i];
		END IF;
	END LOOP;
	RETURN ids || made;
END
$write$;

CREATE FUNCTION SCHEMA.drop1(journal bytea) RETURNS void
LANGUAGE plpgsql
AS $drop$
DECLARE
	head bigint;
BEGIN
	INSERT INTO SCHEMA.journals AS j (name, last) VALUES (journal, -1)
		ON CONFLICT (name) DO UPDATE SET last = -1 RETURNING j.id INTO head;
	DELETE FROM SCHEMA.entries e WHERE e.journal = head;
END
$drop$;
`

// migrate creates the store, or upgrades it to this binary's format. If it has that
// format already, migrate writes nothing and needs no right to. A schema that somebody
// made for the store is used: not every user may make one.
func (s *Store) migrate(ctx context.Context, c *pgx.Conn) error {
	bounded, cancel := s.call(ctx)
	defer cancel()
	format, err := s.format(bounded, c)
	switch {
	case err != nil || format == len(migrations):
		return err
	case format == 0 && s.existing:
		return fmt.Errorf("%w in the schema %s; check the name, which is perdure unless the URL sets ?schema=", ErrNoStore, s.schema)
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // has no effect after Commit
	h := fnv.New64a()
	h.Write([]byte("perdure migrate " + s.schema))
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(h.Sum64())); err != nil {
		return err
	}
	if format, err = s.format(ctx, c); err != nil || format == len(migrations) {
		return err // another process was faster
	}
	if format == 0 {
		var encoding string
		var there bool
		err := tx.QueryRow(ctx, "SELECT getdatabaseencoding(), EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", s.schema).Scan(&encoding, &there)
		if err == nil && encoding != "UTF8" && encoding != "SQL_ASCII" {
			err = fmt.Errorf("%w but in %s; create another, as with createdb --encoding=UTF8 --locale=C --template=template0", ErrEncoding, encoding)
		}
		if err == nil && !there {
			_, err = tx.Exec(ctx, s.sql("create schema SCHEMA"))
		}
		if err == nil {
			_, err = tx.Exec(ctx, s.sql("CREATE TABLE SCHEMA.format (number int NOT NULL)"))
		}
		if err != nil {
			return err
		}
	}
	for _, m := range migrations[format:] {
		if _, err := tx.Exec(ctx, s.sql(m)); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, s.sql(fmt.Sprintf("DELETE FROM SCHEMA.format; INSERT INTO SCHEMA.format VALUES (%d)", len(migrations)))); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// format returns the format of the schema, 0 if it does not exist or is empty.
func (s *Store) format(ctx context.Context, c *pgx.Conn) (number int, err error) {
	var there bool
	var others int
	err = c.QueryRow(ctx, "SELECT coalesce(bool_or(c.relname = 'format'), false), count(c.oid) FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = $1", s.schema).Scan(&there, &others)
	switch {
	case err != nil:
		return 0, err
	case !there && others > 0:
		return 0, fmt.Errorf("%w: pgstore: the schema %s holds other tables; choose another with ?schema=", store.ErrForeign, s.schema)
	case !there:
		return 0, nil
	}
	if err := c.QueryRow(ctx, s.sql("SELECT coalesce(max(number), 0) FROM SCHEMA.format")).Scan(&number); err != nil {
		return 0, err
	}
	if number > len(migrations) {
		return 0, fmt.Errorf("%w: pgstore: the schema %s has format %d, and this binary knows formats up to %d; use a newer one", store.ErrNewer, s.schema, number, len(migrations))
	}
	return number, nil
}

// sql inserts the schema's name into a statement.
func (s *Store) sql(text string) string {
	return strings.ReplaceAll(text, "SCHEMA", pgx.Identifier{s.schema}.Sanitize())
}
