package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

// openStore checks the store that the flags name, or that of dev.
func (d *doctor) openStore(ctx context.Context) {
	url := d.app.conn.Store
	if url == "" {
		url = link.DevURL
		if _, err := os.Stat(link.DevFile); err != nil {
			d.note("store", poor, "perdure dev creates one; name another with --store or --server", "there is none in ./%s", link.DevFolder)
			d.disk(".")
			return
		}
	}
	folder := link.Folder(url)
	if file, ok := link.SQLiteFile(url); ok && !d.sqlite(file) {
		return
	}
	begin := time.Now()
	l, err := d.app.conn.Open(ctx, url)
	if err != nil {
		d.note("store", broken, adviceOn(err), "%v", err)
		return
	}
	defer l.Close()
	s := threads.Behind(l.Runtime).All.Store
	d.note("store", fine, "", "%s opens in %v", link.StoreName(url), round(time.Since(begin)))
	d.durability(s)
	if folder != "" {
		d.disk(folder)
	}
	failed := d.probe(ctx, s)
	if found, err := store.Warnings(ctx, s); err != nil {
		d.note("engine", poor, "look at the servers of the store", "it cannot be asked for warnings: %v", err)
	} else {
		d.warnings(slices.DeleteFunc(found, func(w store.Warning) bool { // what probe has met is said
			return failed != nil && w.Kind == store.WarnSpace && strings.HasSuffix(w.Detail, failed.Error())
		}))
	}
	stats, err := client.Do(ctx, l.Client, api.StatsGet, api.Nothing{})
	if err != nil {
		d.note("threads", broken, "the message says where the damage is", "they cannot be counted: %v", err)
		return
	}
	d.workers(stats)
	d.moved(ctx, l.Client, stats)
	d.threads(ctx, l.Runtime)
	d.unlisted(ctx, s)
	d.erases(ctx, s)
	if err := d.app.conn.CheckArchive(ctx, l.Runtime); err != nil {
		d.note("archive", broken, "mount its disk; until then nothing is archived, restored or erased there", "%v", err)
	}
}

// begun is how long it may take until what has begun a thread has also listed it: imports
// and restores that were cut off are removed after an hour.
const begun = 2 * time.Hour

// unlisted says whether journals have no summary, so that no list has their threads.
func (d *doctor) unlisted(ctx context.Context, s store.Store) {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	looked, lost := 0, 0
	prefix := threads.JournalKey("")
	for key, err := range s.Journals(ctx, prefix) {
		name, ok := strings.CutPrefix(key, prefix)
		if err != nil || !ok {
			break // other checks say why
		}
		if made, known := threads.MadeAt(name); !known || time.Since(made) < begun {
			continue
		}
		looked++
		if _, err := s.Get(ctx, key); errors.Is(err, store.ErrNotFound) {
			lost++
		}
	}
	if lost > 0 {
		d.note("journals", poor, "workers restore summaries now and then, and Runtime.Rebuild does at once; if that does not help, cells of the store were deleted: restore a backup", "%d of %d journals have no summary, so that their threads are in no list", lost, looked)
	}
}

// erases says whether erases of users were interrupted.
func (d *doctor) erases(ctx context.Context, s store.Store) {
	n := 0
	for _, err := range s.List(ctx, threads.ErasingUser, "") {
		if err != nil {
			return // other checks say why
		}
		n++
	}
	if n > 0 {
		d.note("erases", poor, "repeat perdure erase --user USER; a worker with the archive of the store also completes it, after some minutes", "%s of users under way, or interrupted", terminal.Count(n, "erase", "erases"))
	}
}

// durability says what writes survive, and what could be changed.
func (d *doctor) durability(s store.Store) {
	advice := func(otherwise string) string {
		if weak, ok := store.As[store.Weak](s); ok && weak.Weakness() != "" {
			return weak.Weakness()
		}
		return otherwise
	}
	switch class := store.DurabilityOf(s); class {
	case store.Power:
		d.note("durability", fine, "", "an acknowledged write survives a power failure")
	case store.Process:
		d.note("durability", poor, advice("keep it on a disk, with the default settings"), "writes survive the death of the process, but not a power failure")
	default:
		d.note("durability", poor, advice("use sqlite: for data that is to last"), "nothing is sure to survive the process that holds it")
	}
}

// adviceOn says what to do about a store that does not open.
func adviceOn(err error) string {
	switch {
	case errors.Is(err, store.ErrScheme):
		return "check the URL; if it is right, use a program of your own that links the driver and calls cli.Main"
	case errors.Is(err, store.ErrLocked):
		return "another process holds it: stop that process, or wait until it is done"
	case errors.Is(err, store.ErrFull):
		return "make space where the store is, or raise its limits"
	case errors.Is(err, store.ErrUnavailable):
		return "it is not ready, or cannot be reached: the message says why"
	case errors.Is(err, store.ErrKey):
		return "it is sealed: only a program that has its keys opens it"
	case errors.Is(err, store.ErrNewer):
		return "use the version that wrote it, or a newer one"
	case errors.Is(err, store.ErrForeign):
		return "it holds something else: check the URL"
	case errors.Is(err, fs.ErrPermission), strings.Contains(err.Error(), "readonly"):
		return "let this user write to the file and to its folder"
	}
	if saysWhatToDo(err) {
		return ""
	}
	return "check the URL, and that this user may read and write there"
}

// saysWhatToDo reports whether an error of a store ends with advice, as those of drivers
// do after a semicolon.
func saysWhatToDo(err error) bool { return strings.Contains(err.Error(), "; ") }

// sqlite checks a database from outside, before the store opens it.
func (d *doctor) sqlite(file string) bool {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.note("store", broken, "check the path; perdure dev and perdure serve create a new one", "there is no file %s", file)
		return false
	case err != nil:
		d.note("store", broken, "check the path, and who may read it", "%v", err)
		return false
	case exposed(file, info):
		d.note("privacy", poor, "chmod o-rwx "+file+", or keep it in a folder of your own", "%s can be read by everyone on this machine", file)
	}
	checks := []string{"PRAGMA journal_mode", "SELECT sqlite_version()"}
	if info.Size() <= doctorFile {
		checks = append(checks, "PRAGMA quick_check(1)")
	}
	said, err := sqlitestore.Inspect(file, checks...)
	if err == nil && strings.Contains(said[0], "not a database") { // the answer to the first question
		err = errors.New(file + " is not a SQLite database")
	}
	if err != nil {
		d.note("sqlite", broken, "it may not be a database, or may belong to somebody else", "%v", err)
		return false
	}
	status, fix, detail := fine, "", fmt.Sprintf("%s, %d KiB, journal mode %s, SQLite %s", file, info.Size()>>10, said[0], said[1])
	if said[0] != "wal" {
		status, fix = poor, "let perdure open it for writing: it sets wal itself"
	}
	if wal, err := os.Stat(file + "-wal"); err == nil && wal.Size() > doctorFile {
		status, fix = poor, "a program keeps a transaction open and blocks others; find it and stop it"
		detail += fmt.Sprintf(", and a WAL of %d MiB", wal.Size()>>20)
	}
	if len(said) > 2 && said[2] != "ok" {
		status, fix = broken, "restore it from a backup, or export what can be read with perdure export"
		detail += ": " + said[2]
	}
	d.note("sqlite", status, fix, "%s", detail)
	return true
}

// exposed reports whether everyone on this machine can read a file.
func exposed(file string, info fs.FileInfo) bool {
	if runtime.GOOS == "windows" || info.Mode().Perm()&0o004 == 0 {
		return false
	}
	folder, err := os.Stat(filepath.Dir(file))
	return err == nil && folder.Mode().Perm()&0o001 != 0
}

// probe writes, reads and removes a cell and a journal. It returns what failed.
func (d *doctor) probe(ctx context.Context, s store.Store) error {
	name := "doctor/" + rand.Text()
	begin := time.Now()
	version, err := s.Put(ctx, name, []byte("probe"), "")
	put := time.Since(begin)
	if err == nil {
		var cell store.Cell
		if cell, err = s.Get(ctx, name); err == nil && string(cell.Value) != "probe" {
			err = fmt.Errorf("a cell was read back as %q", cell.Value)
		}
		err = errors.Join(err, s.Delete(ctx, name, version))
	}
	begin = time.Now()
	if err == nil {
		_, err = store.AppendOnce(ctx, s, name, 0, []byte("probe"))
	}
	added := time.Since(begin)
	if err == nil {
		var entries []store.Entry
		if entries, err = store.ReadAll(ctx, s, name, 0); err == nil && (len(entries) != 1 || string(entries[0].Data) != "probe") {
			err = fmt.Errorf("a journal with 1 entry was read back with %d", len(entries))
		}
		err = errors.Join(err, s.Drop(ctx, name))
	}
	if err != nil {
		fix := "check free space, permissions, and that no other program holds the store"
		switch {
		case errors.Is(err, store.ErrFull):
			fix = "make space where the store is, or raise its limits: it refuses all writes"
		case errors.Is(err, store.ErrUnavailable):
			fix = adviceOn(err)
		case saysWhatToDo(err):
			fix = ""
		}
		d.note("writing", broken, fix, "%v", err)
		return err
	}
	status, fix := fine, ""
	if max(put, added) > time.Second {
		status, fix = poor, "each step waits for a write: use a faster disk, or find out what keeps it busy"
	}
	d.note("writing", status, fix, "a cell took %v, an append %v", round(put), round(added))
	return nil
}

// threads compares the newest summaries with the journals that they summarize.
func (d *doctor) threads(ctx context.Context, rt *perdure.Runtime) {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	looked, behind := 0, 0
	for s, err := range rt.List(ctx, perdure.ListOptions{Limit: doctorThreads}) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			d.note("journals", broken, "the message says where the damage is", "the list of threads ends early: %v", err)
			return
		}
		t, err := rt.Get(ctx, s.ID)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, perdure.ErrNoThread), errors.Is(err, perdure.ErrErased), errors.Is(err, perdure.ErrArchived): // meanwhile
		case err != nil:
			d.note("journals", broken, "perdure fork "+s.ID+" --at N makes a thread of the part that is good", "thread %s: %v", s.ID, err)
			return
		case t.Status != s.Status && time.Since(t.Updated) > time.Minute:
			behind++
		}
		looked++
	}
	if behind > 0 {
		d.note("journals", poor, "workers repair that by themselves after a while", "of %d threads, %d are listed with an old status", looked, behind)
		return
	}
	d.note("journals", fine, "", "%d threads read, all as they are listed", looked)
}

// disk checks how much space is left.
func (d *doctor) disk(folder string) {
	free, err := freeSpace(folder)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		d.note("disk", poor, "", "%v", err)
	case free < 100<<20:
		d.note("disk", broken, "free some space: a store on a full disk accepts no writes", "%d MiB are free in %s", free>>20, folder)
	case free < 1<<30:
		d.note("disk", poor, "free some space before the disk is full", "%d MiB are free in %s", free>>20, folder)
	default:
		d.note("disk", fine, "", "%d GiB are free in %s", free>>30, folder)
	}
}
