package dockerx

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// archiveServer answers a stat with a small regular file, and a read with the archive that send writes.
func archiveServer(t *testing.T, send func(*tar.Writer)) *Engine {
	t.Helper()
	stat, err := json.Marshal(container.PathStat{Name: "f", Size: 3, Mode: 0o644})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := newEngine(t, newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(stat))
		w.WriteHeader(http.StatusOK)
		if r.Method == http.MethodGet {
			send(tar.NewWriter(w))
		}
	}).host)
	return e
}

// The container may replace the file between the stat and the read.
func TestReadContainerFileOfAReplacedFile(t *testing.T) {
	header := func(h tar.Header) func(*tar.Writer) {
		return func(w *tar.Writer) { _ = w.WriteHeader(&h) }
	}
	for name, tc := range map[string]struct {
		send func(*tar.Writer)
		want error
	}{
		"a directory":         {header(tar.Header{Typeflag: tar.TypeDir, Name: "f/"}), errdefs.ErrFailedPrecondition},
		"a device":            {header(tar.Header{Typeflag: tar.TypeChar, Name: "f"}), errdefs.ErrFailedPrecondition},
		"a link":              {header(tar.Header{Typeflag: tar.TypeSymlink, Name: "f", Linkname: "/x"}), errdefs.ErrFailedPrecondition},
		"a huge file":         {header(tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 1 << 40}), errdefs.ErrOutOfRange},
		"a file that shrinks": {header(tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 3}), errdefs.ErrUnavailable},
		"nothing":             {func(*tar.Writer) {}, errdefs.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := archiveServer(t, tc.send).ReadContainerFile(t.Context(), "x", "/f", 100)
			wantClass(t, err, tc.want)
		})
	}
	e := archiveServer(t, func(w *tar.Writer) {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 3})
		_, _ = w.Write([]byte("abc"))
	})
	if got, err := e.ReadContainerFile(t.Context(), "x", "/f", 3); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
}

// swallow reads the request's whole body.
func swallow(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusOK)
}

// The engine's error classes must not be added to the reader's error, nor the reader's own be lost.
func TestWriteTarReturnsTheReadersErrorUnchanged(t *testing.T) {
	for _, own := range []error{
		errors.New("own"), io.ErrUnexpectedEOF, context.DeadlineExceeded, context.Canceled, fmt.Errorf("own: %w", io.EOF),
	} {
		e, seen := newEngine(t, newServer(t, swallow).host)
		err := e.WriteTar(t.Context(), "x", "/", time.Minute, io.MultiReader(strings.NewReader("some"), iotest.ErrReader(own)))
		if !errors.Is(err, own) || errdefs.IsUnavailable(err) {
			t.Errorf("got %v, want %v", err, own)
		}
		if ops, errs := seen.take(); len(ops) != 1 || ops[0] != OpWriteTar || errs[0] == nil || errdefs.IsUnavailable(errs[0]) {
			t.Errorf("observed %v with %v", ops, errs)
		}
	}
}

func TestWriteTarStopsReadingOnReturn(t *testing.T) {
	e, _ := newEngine(t, newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, map[string]string{"message": "no such container"})
	}).host)
	var returned atomic.Bool
	var late atomic.Int64
	r := readerFunc(func(p []byte) (int, error) {
		if returned.Load() {
			late.Add(1)
		}
		clear(p)
		return len(p), nil
	})
	err := e.WriteTar(t.Context(), "x", "/", time.Minute, r)
	returned.Store(true)
	wantClass(t, err, errdefs.ErrNotFound)
	e.http.CloseIdleConnections()
	if n := late.Load(); n > 1 { // one may have been in progress
		t.Errorf("%d reads after the return", n)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestWriteTarHasADeadline(t *testing.T) {
	e, _ := newEngine(t, hanging(t).host)
	err := e.WriteTar(t.Context(), "x", "/", 50*time.Millisecond, strings.NewReader("x"))
	wantClass(t, err, errdefs.ErrUnavailable)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is a context error of the caller", err)
	}
}
