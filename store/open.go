package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/disk"
)

// Store is an open ids.db. Its methods may be called from any goroutine.
type Store struct {
	o      Options
	db     *bolt.DB
	mark   *marker
	keeper *keeper
	// instances holds this store's UUID and those of former stores.
	instances atomic.Pointer[[]string]

	queue   chan *request
	closing sync.RWMutex // held for reading while sending to queue
	closed  bool
	written chan struct{} // closed when the writer has returned
	down    error         // set by the writer after a fatal error; read by the writer, and by Close after the writer has returned

	index   index
	durable atomic.Pointer[durable]
	// reserve keeps blocks of the file allocated: bbolt grows it sparsely, and the first write to a hole would find no space. Only the writer
	// uses it, and Open before the writer starts.
	reserve disk.Reserve
	// alone is how many of the next commits hold one request: the disk was full, and a small commit may fit.
	alone   int
	hub     *hub
	corrupt *quarantine

	historyLimit atomic.Int64
	rebuilding   atomic.Bool

	hookMu   sync.Mutex
	hookList []func(Change)

	draining atomic.Pointer[storev1.DrainRecord]
}

// Open opens or creates the file, and loads the live records. After an unclean end o.CheckProgram first checks the file. A file of an older
// daemon is adopted, and kept under another name. ctx limits the wait for the lock, the check and the adoption. Errors: ErrUnavailable when another process has the file open, or there is no space;
// ErrFailedPrecondition when a newer agboxd wrote it, or it is of another program or can't be adopted; ErrDataLoss when it is damaged: it is empty, is not a bbolt file, is shorter than
// its pages in use, has inconsistent pages, or has no schema version or instance. After an error the file is unchanged.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return nil, fmt.Errorf("make store directory: %w", err)
	}
	mark, err := lockMarker(ctx, o.Path+markerSuffix, o.LockTimeout)
	if err != nil {
		return nil, err
	}
	s, err := openLocked(ctx, o, mark)
	if err != nil {
		return nil, errors.Join(err, mark.release())
	}
	return s, nil
}

func openLocked(ctx context.Context, o Options, mark *marker) (*Store, error) {
	if err := prepareFile(ctx, o, mark); err != nil {
		return nil, err
	}
	err := mark.set(markOpen)
	for try := 0; try < roomTries && isDiskFull(err) && o.MakeRoom(); try++ {
		err = mark.set(markOpen)
	}
	if err != nil {
		return nil, err
	}
	s, err := openFile(o, mark)
	if err != nil && mark.clean { // bbolt did not change it: the next opener need not check
		return nil, errors.Join(err, mark.set(markClean))
	}
	if err != nil {
		return nil, err
	}
	go s.write()
	s.keeper.start()
	return s, nil
}

// prepareFile creates, checks or adopts the file at o.Path, so that it is safe to map.
func prepareFile(ctx context.Context, o Options, mark *marker) error {
	info, err := os.Stat(o.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return createFile(o)
	case err != nil:
		return fmt.Errorf("stat the store: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		// Possibly a restored copy: env values in it are secrets.
		if err := os.Chmod(o.Path, 0o600); err != nil {
			return fmt.Errorf("close store to others: %w", err)
		}
	}
	if _, err := checkSize(o.Path); err != nil {
		return err
	}
	if mark.clean {
		return nil
	}
	if len(o.CheckProgram) > 0 {
		if err := checkInChild(ctx, o.CheckProgram, o.Path); err != nil {
			return err
		}
	}
	return adoptOlder(ctx, o)
}

func openFile(o Options, mark *marker) (*Store, error) {
	db, err := openBolt(o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		o: o, db: db, mark: mark, queue: make(chan *request, maxGroup), written: make(chan struct{}),
		hub: newHub(), corrupt: newQuarantine(o.Logger),
	}
	s.SetEventHistoryLimit(o.EventHistoryLimit)
	if err := s.load(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if s.reserve.File, err = os.OpenFile(o.Path, os.O_RDWR, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s for its reserve: %w", o.Path, err), db.Close())
	}
	s.reserve.Bytes = o.ReserveBytes
	s.extendReserve()
	if err := s.openLog(); err != nil {
		return nil, errors.Join(err, s.reserve.File.Close(), db.Close())
	}
	return s, nil
}

// openBolt maps as much address space as it can get. The freelist is synced with each commit: omitting that made no accept measurably
// faster, and would make every open, and every recovery from a full disk, read the whole file.
func openBolt(o Options) (*bolt.DB, error) {
	bo := &bolt.Options{Timeout: o.LockTimeout, FreelistType: bolt.FreelistMapType}
	var err error
	for _, bo.InitialMmapSize = range mmapSizes(o.InitialMmapSize) {
		var db *bolt.DB
		if db, err = bolt.Open(o.Path, 0o600, bo); err == nil {
			return db, nil
		}
		if !errors.Is(err, syscall.ENOMEM) {
			break
		}
	}
	return nil, openError(o.Path, err)
}

// mmapSizes returns the sizes to try: a limit on address space (RLIMIT_AS, 32 bits) refuses the larger ones. With 0 the mapping grows with
// the file.
func mmapSizes(want int) []int {
	if want > 0 {
		return []int{want, 0}
	}
	if defaultMmapSize > math.MaxInt {
		return []int{256 << 20, 0}
	}
	size := defaultMmapSize // a variable: as a constant it does not fit 32 bits
	return []int{int(size), 1 << 30, 64 << 20, 0}
}

// Close commits the queued requests, waits for the writer and for open reads, and marks a clean end. Later requests return ErrUnavailable.
// A second Close does nothing.
func (s *Store) Close() error {
	s.closing.Lock()
	if s.closed {
		s.closing.Unlock()
		return nil
	}
	s.closed = true
	s.keeper.stop() // it sends requests too
	close(s.queue)
	s.closing.Unlock()
	<-s.written
	err := errors.Join(s.keeper.close(), s.reserve.File.Close(), s.db.Close())
	if err == nil && s.down == nil {
		err = s.mark.set(markClean)
	}
	if err := errors.Join(err, s.mark.release()); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}
