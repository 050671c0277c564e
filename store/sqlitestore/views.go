package sqlitestore

// A view is for people who look at a store with SQLite's shell; nothing in
// Perdure reads it.
type view struct{ name, query string }

// sql is what SQLite keeps in sqlite_schema.
func (v view) sql() string { return "CREATE VIEW " + v.name + " AS " + v.query }

// replace creates the view in place of an older one, unless there is something
// else of that name, which is its user's.
func (v view) replace(c *conn) error {
	older, err := c.value("SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND name = '" + v.name + "'")
	if err == nil && older != "0" {
		err = c.run("DROP VIEW " + v.name)
	}
	if err != nil {
		return err
	}
	return c.run("CREATE VIEW IF NOT EXISTS " + v.name + " AS " + v.query)
}

// views tell what is in the rows of Perdure's threads, in the format of package
// journal, and NULL where a value is encrypted. They tell what the entries of a
// journal say, one by one: what a fork shares with another thread they do not
// know. The package comment says what they are for.
var views = []view{
	{"threads", "SELECT " + field("value", "id") + " AS thread, " + field("value", "user") + " AS user, " +
		field("value", "title") + " AS title, " + field("value", "flow") + " AS flow, " + field("value", "status") + " AS status, " +
		moment(field("value", "created")) + " AS created, " + moment(field("value", "updated")) + " AS updated, " +
		"ifnull(" + field("value", "asks") + ", 0) AS asks, name AS journal " +
		"FROM cells WHERE name >= 'thread/' AND name < 'thread0'"},

	{"history", "SELECT " + threadOf("j") + " AS thread, e.key & 4294967295 AS seq, " + field("e.data", "k") + " AS kind, " +
		moment(field("e.data", "t")) + " AS time, " + field("e.data", "r") + " AS run, " + outside(field("e.data", "p")) + " AS path, " +
		field("e.data", "b") + " AS body, j.name AS journal " +
		"FROM journals j JOIN entries e ON e.key BETWEEN j.id << 32 AND (j.id << 32 | 4294967295)"},

	{"runs", "SELECT " + threadOf("j") + " AS thread, " + field("q.data", "b.id") + " AS run, " + field("q.data", "b.flow") + " AS flow, " +
		"CASE " + field("l.data", "k") + " WHEN 'ended' THEN " + field("l.data", "b.status") +
		" WHEN 'claimed' THEN 'running' WHEN 'released' THEN 'running' WHEN 'resumed' THEN 'suspended' WHEN 'retried' THEN 'queued'" +
		" WHEN 'cancel' THEN 'cancelled' ELSE ifnull(" + field("l.data", "k") + ", 'queued') END AS status, " +
		moment(field("q.data", "t")) + " AS queued, CASE " + field("l.data", "k") + " WHEN 'ended' THEN " + moment(field("l.data", "t")) + " END AS ended, " +
		"q.key & 4294967295 AS seq, j.name AS journal " +
		"FROM journals j JOIN entries q ON q.key BETWEEN j.id << 32 AND (j.id << 32 | 4294967295) " +
		"LEFT JOIN entries l ON l.key = (SELECT max(m.key) FROM entries m WHERE m.key > q.key AND m.key <= (j.id << 32 | 4294967295)" +
		" AND " + field("m.data", "r") + " = q.key & 4294967295 AND (" + field("m.data", "k") +
		" IN ('claimed', 'suspended', 'released', 'blocked', 'quarantined', 'paused', 'resumed', 'retried', 'ended')" +
		" OR " + field("m.data", "k") + " = 'cancel' AND NOT EXISTS (SELECT 1 FROM entries c WHERE c.key > q.key AND c.key < m.key" +
		" AND " + field("c.data", "r") + " = q.key & 4294967295 AND " + field("c.data", "k") + " = 'claimed'))) " +
		"WHERE " + field("q.data", "k") + " = 'queued' AND " + isKept("q")},

	{"asks", "SELECT " + threadOf("j") + " AS thread, " + "substr(j.name, instr(j.name, '.') + 1) || '.' || " + field("a.data", "id") + " AS ask, " + outside(field("a.data", "p")) + " AS path, " +
		field("a.data", "b.ask.prompt") + " AS prompt, " + field("a.data", "b.ask.kind") + " AS kind, " + field("a.data", "b.ask.data[0]") + " AS data, " +
		moment(field("a.data", "t")) + " AS asked, " + moment(field("a.data", "b.due")) + " AS due, a.key & 4294967295 AS seq, j.name AS journal " +
		"FROM journals j JOIN entries a ON a.key BETWEEN j.id << 32 AND (j.id << 32 | 4294967295) " +
		"WHERE " + field("a.data", "k") + " = 'asked' AND " + isKept("a") + " AND NOT EXISTS (SELECT 1 FROM entries m" +
		" WHERE m.key > a.key AND m.key <= (j.id << 32 | 4294967295) AND " + field("m.data", "r") + " = " + field("a.data", "r") +
		" AND (" + field("m.data", "k") + " = 'ended' OR " + field("m.data", "b.of") + " = " + field("a.data", "id") +
		" AND " + field("m.data", "k") + " IN ('answered', 'expired')" +
		" OR " + field("m.data", "k") + " IN ('step', 'intent') AND (" + field("a.data", "p") + " = " + field("m.data", "p") +
		" OR substr(" + field("a.data", "p") + ", 1, length(" + field("m.data", "p") + ") + 1) = " + field("m.data", "p") + " || '/')))"},
}

// isKept says that no rewind has taken back an entry of the journal j.
func isKept(entry string) string {
	return "NOT EXISTS (SELECT 1 FROM entries w WHERE w.key > " + entry + ".key AND w.key <= (j.id << 32 | 4294967295)" +
		" AND " + field("w.data", "k") + " = 'rewound' AND " + field("w.data", "b.at") + " < " + entry + ".key & 4294967295)"
}

// field is a field of a column that may be no JSON.
func field(column, path string) string {
	return "CASE WHEN json_valid(" + column + ") THEN json_extract(" + column + ", '$." + path + "') END"
}

// outside is a path as the API shows it: without the numbers of groups, as in
// /1|a/charge, which the entries have.
func outside(path string) string {
	return "CASE WHEN " + path + " LIKE '%|%' THEN (SELECT '/' || group_concat(substr(value, instr(value, '|') + 1), '/')" +
		" FROM json_each('[' || replace(json_quote(substr(" + path + ", 2)), '/', '\",\"') || ']')) ELSE " + path + " END"
}

// moment is a time that the column has in microseconds.
func moment(micros string) string {
	return "strftime('%Y-%m-%d %H:%M:%f', (" + micros + ") / 1e6, 'unixepoch')"
}

// threadOf is the id of the thread that has a journal.
func threadOf(journal string) string {
	return "(SELECT t.thread FROM threads t WHERE t.journal = " + journal + ".name)"
}
