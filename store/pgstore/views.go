package pgstore

// fieldFunction reads a value from JSON. PostgreSQL reads none of a document that
// contains an escape it has no character for: U+0000, half of a surrogate pair, or in
// SQL_ASCII anything but ASCII. U+FFFD then takes the place of all such escapes.
const fieldFunction = `
CREATE OR REPLACE FUNCTION SCHEMA.field(data bytea, VARIADIC path text[]) RETURNS text
LANGUAGE plpgsql STABLE STRICT
AS $field$
BEGIN
	RETURN convert_from(data, 'UTF8')::json #>> path;
EXCEPTION WHEN OTHERS THEN
	BEGIN
		RETURN regexp_replace(convert_from(data, 'UTF8'),
			CASE getdatabaseencoding() WHEN 'UTF8' THEN '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F]..)'
				ELSE '(?<!\\)((?:\\\\)*)\\u(?:0000|00[89a-fA-F].|0[1-9a-fA-F]..|[1-9a-fA-F]...)' END,
			'\1' || convert_from('\xefbfbd', 'UTF8'), 'g')::json #>> path;
	EXCEPTION WHEN OTHERS THEN
		RETURN NULL;
	END;
END
$field$;
`

// views decode the rows of Perdure's threads, which have the format of package
// journal, for people and their statements; nothing in Perdure reads them. Data that
// is encrypted or not JSON appears as NULL. The views look at the entries of each
// journal by itself: they do not know what a fork shares with another thread. The
// package comment describes them.
const views = `
CREATE FUNCTION SCHEMA.moment(micros text) RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT
AS $moment$
BEGIN
	RETURN to_timestamp(micros::double precision / 1e6);
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END
$moment$;

CREATE VIEW SCHEMA.threads AS
SELECT SCHEMA.field(value, 'id') AS thread, SCHEMA.field(value, 'user') AS owner, SCHEMA.field(value, 'title') AS title,
	SCHEMA.field(value, 'flow') AS flow, SCHEMA.field(value, 'status') AS status,
	SCHEMA.moment(SCHEMA.field(value, 'created')) AS created, SCHEMA.moment(SCHEMA.field(value, 'updated')) AS updated,
	coalesce(SCHEMA.field(value, 'asks'), '0') AS asks, key AS journal
FROM SCHEMA.cells WHERE key >= 'thread/' AND key < 'thread0';

CREATE ` + historyView + `

CREATE VIEW SCHEMA.runs AS
WITH e AS NOT MATERIALIZED (SELECT journal, seq, SCHEMA.field(data, 'k') AS k, SCHEMA.field(data, 'r') AS r, data FROM SCHEMA.entries)
SELECT (SELECT t.thread FROM SCHEMA.threads t WHERE t.journal = j.name) AS thread, SCHEMA.field(q.data, 'b', 'id') AS run, SCHEMA.field(q.data, 'b', 'flow') AS flow,
	CASE l.k WHEN 'ended' THEN SCHEMA.field(l.data, 'b', 'status') WHEN 'claimed' THEN 'running' WHEN 'released' THEN 'running'
		WHEN 'resumed' THEN 'suspended' WHEN 'retried' THEN 'queued' WHEN 'cancel' THEN 'cancelled' ELSE coalesce(l.k, 'queued') END AS status,
	SCHEMA.moment(SCHEMA.field(q.data, 't')) AS queued, CASE l.k WHEN 'ended' THEN SCHEMA.moment(SCHEMA.field(l.data, 't')) END AS ended,
	q.seq, j.name AS journal
FROM SCHEMA.journals j JOIN e q ON q.journal = j.id LEFT JOIN LATERAL (
	SELECT m.k, m.data FROM e m WHERE m.journal = j.id AND m.seq > q.seq AND m.r = q.seq::text
		AND (m.k IN ('claimed', 'suspended', 'released', 'blocked', 'quarantined', 'paused', 'resumed', 'retried', 'ended')
			OR m.k = 'cancel' AND NOT EXISTS (SELECT 1 FROM e c WHERE c.journal = j.id AND c.seq > q.seq AND c.seq < m.seq AND c.r = q.seq::text AND c.k = 'claimed'))
	ORDER BY m.seq DESC LIMIT 1) l ON true
WHERE q.k = 'queued' AND NOT EXISTS (SELECT 1 FROM e w WHERE w.journal = j.id AND w.seq > q.seq AND w.k = 'rewound' AND SCHEMA.field(w.data, 'b', 'at')::bigint < q.seq);

CREATE ` + asksView

// Paths in these are those that the API shows: without the numbers of groups, as in
// /1|a/charge, which the entries have.
const (
	historyView = `VIEW SCHEMA.history AS
SELECT (SELECT t.thread FROM SCHEMA.threads t WHERE t.journal = j.name) AS thread, e.seq, SCHEMA.field(e.data, 'k') AS kind,
	SCHEMA.moment(SCHEMA.field(e.data, 't')) AS time, SCHEMA.field(e.data, 'r') AS run, regexp_replace(SCHEMA.field(e.data, 'p'), '/[0-9]+[|]', '/', 'g') AS path,
	SCHEMA.field(e.data, 'b') AS body, j.name AS journal
FROM SCHEMA.journals j JOIN SCHEMA.entries e ON e.journal = j.id;
`
	asksView = `VIEW SCHEMA.asks AS
WITH e AS NOT MATERIALIZED (SELECT journal, seq, SCHEMA.field(data, 'k') AS k, SCHEMA.field(data, 'r') AS r, SCHEMA.field(data, 'p') AS p, data FROM SCHEMA.entries)
SELECT (SELECT t.thread FROM SCHEMA.threads t WHERE t.journal = j.name) AS thread,
	substr(encode(j.name, 'escape'), strpos(encode(j.name, 'escape'), '.') + 1) || '.' || SCHEMA.field(a.data, 'id') AS ask, regexp_replace(a.p, '/[0-9]+[|]', '/', 'g') AS path,
	SCHEMA.field(a.data, 'b', 'ask', 'prompt') AS prompt, SCHEMA.field(a.data, 'b', 'ask', 'kind') AS kind, SCHEMA.field(a.data, 'b', 'ask', 'data', '0') AS data,
	SCHEMA.moment(SCHEMA.field(a.data, 't')) AS asked, SCHEMA.moment(SCHEMA.field(a.data, 'b', 'due')) AS due, a.seq, j.name AS journal
FROM SCHEMA.journals j JOIN e a ON a.journal = j.id
WHERE a.k = 'asked'
	AND NOT EXISTS (SELECT 1 FROM e w WHERE w.journal = j.id AND w.seq > a.seq AND w.k = 'rewound' AND SCHEMA.field(w.data, 'b', 'at')::bigint < a.seq)
	AND NOT EXISTS (SELECT 1 FROM e m WHERE m.journal = j.id AND m.seq > a.seq AND m.r = a.r AND (m.k = 'ended'
		OR m.k IN ('answered', 'expired') AND SCHEMA.field(m.data, 'b', 'of') = SCHEMA.field(a.data, 'id')
		OR m.k IN ('step', 'intent') AND (a.p = m.p OR starts_with(a.p, m.p || '/'))));
`
)

// pathViews replaces those of earlier formats, which showed the paths of entries.
const pathViews = "CREATE OR REPLACE " + historyView + "CREATE OR REPLACE " + asksView
