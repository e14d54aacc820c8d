package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// FileName is the database's in the state folder.
const FileName = "history.db"

// form is the version of the tables.
const form = 1

// tables are those of the present form.
const tables = `CREATE TABLE IF NOT EXISTS minutes (
	edge    TEXT    NOT NULL,
	ended   INTEGER NOT NULL, -- end of the minute, Unix seconds
	through INTEGER NOT NULL, -- up to when it is known, Unix milliseconds
	point   BLOB    NOT NULL, -- iop.control.v1.HistoryPoint
	PRIMARY KEY (edge, ended)
) WITHOUT ROWID;
PRAGMA user_version = 1;`

// errNewer says that a later version has written the file.
var errNewer = errors.New("it was written by a newer version")

// InMemory is a store that ends with the process.
func InMemory() (*Store, error) {
	db, err := open(":memory:")
	if err != nil {
		return nil, fmt.Errorf("open a history in memory: %w", err)
	}
	return &Store{db: db}, nil
}

// Open opens the store of a folder, or makes it, and forgets what ended before
// oldest. It fails only where not even memory can be used.
func Open(dir string, oldest time.Time) (*Store, error) {
	file := filepath.Join(dir, FileName)
	s, err := openFile(file, oldest)
	if err == nil {
		return s, nil
	}
	if damaged(err) {
		aside := fmt.Sprintf("%s.damaged-%d", file, oldest.Unix())
		if renameErr := setAside(file, aside); renameErr != nil {
			return instead(file, errors.Join(err, renameErr))
		}
		if s, again := openFile(file, oldest); again == nil {
			s.notice = fmt.Sprintf("the history was damaged (%v): it begins anew, the old file is %s", err, aside)
			return s, nil
		}
	}
	return instead(file, err)
}

// instead is a store in memory in the place of a file that cannot be used.
func instead(file string, why error) (*Store, error) {
	s, err := InMemory()
	if err != nil {
		return nil, err
	}
	s.notice = fmt.Sprintf("the history will not survive a restart: %s cannot be used: %v", file, why)
	return s, nil
}

// damaged reports whether a file is no sound database: then nothing of it can be
// saved here, and it is not another process's.
func damaged(err error) bool {
	var e *sqlite.Error
	if errors.Is(err, errUnsound) {
		return true
	}
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB)
}

// setAside renames the file; its log goes with it, lest it be applied to another.
func setAside(file, aside string) error {
	if err := os.Rename(file, aside); err != nil {
		return err
	}
	if err := os.Rename(file+"-wal", aside+"-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

var errUnsound = errors.New("it is not sound")

func openFile(file string, oldest time.Time) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	// One process, and no memory shared with others: the file may lie on any file
	// system. A commit may be lost with the machine's power, never the file.
	db, err := open(uriOf(file) + "?_pragma=locking_mode(exclusive)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		return nil, err
	}
	err = sound(db, oldest)
	opened, statErr := os.Stat(file)
	if err = errors.Join(err, statErr); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Store{db: db, file: file, opened: opened}, nil
}

// uriOf is the file as SQLite takes it: any other form would read a "?" or "%" in
// a folder's name as its own.
func uriOf(file string) string {
	path := filepath.ToSlash(file)
	if filepath.VolumeName(file) != "" {
		path = "///" + path
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// open opens a database and makes its tables. There is one connection: what is in
// memory belongs to it, and so does the lock of a file.
func open(name string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	db.SetConnMaxIdleTime(0)
	db.SetConnMaxLifetime(0)
	if err := prepare(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func prepare(db *sql.DB) error {
	ctx := context.Background()
	var found int
	if err := db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&found); err != nil {
		return err
	}
	if found > form {
		return errNewer
	}
	_, err := db.ExecContext(ctx, tables)
	return err
}

// sound looks the file over and forgets what is too old, of Edges too that are no
// longer configured.
func sound(db *sql.DB, oldest time.Time) error {
	ctx := context.Background()
	var verdict string
	if err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", errUnsound, verdict)
	}
	_, err := db.ExecContext(ctx, `DELETE FROM minutes WHERE ended < ?`, oldest.Unix())
	return err
}
