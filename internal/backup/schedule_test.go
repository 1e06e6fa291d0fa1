package backup

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scheduled is a Schedule in a new directory that stores the results of its backups.
func scheduled(t *testing.T) (s *Schedule, told *[]error) {
	t.Helper()
	told = &[]error{}
	return &Schedule{
		Write: func(_ context.Context, w io.Writer) error {
			h := Header{Schema: 1, Created: time.Now(), DatabaseBytes: 2, Instance: instance}
			return Write(w, h, strings.NewReader("db"), nil)
		},
		Dir: filepath.Join(t.TempDir(), "backups"), Instance: instance, Interval: time.Hour, Keep: 3,
		Done: func(_ time.Time, err error) { *told = append(*told, err) }, Logger: slog.New(slog.DiscardHandler),
	}, told
}

// during runs s for d, like one run of agboxd.
func (s *Schedule) during(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	s.Run(ctx)
}

func (s *Schedule) names(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The clock in a synctest bubble starts at midnight, 2000-01-01.
func TestTheNewestScheduledBackupsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := scheduled(t)
		s.during(4*time.Hour + time.Minute)
		for _, name := range []string{"agbox-ffffffff-20000101T000000Z.backup", "agbox-0e12dd5b-notes.backup"} { // not removed
			if err := os.WriteFile(filepath.Join(s.Dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.during(30 * time.Minute) // a restart makes no early backup
		s.during(time.Hour)
		want := []string{
			"agbox-0e12dd5b-20000101T030000Z.backup", "agbox-0e12dd5b-20000101T040000Z.backup", "agbox-0e12dd5b-20000101T050000Z.backup",
			"agbox-0e12dd5b-notes.backup", "agbox-ffffffff-20000101T000000Z.backup",
		}
		if got := s.names(t); !slices.Equal(got, want) {
			t.Errorf("there are %v", got)
		}
		if len(*told) != 6 {
			t.Errorf("told of %d", len(*told))
		}
		b, closeFile, err := OpenPath(t.Context(), filepath.Join(s.Dir, want[2]))
		if err != nil || b.Instance != instance {
			t.Fatal(err)
		}
		closeFile()
	})
}

func TestAFailedScheduledBackupIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, told := scheduled(t)
		write := s.Write
		fault := errors.New("fault")
		s.Write = func(ctx context.Context, w io.Writer) error {
			if len(*told) < 2 {
				_, _ = w.Write([]byte("a part"))
				return fault
			}
			return write(ctx, w)
		}
		s.during(11 * time.Minute)
		if len(*told) != 3 || !errors.Is((*told)[0], fault) || (*told)[2] != nil {
			t.Errorf("told %v", *told)
		}
		if got := s.names(t); !slices.Equal(got, []string{"agbox-0e12dd5b-20000101T001000Z.backup"}) {
			t.Errorf("there are %v", got)
		}
	})
}

func TestABackupFromTheFutureDelaysByNoMoreThanAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := scheduled(t)
		if err := os.MkdirAll(s.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		future := "agbox-0e12dd5b-20400101T000000Z.backup"
		left := ".agbox-0e12dd5b-unfinished"
		for _, name := range []string{future, left} {
			if err := os.WriteFile(filepath.Join(s.Dir, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.during(61 * time.Minute)
		if got := s.names(t); !slices.Equal(got, []string{"agbox-0e12dd5b-20000101T010000Z.backup", future}) {
			t.Errorf("there are %v", got)
		}
	})
}
