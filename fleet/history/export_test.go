package history

import (
	"context"
	"fmt"
)

// LimitPages makes the disk full at so many pages.
func (s *Store) LimitPages(n int) error {
	_, err := s.db.ExecContext(context.Background(), fmt.Sprintf("PRAGMA max_page_count = %d", n))
	return err
}
