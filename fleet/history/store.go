package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/iop-dev/iop/fleet"
	controlv1 "github.com/iop-dev/iop/gen/go/iop/control/v1"
)

// Store implements fleet.Store.
type Store struct {
	db     *sql.DB
	notice string
	file   string      // empty = in memory
	opened os.FileInfo // what file was when it was opened
}

var _ fleet.Store = (*Store)(nil)

// Notice is why the history does not survive a restart, or what became of an
// earlier one; empty = it is kept.
func (s *Store) Notice() string { return s.notice }

// Close writes what is left and lets the file go.
func (s *Store) Close() error { return s.db.Close() }

// Last implements fleet.Store.
func (s *Store) Last(ctx context.Context, edge string) (fleet.Minute, error) {
	var through int64
	var packed []byte
	err := s.db.QueryRowContext(ctx, `SELECT through, point FROM minutes WHERE edge = ? ORDER BY ended DESC LIMIT 1`, edge).Scan(&through, &packed)
	if errors.Is(err, sql.ErrNoRows) {
		return fleet.Minute{}, nil
	}
	if err != nil {
		return fleet.Minute{}, fmt.Errorf("read the history: %w", err)
	}
	p, err := unpacked(packed)
	return fleet.Minute{Point: p, Through: time.UnixMilli(through)}, err
}

// Put implements fleet.Store. What went into a file that is no longer there is kept
// until the store is closed, and is an error.
func (s *Store) Put(ctx context.Context, edge string, minutes []fleet.Minute, oldest time.Time) error {
	if err := s.write(ctx, edge, minutes, oldest); err != nil {
		return err
	}
	return s.there()
}

// there is an error where the file is no longer the one that was opened.
func (s *Store) there() error {
	if s.file == "" {
		return nil
	}
	now, err := os.Stat(s.file)
	if err == nil && os.SameFile(s.opened, now) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the history's file: %w", err)
	}
	return fmt.Errorf("the file %s was removed or replaced while in use: restart the Control Plane", s.file)
}

func (s *Store) write(ctx context.Context, edge string, minutes []fleet.Minute, oldest time.Time) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the history: %w", err)
			_ = tx.Rollback() // what was to be undone is told by err
		}
	}()
	for _, m := range minutes {
		packed, err := proto.Marshal(m.Point)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO minutes (edge, ended, through, point) VALUES (?, ?, ?, ?)`,
			edge, m.Point.GetAt().GetSeconds(), m.Through.UnixMilli(), packed); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM minutes WHERE edge = ? AND ended < ?`, edge, oldest.Unix()); err != nil {
		return err
	}
	return tx.Commit()
}

// Since implements fleet.Store.
func (s *Store) Since(ctx context.Context, edge string, after time.Time) (out []*controlv1.HistoryPoint, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT point FROM minutes WHERE edge = ? AND ended > ? ORDER BY ended`, edge, after.Unix())
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var packed []byte
		if err := rows.Scan(&packed); err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		p, err := unpacked(packed)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

func unpacked(packed []byte) (*controlv1.HistoryPoint, error) {
	p := &controlv1.HistoryPoint{}
	if err := proto.Unmarshal(packed, p); err != nil {
		return nil, fmt.Errorf("a point of the history: %w", err)
	}
	return p, nil
}
